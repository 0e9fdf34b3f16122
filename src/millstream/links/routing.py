"""Which rows go to which outbox: pure rules.

Rows are admitted from the front: the first row without room holds back all rows after it, also
those for which there is room. So a count tells which rows have gone, and keys keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from millstream.journal.partitioning import Places, grouped


class Policy(StrEnum):
    """How an outbox is chosen."""

    KEY = "key"
    IN_TURN = "in turn"
    LEAST_LOADED = "least loaded"
    LOCAL = "local"


def admitted(places: Places, rooms: Sequence[int]) -> int:
    """Return how many rows can go on from the front.

    Args:
        places: The outbox of each row.
        rooms: How many rows each outbox can still take.

    Example:
        >>> admitted(np.array([0, 1, 0, 0, 1]), rooms=[2, 9])
        3
    """
    blocked = [
        int(rows[max(0, rooms[outbox])])
        for outbox, rows in grouped(places)
        if len(rows) > max(0, rooms[outbox])
    ]
    return min(blocked, default=len(places))


def in_turn(numbers: npt.NDArray[np.int64], outboxes: int) -> Places:
    """Return the outbox of each row by its number: rows that are sent again go there again."""
    return numbers % outboxes


def least_loaded(rooms: Sequence[int]) -> int:
    """Return the outbox with the most room, the first of several."""
    return max(range(len(rooms)), key=lambda n: (rooms[n], -n))
