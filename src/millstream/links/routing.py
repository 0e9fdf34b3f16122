"""Which rows go to which outbox: pure rules.

A batch is split with whole-column operations, never row by row. What is returned first is always a
count from the front: the index of the first row that found no room. Rows after it stay with the
caller, also those for which there would have been room, so that the order per key and the count say
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.signedinteger]
Indices = npt.NDArray[np.intp]


class Policy(StrEnum):
    """How an outbox is chosen."""

    KEY = "key"
    IN_TURN = "in turn"
    LEAST_LOADED = "least loaded"
    LOCAL = "local"


def split(places: Places, rooms: Sequence[int]) -> tuple[int, list[tuple[int, Indices]]]:
    """Return how many rows can go on from the front, and the rows of each outbox that gets some of them.

    Args:
        places: The outbox of each row.
        rooms: How many rows each outbox can still take.

    Example:
        >>> count, parts = split(np.array([0, 1, 0, 0, 1]), rooms=[2, 9])
        >>> count, [(outbox, rows.tolist()) for outbox, rows in parts]
        (3, [(0, [0, 2]), (1, [1])])
    """
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(len(rooms) + 1))
    rows = [order[bounds[n] : bounds[n + 1]] for n in range(len(rooms))]
    blocked = [
        int(mine[max(0, room)])
        for mine, room in zip(rows, rooms, strict=True)
        if len(mine) > max(0, room)
    ]
    count = min(blocked, default=len(places))
    kept = [(n, mine[: np.searchsorted(mine, count)]) for n, mine in enumerate(rows)]
    return count, [(n, mine) for n, mine in kept if len(mine)]


def in_turn(numbers: npt.NDArray[np.int64], outboxes: int) -> Places:
    """Return the outbox of each row by its number, so that rows that are sent again go where they went before."""
    return numbers % outboxes


def least_loaded(rooms: Sequence[int]) -> int:
    """Return the outbox with the most room, the first of several."""
    return max(range(len(rooms)), key=lambda n: (rooms[n], -n))
