"""What tasks write, on their own disk or on the driver's: the same rows, the same answers.

`collected` is for the end of a group, `put_letters` for stages in the middle of one. Both run in
executors, so this imports little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from millstream.journal import DeadLetter, journal_at
from millstream.spark.batch_clock import current
from millstream.spark.daemon import settle
from millstream.spark.served.place import ServedPlace
from millstream.spark.served.serving import serving
from millstream.spark.task_time import STAGING, Timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


class TaskWork(Protocol):
    """What a task does with its rows: called by Spark, or by the driver's service."""

    #: The columns of what it answers.
    ANSWER: ClassVar[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...
    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do it in this process."""
        ...


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Send the rows of a task to where its work is done."""

    place: ServedPlace
    work: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millstream.spark.served.client import run_at

        settle()
        return run_at(self.place, self.work, batches)


def collected(frame: DataFrame, work: TaskWork) -> list[Row]:
    """Let tasks work on the rows of a frame, and return what they answer."""
    with ExitStack() as stack:
        found = serving(frame.sparkSession)
        task: Any = work
        if found is not None:
            task = Borrowed(found.place, stack.enter_context(found.service.offered(work)))
        clock = current()
        if clock is not None and clock.tasks is not None:
            task = Timed(task, STAGING, clock.tasks.worked)
        return frame.mapInArrow(task, _parsed(work.ANSWER)).collect()


@cache
def _parsed(ddl: str) -> StructType:
    """Return columns as Spark has them: it is asked once, and not for each batch."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl)  # type: ignore[return-value]


# dead letters


@dataclass(frozen=True, slots=True)
class PutLetters:
    """Put dead letters into a journal."""

    journal: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with journal_at(self.journal).dead_letters() as dead:
            for batch in batches:
                dead.put_all(DeadLetter(**row) for row in batch.to_pylist())
        return iter(())


@dataclass(frozen=True, slots=True)
class ServedLetters:
    """A journal's dead letters, where the driver puts them."""

    place: ServedPlace
    work: str


#: Where a task puts dead letters: the path of a journal, or the driver's service.
Letters = str | ServedLetters


def letters_for(spark: SparkSession, journal: str) -> Letters:
    """Return where tasks put the dead letters of a journal."""
    found = serving(spark)
    if found is None:
        return journal
    return ServedLetters(found.place, found.service.offer(PutLetters(journal)))


def put_letters(where: Letters, letters: Iterable[DeadLetter]) -> None:
    """Put dead letters, durably; those that are there already are not added again."""
    if isinstance(where, str):
        with journal_at(where).dead_letters() as dead:
            dead.put_all(letters)
        return
    from millstream.spark.served.client import run_at

    rows = [asdict(one) for one in letters]
    if rows:
        for _ in run_at(where.place, where.work, [pa.RecordBatch.from_pylist(rows, _LETTER)]):
            """It answers nothing."""


_LETTER = pa.schema(
    [
        ("origin", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("record", pa.string()),
        ("partition", pa.int64()),
    ]
)
