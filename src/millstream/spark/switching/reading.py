"""How far the queries of a version that leaves have read, and how far they still have to."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.journal import PartitionReader, align, journal_at
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.source import Offset, padded
from millstream.spark.run.query import GroupQuery


def views(query: GroupQuery, journal: str) -> list[PartitionReader]:
    """Return the partitions of a journal that a query reads."""
    reader = journal_at(query.sink.inputs[journal].path).cached_reader()
    return [reader.partition(number) for number in range(reader.description.partitions)]


def positions(query: GroupQuery, offset: Offset) -> Iterator[tuple[PartitionReader, int]]:
    """Yield the partitions of the journal that an offset is of, and how far each is read."""
    found = views(query, offset.journal)
    yield from zip(found, padded(offset.positions, len(found)), strict=True)


def ahead(query: GroupQuery, logged: Logged, until_us: int) -> float:
    """Return how many microseconds of events a query has yet to read before a moment.

    Not more than 0: nothing. What is infinite: nobody knows.
    """
    most = 0.0
    for name, offset in logged.offsets.items():
        # A row may come that is not late for one of two versions.
        late = max([query.sink.inputs[name].lateness, *(one for _, one in offset.lateness or ())])
        goal = min(until_us + late, align.FOREVER_US)
        for view, at in positions(query, offset):
            got = _got(view, at, late, grouped=query.sink.inputs[name].grouped)
            most = max(most, float("inf") if got is None else goal - got)
    return most


def _got(view: PartitionReader, at: int, late: int, *, grouped: bool) -> int | None:
    """Return how far a partition has got at a position.

    In what a group writes only its floor tells.
    """
    state = view.state_at(at)
    if not grouped:
        return align.progress(state, late)
    return align.FOREVER_US if state.ended else state.floor
