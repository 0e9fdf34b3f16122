"""Looking at what a job keeps, from beside it: checkpoints as a whole, and the state of stages.

    place        where a job's groups are, and which of several versions is in use
    operators    which of Spark's stateful operators is which stage
    opened       a checkpoint, opened to look at it
    report       a checkpoint at a batch, as data: inputs, outputs, state; `diff` compares two
    verify       whether everything that a checkpoint names is there and agrees

Nothing here writes, claims or locks: a job that runs is not disturbed.
"""
