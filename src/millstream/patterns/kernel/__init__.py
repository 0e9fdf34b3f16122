"""The kernel: the automaton over columns, for all keys of a shard at once, compiled by numba.

It does what automaton.py does, run by run, on arrays of whole numbers. `layout` names their
columns, `records` says which arrays go together. There are five ways to match: `forking` follows
every way that a run can take, `sharing` moves all runs of a state at once, `skipping` does so where
matches drop runs, `preferring` (SQL) keeps the runs in the order of preference, and `whole` (SQL)
fills a table of rows and states. They are made of the same parts:

    opcodes, machine   programs of a stack machine: the tests that look at a run's history
    registers          what a run remembers of the events that it took
    edges              which edges of a state an event opens
    matches            histories: matches, their order, and what they skip
    space              tables that grow

Code here is Python that numba can compile: plain loops over arrays, and tuples with names. No
function that matches makes an array, so none counts references. Where a table may be too small for
the next step it returns, having noted how far it is and how many rows it wants; the one that called
it makes larger tables and calls it again.
"""
