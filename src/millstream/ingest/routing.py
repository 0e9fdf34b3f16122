"""Which partition a row goes to: a function of the row and its place, the same after a restart.

In a journal that has grown, rows up to a place that the journal has noted keep their partitions
(`journal/kinds/files/growth.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.ingest.rows import Rows
from millstream.journal.base import EarlierPartitions
from millstream.journal.partitioning import Places, places, split


def route(rows: Rows, key: str | None, partitions: int) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each partition that has any: by key, else in turn."""
    if not len(rows):
        return
    if partitions == 1:
        yield 0, rows
        return
    for partition, indices, batch in split(rows.batch, _places(rows, key, partitions)):
        yield partition, Rows(batch, rows.numbers[indices])


def laid_out(
    rows: Rows, sender: str, earlier: Sequence[EarlierPartitions], partitions: int
) -> Iterator[tuple[Rows, int]]:
    """Yield the rows of a sender with the number of partitions that they are spread over."""
    for layout in earlier:
        until = layout.until.get(sender, -1)
        yield rows.up_to(until), layout.partitions
        rows = rows.above(until)
    yield rows, partitions


def dealt_with(partition: int, sender: str, earlier: Sequence[EarlierPartitions]) -> int:
    """Return the place up to which a partition was not there for the rows of a sender, or -1."""
    return max(
        (layout.until.get(sender, -1) for layout in earlier if layout.partitions <= partition),
        default=-1,
    )


def _places(rows: Rows, key: str | None, partitions: int) -> Places:
    if key is None:
        return rows.numbers % partitions
    return places(rows.batch.column(key), partitions)


def first_sequence(rows: Rows) -> int:
    """Return the number to append these rows from, so that the last one gets that of its place.

    A partition gets some of an origin's rows, so the places of its rows have gaps, while an append
    counts by one. What must hold is that the highest number a partition knows of a sender is the
    place of that sender's last row there: everything up to it has been dealt with, and is not sent
    again.
    """
    return int(rows.numbers[-1]) - len(rows) + 1
