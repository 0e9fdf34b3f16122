"""Which partition a row goes to: a function of the row and its place, so that a restart sends it there again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from millstream.ingest.rows import Rows
from millstream.journal import hashing


def route(rows: Rows, key: str | None, partitions: int) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each partition that has any: by key, else in turn."""
    if not len(rows):
        return
    if partitions == 1:
        yield 0, rows
        return
    places = _places(rows, key, partitions)
    for partition in np.unique(places):
        yield int(partition), rows.filter(places == partition)


def _places(rows: Rows, key: str | None, partitions: int) -> npt.NDArray[np.signedinteger]:
    if key is None:
        return rows.numbers % partitions
    return hashing.places(rows.batch.column(key), partitions)


def first_sequence(rows: Rows) -> int:
    """Return the number to append these rows from, so that the last of them has the number of its place.

    A partition gets some of an origin's rows, so the places of its rows have gaps, while an append counts by one.
    What must hold is that the highest number a partition knows of a sender is the place of that sender's last row
    there: everything up to it has been dealt with, and is not sent again.
    """
    return int(rows.numbers[-1]) - len(rows) + 1
