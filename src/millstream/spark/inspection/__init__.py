"""Looking at what a job keeps, from beside it: checkpoints as a whole, and the state of stages.

    place        where a job's groups are, and which of several versions is in use
    operators    which of Spark's stateful operators is which stage
    opened       a checkpoint, opened to look at it
    report       a checkpoint at a batch, as data: inputs, outputs, state; `diff` compares two
    verify       whether everything that a checkpoint names is there and agrees
    key_states   the state of a stage as of a batch, by key; `stages` finds it by name
    columns      state as columns, and columns as state; `exporting` writes them to a file
    importing    state from a file, for a job that does not run

All but the last neither write nor lock anything of the job: one that runs is not disturbed.
"""
