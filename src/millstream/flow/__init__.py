"""The description of a flow: plain data that runs nothing.

`Flow` and `Stream` are what a user calls; they leave behind stages (`stages/`), which are frozen
data. Every mistake that can be found without Spark is found while the flow is being built, with the
line that made it.
"""
