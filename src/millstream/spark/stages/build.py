"""From the stages of a group to one Spark DataFrame: each kind's module builds its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millstream.errors import InternalError
from millstream.flow.flow import Flow
from millstream.flow.stages import EntryPoint, Stage
from millstream.plan.groups import entry_above
from millstream.spark.io.row_tests import Always, Test
from millstream.spark.io.shard_rows import Shards
from millstream.spark.io.summed_rows import Sums
from millstream.spark.served.borrowed import Letters, letters_for
from millstream.spark.stages.columns import marked, unmarked
from millstream.spark.stages.kind import kind_of
from millstream.spark.stages.marked_rows import added, unpacked
from millstream.spark.stages.refused import Sieve, sifted
from millstream.spark.stages.sql_tests import Chosen
from millstream.spark.task_time import TaskReports, Worked
from millstream.state import StateFiles
from millstream.state.files import retained
from millstream.state.importing import imported
from millstream.storage import Storage

#: Gives the raw rows of an entry point (a source, or a journal of this flow), markers included.
Entry = Callable[[str], DataFrame]


class Sifted(NamedTuple):
    """A stream that has rows of an entry point, or columns of them, as they are."""

    entry: str
    #: The entry point, and the stages below it that only leave rows and columns out.
    stages: tuple[str, ...]
    #: What the rows must meet.
    tests: tuple[Test, ...] = ()
    #: Where each column comes from: see `Chosen`.
    columns: Mapping[str, tuple[str, ...]] | None = None

    @property
    def whole(self) -> Sifted | None:
        """The same if its rows have all columns as they are, else None."""
        return self if self.columns is None else None

    def below(self, stage: str, chosen: Chosen) -> Sifted | None:
        """Return what a stage makes of it; None if it tests columns that have other names above."""
        columns = chosen.columns
        if self.columns is not None:
            if chosen.test != Always(True):
                return None
            found = {name: (name,) for name in self.columns} if columns is None else columns
            columns = {
                name: (*self.columns[first], *rest)
                for name, (first, *rest) in found.items()
                if first in self.columns
            }
        tests = self.tests if chosen.test == Always(True) else (*self.tests, chosen.test)
        return Sifted(self.entry, (*self.stages, stage), tests, columns)


#: Gives them packed for the shards of a stage, by its key and their number; None if that cannot be.
PackedEntry = Callable[[Sifted, tuple[str, ...], int], DataFrame | None]
#: The same for what a pattern picks of them.
PickedEntry = Callable[[Sifted, Shards], DataFrame | None]
#: Gives sums of rows, with these columns; None if that cannot be.
SummedEntry = Callable[[Sifted, Sums, StructType], DataFrame | None]


class Builder:
    """Builds the DataFrame of every stage that a group needs, each once.

    Args:
        spark: The session.
        flow: The flow.
        entry: What hands out rows.
        root: The flow's folder.
        letters: Returns the journal whose dead letters take what fails below an entry point.
        binaries: Programs that an engine keeps, by name.
        state: Where the checkpoint is, for files with the state of stages; None keeps no files.
        careful: Whether to look for rows on which expressions fail, and keep them from stages.
        tasks: What tasks report to.
        known: Stages that are built already.
        packed: What hands out rows packed for the shards of a stage.
        picked: What hands out what a pattern needs of rows, packed for its shards.
        summed: What hands out sums of rows; None if windows take rows.
        schemas: The columns of stages, as far as they are known.
    """

    def __init__(
        self,
        spark: SparkSession,
        flow: Flow,
        entry: Entry,
        root: Path,
        letters: Callable[[str], Path | None] = lambda _: None,
        binaries: Mapping[str, Path] | None = None,
        state: Storage | None = None,
        careful: bool = False,
        tasks: TaskReports | None = None,
        known: Mapping[str, DataFrame] | None = None,
        packed: PackedEntry = lambda *_: None,
        picked: PickedEntry = lambda *_: None,
        summed: SummedEntry | None = None,
        schemas: Mapping[str, StructType] | None = None,
    ) -> None:
        self._packed = packed
        self._picked = picked
        self._summed = summed
        self.tasks = tasks
        self.spark = spark
        self.flow = flow
        self.entry = entry
        self.root = root
        self.binaries = binaries or {}
        self._letters = letters
        self._state = state
        self._careful = careful
        self._frames = dict(known or {})
        self._schemas = schemas or {}

    @property
    def worked(self) -> Accumulator[Worked] | None:
        """What tasks report to how long they are at it."""
        return None if self.tasks is None else self.tasks.worked

    def frame(self, name: str) -> DataFrame:
        """Return the rows of stage `name`."""
        if name not in self._frames:
            stage = self.flow.stages[name]
            self._frames[name] = kind_of(stage).build(stage, self)
        return self._frames[name]

    def columns(self, name: str) -> StructType:
        """Return the columns of stage `name`; where they are known, its rows are not made for that."""
        return self._schemas[name] if name in self._schemas else self.frame(name).schema

    def results(self, name: str) -> DataFrame:
        """Return the rows of stage `name`, with which nothing more is done.

        Those of a pattern carry also the moment at which each match began.
        """
        stage = self.flow.stages[name]
        build = kind_of(stage).results
        return self.frame(name) if build is None else build(stage, self)

    def packed_results(self, name: str) -> DataFrame | None:
        """Return the results of stage `name` packed (`io/result_rows.py`); None if it cannot do that."""
        stage = self.flow.stages[name]
        build = kind_of(stage).packed
        return None if build is None else build(stage, self)

    def time(self, name: str) -> str:
        """Return the time column of a stream that has one."""
        time = self.flow.stream(name).time
        if time is None:
            raise InternalError(f'stage "{name}" needs a time column and has none')
        return time

    def messages(self, name: str, by: tuple[str, ...], shards: int) -> DataFrame | None:
        """Return the rows of a stream as messages to the shards of a stage that reads it.

        None if Spark must look at the rows on their way from an entry point.
        """
        origin = self._whole(name)
        found = None if origin is None else self._packed(origin, by, shards)
        return self._unpacked(origin, found)

    def picked(self, name: str, shards: Shards) -> DataFrame | None:
        """Return what a pattern needs of the rows of a stream as messages to its shards.

        None if Spark must look at the rows on their way from an entry point.
        """
        origin = self._whole(name)
        found = None if origin is None else self._picked(origin, shards)
        return self._unpacked(origin, found)

    @property
    def sums(self) -> bool:
        """Whether windows take sums of rows, if these are enough for them."""
        return self._summed is not None

    def summed(self, name: str, sums: Sums, columns: StructType) -> DataFrame | None:
        """Return sums of the rows of a stream; None if Spark must look at the rows."""
        origin = self._origin(name)
        if origin is None or self._summed is None:
            return None
        found = self._summed(origin, sums, columns)
        return None if found is None else added(found, origin.entry, sums.time)

    def _whole(self, name: str) -> Sifted | None:
        """Return where the rows of a stream come from as they are; None if a stage makes others."""
        origin = self._origin(name)
        return None if origin is None else origin.whole

    def _origin(self, name: str) -> Sifted | None:
        """Return where the rows of a stream come from, with some columns; None if a stage makes others."""
        stage = self.flow.stages[name]
        if isinstance(stage, EntryPoint):
            return Sifted(name, (name,))
        chooses, above = kind_of(stage).chooses, stage.inputs[0]
        chosen = None if chooses is None else chooses(stage, self.columns(above))
        origin = None if chosen is None else self._origin(above)
        return None if chosen is None or origin is None else origin.below(name, chosen)

    def _unpacked(self, origin: Sifted | None, found: DataFrame | None) -> DataFrame | None:
        if origin is None or found is None:
            return None
        return unpacked(found, origin.entry, self.time(origin.entry))

    def prompt(self, name: str) -> bool:
        """Tell whether a stream's rows come in the batch in which sources hand them out.

        A stage that keeps state may hold them back.
        """
        stage = self.flow.stages[name]
        if isinstance(stage, EntryPoint):
            return True
        return not stage.state and all(map(self.prompt, stage.inputs))

    def one_time(self, frame: Any, name: str) -> DataFrame:
        """Let only the stream's own time column carry the watermark, not copies that users make."""
        if not isinstance(frame, DataFrame):
            return cast("DataFrame", frame)  # the analysis refuses it
        time = self.flow.stream(name).time
        copies = {column for column in marked(frame) if column != time}
        if not copies:
            return frame
        return frame.select(
            *(unmarked(c).alias(c) if c in copies else F.col(f"`{c}`") for c in frame.columns)
        )

    def letters(self, stage: Stage) -> Letters | None:
        """Return the journal whose dead letters take the rows that a stage fails at."""
        path = self._letters(entry_above(self.flow, stage.inputs[0]).name)
        return None if path is None else letters_for(self.spark, str(path))

    def sifted(
        self, stage: Stage, frame: DataFrame, expressions: Sequence[str], origin: str, reason: str
    ) -> DataFrame:
        """Return the rows on which no expression fails; if it is careful, others are dead letters.

        Args:
            stage: The stage that computes them.
            frame: Its input.
            expressions: What it computes for every row, in SQL.
            origin: The origin of the letters.
            reason: Their reason.
        """
        letters = self.letters(stage) if self._careful and expressions else None
        if letters is None:
            return frame
        return sifted(frame, expressions, Sieve(origin, reason, letters))

    def state_files(self, stage: Stage) -> StateFiles | None:
        """Return where a stage keeps what is too large for Spark's own state."""
        if self._state is None:
            return None
        batches = int(self.spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 0)
        found = imported(self._state, stage.name)
        token = "" if found is None else found.token
        return StateFiles(self._state, stage.name, retained(batches), imported=token)
