"""One group as a running Spark query."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from millstream.clock import MICROSECOND
from millstream.flow.flow import Flow
from millstream.flow.stages import EntryPoint, Written
from millstream.journal import journal_at
from millstream.journal.align import FOREVER_US
from millstream.plan.groups import Group, journal_read
from millstream.spark.batch_clock import Spending
from millstream.spark.io.checkpoint import Checkpoint, Logged
from millstream.spark.io.control import Control
from millstream.spark.io.moved import settle_in
from millstream.spark.io.sink import GroupSink, Input
from millstream.spark.io.source import PLACE, padded, watermark_ms
from millstream.spark.run.entry_rows import EntryReader, lag
from millstream.spark.run.failure import failed_on_a_row
from millstream.spark.run.stores import check_seen, store_settings
from millstream.spark.session.ending import ending
from millstream.spark.session.session import (
    cores,
)
from millstream.spark.stages.analyse import Analysis
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind, kind_of
from millstream.spark.task_time import ProgramSeen, TaskReports

if TYPE_CHECKING:
    from millstream.spark.run.shared_query import SharedQuery

MOST_RESTARTS: Final = 3
#: How long a stop waits for a target that does not answer.
STOP_S: Final = 30.0
#: For how long a program is known that is not asked for anything: Spark ends idle workers sooner.
FORGOTTEN_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """The numbers of a group that people watch."""

    name: str
    batch: int
    rows_in: int
    rows_out: int
    batch_seconds: float
    watermark_ms: int | None
    lag_rows: int
    lag_seconds: float
    state_rows: int
    finished: bool
    #: Seconds since it was started, by cause.
    spent: dict[str, float] = field(default_factory=dict)
    #: What Spark's state stores hold in memory.
    state_bytes: int = 0
    #: Programs of its stages that were at work in the last minutes.
    programs: tuple[ProgramSeen, ...] = ()


@dataclass
class GroupQuery:
    """A group, its checkpoint and, once started, its Spark query."""

    spark: SparkSession
    flow: Flow
    group: Group
    analysis: Analysis
    checkpoint: Checkpoint
    sink: GroupSink
    root: Path
    #: The journal that it writes, if it writes one.
    written: Path | None
    limit: int
    state: str | None = None
    #: Programs that an engine keeps, by the names that the flow has for them.
    binaries: Mapping[str, Path] = field(default_factory=dict)
    #: Another version of it runs, or will: what it writes does not end with it.
    paired: bool = False
    #: Where the dead letters of a version in a shadow go, instead of to its journals.
    letters: Path | None = None
    query: StreamingQuery | None = None
    #: Whose query it is, if groups share one.
    shared: SharedQuery | None = None
    finished: bool = False
    rows_in: int = 0
    restarts: int = 0
    #: Whether it looks for rows on which expressions fail: a batch has failed at one.
    careful: bool = False
    _seen: str = ""
    _batch_seconds: float = 0.0
    _state_rows: int = 0
    _state_bytes: int = 0
    _spending: Spending = field(default_factory=Spending)

    def start(self) -> None:
        """Start the query where its checkpoint left off, unless the group has ended."""
        if not self.ready():
            return
        settle_in(self.checkpoint)
        if self.sink.clock.tasks is None:
            self.sink.clock.tasks = TaskReports.begin(self.spark, cores(self.spark))
        frame = self._results()
        # Spark copies these from the session when a query starts; a restart takes those of the
        # checkpoint.
        stages = [self.flow.stages[name] for name in self.group.stages]
        master = self.spark.sparkContext.master or ""
        for key, value in store_settings(self.checkpoint, stages, self.state, master).items():
            self.spark.conf.set(key, value)
        writer = (
            frame.writeStream.foreachBatch(self.sink).outputMode("append").queryName(self._name)
        )
        # What two expressions have in common would be computed outside of what catches its errors.
        self.spark.conf.set("spark.sql.subexpressionElimination.enabled", not self.careful)
        self.query = writer.option("checkpointLocation", self.checkpoint.spark_location).start()

    def _results(self) -> DataFrame:
        """Return what the group makes, packed if nobody but its sink's tasks looks at it."""
        builder, output = self.builder(), self.group.output
        frame = builder.packed_results(output) if self.sink.takes_packed else None
        self.sink.packed = None
        if frame is None:
            return builder.results(output)
        fields = self.analysis.schemas[output].fields
        self.sink.packed = StructType([one for one in fields if one.name != PLACE])
        return frame

    def ready(self) -> bool:
        """Finish what was decided; return whether the group has not ended."""
        if self.group.stateful:
            check_seen(self.spark, self.checkpoint)
        self.sink.recover()
        if not self.paired and (self.ended() or self._journal_ended()):
            self.finish()
        return not self.finished

    def builder(
        self, known: Mapping[str, DataFrame] | None = None, tasks: TaskReports | None = None
    ) -> Builder:
        """Return what makes the frames of its stages, except those that are known."""
        entries = self.entries
        whole = self.spark, self.flow, entries.rows, self.root, self._letters, self.binaries
        return Builder(
            *whole,
            state=self.checkpoint.state_storage,
            careful=self.careful,
            tasks=tasks or self.sink.clock.tasks,
            known=known,
            packed=entries.packed,
            picked=entries.picked,
            summed=entries.summed if self.checkpoint.sums else None,
            schemas=self.analysis.schemas,
        )

    def wait_for_sources(self, timeout: float = 60.0) -> None:
        """Wait until the query has its sources, has failed, or `timeout` seconds are over."""
        deadline = time.monotonic() + timeout
        while self.query is not None and self.query.isActive and time.monotonic() < deadline:
            if self.query.status["message"] != "Initializing sources":
                return
            time.sleep(0.02)

    def restart_after(self, failure: str) -> bool:
        """Start the query once more if that may help; the checkpoint makes it harmless.

        It does if only a Python process of Spark's was too slow to come up, which happens on a busy
        machine, or if an expression has failed: now it looks for the rows. A query that groups share
        is followed by one for each, which tells whose batch fails.
        """
        if self.shared is not None:
            self.shared.dissolve()
            return True
        sifts = not self.careful and any(kind.sifts for kind in self._kinds)
        failed = sifts and failed_on_a_row(failure)
        slow = "failed to connect back" in failure
        if not (failed or slow) or self.restarts >= MOST_RESTARTS:
            return False
        self.careful |= failed
        self.restarts += 1
        self.sink.error = None
        self.start()
        self.wait_for_sources()
        return True

    def stop(self) -> None:
        """Stop between or inside a batch; what is not committed is run again at the next start."""
        if self.sink.turns is not None:
            self.sink.turns.end()  # a batch that waits for another version would let the query wait too
        for target in self.sink.targets:
            target.interrupt()  # a batch that waits for another host would let the query wait too
        self.sink.stop_soon()
        if self.shared is not None:
            self.shared.stop()
        elif self.query is not None:
            with ending(self.spark):
                self.query.stop()
        # What Python still publishes would write the same small files as we do now, and to targets
        # that are closed.
        self.sink.shut(STOP_S)
        committed = self.checkpoint.committed()
        if committed is not None:
            self.sink.mark_read(committed)
        self.sink.close()

    def caught_up(self) -> bool:
        """Tell whether everything that is in the journals has been read and committed."""
        committed = self.checkpoint.committed()
        return self.finished or (
            committed is not None
            and all(self._at_end(committed, name) for name in self.sink.inputs)
        )

    def ended(self) -> bool:
        """Tell whether the group has read all its inputs to their end and emitted everything."""
        if not self.inputs_ended(list(self.sink.inputs)):
            return False
        if not self.group.stateful or not self.group.timed:
            return True
        committed = self.checkpoint.committed()
        return committed is not None and committed.watermark_ms >= watermark_ms(
            FOREVER_US, self._slack_ms
        )

    def inputs_ended(self, names: Sequence[str]) -> bool:
        """Tell whether these inputs have ended and were read to their end."""
        committed = self.checkpoint.committed()
        return committed is not None and all(
            self._at_end(committed, name, ended=True) for name in names
        )

    def halt(self) -> None:
        """Stop the query of a group that has nothing left to do."""
        self.finished = True
        self.sink.stop_soon()
        if self.shared is not None:
            self.shared.halt()
        elif self.query is not None:
            self.query.stop()

    def finish(self) -> None:
        """Note the end, also in this group's journal: nothing more will come."""
        self.halt()
        for target in self.sink.targets:
            # An epoch after all others, under a sender of its own: the group's numbers are Spark's.
            target.end(f"{self.checkpoint.sender(self.flow.name)}/end", 0)

    def statistics(self, now_us: int) -> GroupStatistics:
        """Return the numbers as they are now."""
        if self.query is not None:
            self._count(self.query.recentProgress)
        committed = self.checkpoint.committed()
        rows, seconds = lag(self.sink.inputs, committed, self.control.orders(), now_us)
        return GroupStatistics(
            name=self.group.name,
            batch=committed.batch if committed else -1,
            rows_in=self.rows_in,
            rows_out=self.sink.rows_out,
            batch_seconds=self._batch_seconds,
            watermark_ms=committed.watermark_ms
            if committed and committed.watermark_ms > 0
            else None,
            lag_rows=rows,
            lag_seconds=seconds,
            state_rows=self._state_rows,
            finished=self.finished,
            spent=dict(self._spending.seconds),
            state_bytes=self._state_bytes,
            programs=self._programs(now_us / 1e6),
        )

    def _programs(self, now: float) -> tuple[ProgramSeen, ...]:
        tasks = self.sink.clock.tasks
        seen = () if tasks is None else tasks.programs.value.values()
        return tuple(one for one in seen if one.at > now - FORGOTTEN_S)

    def _count(self, recent: Sequence[Any]) -> None:
        # By the time of the trigger: one that found nothing has the id of the batch to come.
        new = [progress for progress in recent if progress["timestamp"] > self._seen]
        for progress in new:
            self._seen = progress["timestamp"]
            self.rows_in += sum(row["rows"] for row in progress["observedMetrics"].values())
            if "addBatch" in progress["durationMs"]:
                self._batch_seconds = progress["durationMs"]["triggerExecution"] / 1000
                self._state_rows = sum(op["numRowsTotal"] for op in progress["stateOperators"])
        self._spending.add(new, self.sink.clock, cores(self.spark))

    def _journal_ended(self) -> bool:
        """Tell whether this group's own journal has been ended: then nothing may follow."""
        if self.written is None:
            return False
        reader = journal_at(self.written).cached_reader()
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        return all(view.state_at(view.end).ended for view in views)

    def _at_end(self, committed: Logged, name: str, *, ended: bool = False) -> bool:
        reader = journal_at(self.sink.inputs[name].path).cached_reader()
        offset = committed.offsets.get(name)
        if offset is None:
            return False
        for number, position in enumerate(padded(offset.positions, reader.description.partitions)):
            view = reader.partition(number)
            if position < view.end or (ended and not view.state_at(position).ended):
                return False
        return True

    @property
    def _name(self) -> str:
        """The query's name: two versions of a group run side by side."""
        return self.checkpoint.folder.name

    @property
    def control(self) -> Control:
        """Where its sources find orders while versions are switched."""
        return Control(self.checkpoint.location)

    @property
    def _slack_ms(self) -> int:
        return max(kind.slack_ms for kind in self._kinds)

    @property
    def _kinds(self) -> list[SparkKind]:
        return [kind_of(self.flow.stages[name]) for name in self.group.stages]

    def _letters(self, name: str) -> Path:
        """Return the journal for the dead letters of the stages below entry point `name`."""
        return self.letters or Path(self.sink.inputs[journal_read(self.flow.stages[name])].path)

    @property
    def entries(self) -> EntryReader:
        """What reads its journals."""
        return EntryReader(self, self._slack_ms)


def inputs_of(flow: Flow, group: Group, where: Callable[[str], Path]) -> dict[str, Input]:
    """Describe the journals that a group reads."""
    inputs = {}
    for name in group.stages:
        stage = flow.stages[name]
        if not isinstance(stage, EntryPoint):
            continue
        journal, stream = stage.journal_name, flow.stream(name)
        grouped = not (isinstance(stage, Written) and stage.writer == "source")
        lateness = stream.lateness // MICROSECOND
        inputs[journal] = Input(journal, where(journal), stream.time, lateness, grouped)
    return inputs


def ship_modules(root: Path) -> None:
    """Let functions of the user's own files travel to executors whole: these cannot import them."""
    folder = root.resolve()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        package = name.partition(".")[0]
        if (
            file is None
            or package in ("__main__", "millstream")
            or package in sys.stdlib_module_names
        ):
            continue
        if name not in _shipped and _beside(Path(file), folder):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            _shipped.add(name)


_shipped: set[str] = set()


def _beside(file: Path, folder: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_relative_to(folder) and not installed
