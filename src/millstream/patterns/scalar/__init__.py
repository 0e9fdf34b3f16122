"""Spark SQL expressions as Python functions of one row, for watchers: no Spark, no Arrow.

`function.py` makes them. What an expression may use is what has a builder here: in operators.py,
casts.py and the files of calls; anything else is refused when the function is made, by name. What
is computed is what Spark computes in its ANSI mode, which Millstream leaves on. Types are Spark's
where the schema tells them; without one they are what comes.
"""
