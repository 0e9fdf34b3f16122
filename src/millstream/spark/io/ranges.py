"""What tasks read of a journal: ranges of its partitions.

A task costs Spark some milliseconds and a Python worker's time, however few rows it has. So a batch has
no more tasks than run at once: they share its rows equally, and a task may read parts of several partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from millstream.journal import Excerpt
from millstream.spark.io.late import Judge
from millstream.spark.served.place import ServedPlace

#: A partition is not worth cutting for fewer rows.
SMALLEST_TASK: Final = 50_000


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of one partition."""

    partition: int
    start: int
    stop: int
    #: What a task needs to read it without asking, where that is possible.
    excerpt: Excerpt | None = None


@dataclass
class TaskRanges(InputPartition):
    """What one task reads; `marker` is a watermark to hand out after it."""

    ranges: tuple[Range, ...]
    marker: int | None = None
    judge: Judge | None = None
    #: Who reads for the task, if that does not see the journal.
    served: ServedPlace | None = None
    #: Rows before the one moment, and from the other on, are left out.
    span: tuple[int | None, int | None] = (None, None)


def split(start: Sequence[int], stop: Sequence[int], tasks: int) -> list[tuple[Range, ...]]:
    """Return what each task of a batch reads, where `tasks` run at once.

    Partitions are read side by side. One that has rows for more tasks is cut.
    """
    sizes = [z - a for a, z in zip(start, stop, strict=True)]
    total, filled = sum(sizes), sum(size > 0 for size in sizes)
    count = min(max(1, tasks), max(filled, round(total / SMALLEST_TASK)))
    # All rows of the batch in a line, partition after partition, and where tasks cut it.
    begins = list(accumulate(sizes, initial=0))
    edges = [total * task // count for task in range(count + 1)] if total else []

    def between(low: int, high: int) -> Iterator[Range]:
        for partition, (begin, end) in enumerate(pairwise(begins)):
            if max(low, begin) < min(high, end):
                first = start[partition] - begin
                yield Range(partition, first + max(low, begin), first + min(high, end))

    return [tuple(between(*cut)) for cut in pairwise(edges)]
