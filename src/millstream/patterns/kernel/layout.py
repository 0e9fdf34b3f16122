"""The columns of the kernel's tables: two-dimensional arrays of 64-bit integers.

Sets of tests, blocks and registers are bits of one number. -1 stands for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import numpy as np

#: A whole number of which numba does not compile a version of its own, as it does of a literal.
int64: Final = cast("Callable[[int], int]", np.int64)

# Edges: the tests of the history in asks[ASK:DENY] must hold, those in asks[DENY:ASK_END] must not.
NEED, FORBID, TAKE, TARGET, COMPLETES, BEFORE, ASK, DENY, ASK_END, EDGE_WIDTH = range(10)

# Asks: a test of the history, and its bit in the masks of events.
TEST, BIT, ASK_WIDTH = range(3)

# States: their edges are edges[FIRST_EDGE:EDGE_END]. The last state is the start. A run that is
# pending matches when its time is up; where PENDING is 2, it also is late. READ are the registers
# whose content is still read; -1 for all.
FIRST_EDGE, EDGE_END, PENDING, PATIENCE, READ, STATE_WIDTH = range(6)

# Steps of programs.
OPERATION, IS_REAL, ARGUMENT, STEP_WIDTH = range(4)

# Runs. The registers follow; those that are not whole hold the bits of a float.
STATE, NODE, LENGTH, START, STARTED_AT, LAST_AT, NULLS, NEXT, KEY, REGISTERS = range(10)

# Matches, held or found.
M_KEY, M_NODE, M_LENGTH, M_START, M_AT, M_ENDED, M_LATE, M_STARTED_AT, MATCH_WIDTH = range(9)

# Nodes: a history is a chain of them, whose beginning forks share.
EVENT, BLOCK, BEFORE_NODE, NODE_WIDTH = range(4)

# Leaves: the first node of a run, its start, the leaf above it in its group, and the next one of
# its group. Of the leaf that stands for a group: the last one of the group, the node that ends the
# histories of all, and their state. With a skip, which needs no lists, L_AT and L_ENDED are in their
# place: when the matches of a group were complete, and by which event.
L_NODE, L_START, L_STARTED_AT, L_ABOVE, L_NEXT, L_LAST, L_END, L_STATE, LEAF_WIDTH = range(9)
L_AT, L_ENDED = L_NEXT, L_LAST

# Registers. Beside a register is where an average keeps its count, where a first notes that there
# has been one, or the register that a last which lies back takes over from.
FUNCTION, VALUE, BLOCKS, REAL, BESIDE, REGISTER_WIDTH = range(6)

# Functions of registers; R_BACK + n is a last that lies n back.
R_FIRST, R_LAST, R_COUNT, R_SUM, R_MIN, R_MAX, R_ANY, R_AVG, R_BACK = range(9)

# Settings: SKIP is one of the ways to skip, LAZY says that nothing needs the exact set of live
# runs, EMPTY_REGISTERS are those that hold nothing when a run begins, DEEPEST is how far back a
# register lies at most, and ROOM is how many runs, nodes and matches a run may become by an event.
WITHIN, SKIP, SKIP_BLOCKS, SINGLETON, LAZY, LATE_WANTED, RUN_WIDTH = range(7)
EMPTY_REGISTERS, DEEPEST, ROOM, SETTINGS = range(7, 11)
NO_SKIP, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = range(5)

# Counters: how many rows of a table are in use, how many more are wanted, and how far matching is:
# the key, whether its runs are in, the event, and whether it is moving them.
C_NODES, C_FOUND, C_HELD, C_RUNS_LEFT, C_HELD_LEFT, C_WANTED = range(6)
C_KEY, C_ENTERED, C_EVENT, C_MOVING = range(6, 10)
# Forking: rows of the pool that have been in use, the first that is free again (they form a list),
# the runs of this key, when the time of one of them is up next, and what there was before an event.
C_POOL, C_FREE, C_LIVE, C_SOONEST, C_FOUND_BEFORE, C_HELD_BEFORE = range(10, 16)
# Preferring: where the runs of this key begin (those before are dropped) and end, where its held
# matches begin; the next run that an event moves, where they end, the start of which the rest is
# not wanted, since it has a match; and whether the two tables have changed roles.
C_FIRST, C_RUNS, C_FIRST_HELD, C_PLACE, C_PLACE_END, C_DECIDED, C_TURN = range(16, 23)
# Sharing: the leaves of this key, the first whose time is not up, and the one whose match is noted
# next; C_PLACE is the state whose group is completed next.
C_LEAVES, C_LEAF, C_MEMBER = range(23, 26)
# Sharing with a skip: the first leaf that was not looked at for being late.
C_LATE: Final = 26
COUNTERS: Final = 27

#: A moment, and the number of an event, that never comes.
NEVER: Final = int64(2**62)
#: A watermark behind which nothing comes, as in automaton.py.
FOREVER: Final = int64(200_000_000_000_000_000)
