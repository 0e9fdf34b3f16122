"""Which sources lose rows because their lateness is too short.

The default lateness is 0: events that arrive out of order are dropped, and kept as dead letters.
Someone who has not set it should find out where they look anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from millstream.flow import durations
from millstream.flow.stages import Source
from millstream.journal import journal_at
from millstream.spark.run.version import FlowVersion


def dead_letters(journals: Iterable[Path]) -> tuple[dict[Path, int], int]:
    """Return the late rows of each journal, and how many other dead letters there are."""
    counts = {path: journal_at(path).dead_counts() for path in journals}
    late = {path: reasons.pop("late", 0) for path, reasons in counts.items()}
    return late, sum(sum(reasons.values()) for reasons in counts.values())


def waiting_letters(journals: Iterable[Path]) -> int:
    """Return how many dead letters are neither replayed nor discarded, late rows too."""
    return sum(sum(journal_at(path).dead_waiting().values()) for path in journals)


def late_notices(version: FlowVersion, late: Mapping[Path, int]) -> Iterator[str]:
    """Return a sentence for each source of a version that has lost rows, by its journal's count."""
    for source in version.flow.stages.values():
        if isinstance(source, Source) and late.get(path := version.journal(source.name)):
            reader = journal_at(path).cached_reader()
            parts = [reader.partition(n) for n in range(reader.description.partitions)]
            # With those that were removed; instructions have positions too.
            rows = sum(one.begin + one.rows(one.begin, one.end) for one in parts)
            found = late_notice(source.name, late[path], rows, source.lateness)
            if found is not None:
                yield found


def late_notice(source: str, late: int, rows: int, lateness: timedelta) -> str | None:
    """Say how many rows were late, if none was allowed to be, or if it was one in a hundred."""
    if not late or (lateness and late * 100 < rows):
        return None
    return (
        f"{late:,} of {rows:,} rows were late; "
        f'the lateness of source "{source}" is {durations.format(lateness) if lateness else 0}'
    )
