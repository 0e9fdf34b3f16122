"""The end of a group: one call per micro-batch that publishes its epoch, once.

The order of writes is Spark's and ours together: Spark logs the offsets, tasks
stage output and write state, the decision record makes the epoch exist, it is
published, Spark commits the batch. State counts only once the commit names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from millstream.errors import InternalError, TakenOver
from millstream.joblog import JobLog
from millstream.journal import DeadLetter, JournalReader, journal_at
from millstream.journal.plain import records
from millstream.spark.failpoints import passing
from millstream.spark.io.batch_floor import announce
from millstream.spark.io.batch_sink import BatchSink
from millstream.spark.io.checkpoint import Checkpoint, Logged
from millstream.spark.io.late import Judge
from millstream.spark.io.owned import owned
from millstream.spark.io.result_rows import opened_frame
from millstream.spark.io.sink_order import SinkOrder
from millstream.spark.io.source import PLACE, Offset, judge_of, watermark_ms
from millstream.spark.io.targets import Epoch, Target, decided_offsets
from millstream.switch.cut import WHOLE, Part, newest
from millstream.switch.starts import HIDDEN_START

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millstream.spark.io.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Input:
    """A journal that a group reads."""

    name: str
    path: Path
    time: str | None
    lateness: int
    grouped: bool


@dataclass
class GroupSink(BatchSink):
    """Publishes the epochs of one group; Spark calls it with every micro-batch."""

    job: str
    checkpoint: Checkpoint
    targets: Sequence[Target]
    inputs: Mapping[str, Input]
    stateful: bool
    behind: timedelta
    #: By which column results start, by which they are owned at cuts that name none, and their key.
    start: str | None = None
    start_before: str | None = None
    key: str | None = None
    #: The order in which it and another version publish, while there is one.
    turns: SinkOrder | None = None
    #: Takes down what is published, while a version runs in the shadow of another.
    recorder: Recorder | None = None
    #: It is of a version in the shadow: what is late is the other's to tell.
    shadow: bool = False
    #: The job's log, if it has one: it decides which epochs exist.
    log: JobLog | None = None
    #: The columns of its results, if they come packed.
    packed: StructType | None = None
    rows_out: int = 0
    _readers: dict[str, JournalReader] = field(default_factory=dict)
    #: The last batch that was logged before this start, and its offsets.
    _again: tuple[int, str | None] | None = None

    @property
    def title(self) -> str:
        return f'group "{self.checkpoint.group}"'

    @property
    def takes_packed(self) -> bool:
        """Whether nobody has to look at its results before tasks stage them, as a rule."""
        return bool(self.targets) and all(target.takes_packed for target in self.targets)

    def close(self) -> None:
        """Let go of all that holds files open: Java may keep a sink long after its query."""
        for target in self.targets:
            target.close()
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None
        self._readers.clear()

    def recover(self) -> None:
        """Finish what was decided before the last stop."""
        if self.log is not None:
            self._take_over(self.log)
        for target in self.targets:
            target.recover()

    def _take_over(self, log: JobLog) -> None:
        """Let Spark go on with what is decided, and note what it will run again."""
        decided = decided_offsets(log.state, self.checkpoint.sender(self.job))
        for batch, offsets in decided.items():
            self.checkpoint.restore(batch, offsets)
        last = self.checkpoint.last("offsets")
        self._again = None if last is None else (last, self.checkpoint.offsets(last))

    def _check_planned(self, log: JobLog, logged: Logged, text: str) -> None:
        """Refuse offsets that another driver has written over those which this batch ran with."""
        known = self._again
        if known is not None and logged.batch <= known[0]:
            ours = logged.batch < known[0] or text == known[1]
        else:
            chosen = {offset.generation for offset in logged.offsets.values()}
            ours = chosen == {log.generation}
        if not ours:
            msg = f'another driver has written the offsets of batch {logged.batch} of group "{self.checkpoint.group}"'
            raise TakenOver(msg, hint="start this one again: it goes on with what is decided")

    def publish(self, frame: DataFrame, batch: int) -> None:
        passing("logged")
        logged = self.checkpoint.logged(batch)
        if logged is None:
            raise InternalError(
                f'Spark runs batch {batch} of group "{self.checkpoint.group}" without having logged it'
            )
        before = self.checkpoint.logged(batch - 1) if batch else None
        epoch = Epoch(
            self.job, self.checkpoint.group, self.checkpoint.id, batch, self.floor(logged)
        )
        if self.log is not None:
            text = self.checkpoint.offsets(batch) or ""
            self._check_planned(self.log, logged, text)
            epoch = replace(epoch, log=self.log, offsets=text)
        if before is not None:
            self.mark_read(before)
        if self.turns is not None:
            self.turns.wait(self.checkpoint.id, self.reached(logged))
            self.clock.passed("turn")
        if self.stateful:
            announce(frame.sparkSession.sparkContext, _watermark_behind(logged))
        recorder, parts = self.recorder, _parts(logged)
        lowest = None if before is None else self.floor(before)
        if self.packed is not None and recorder is None and all_owned(parts, lowest):
            parts = None
        elif self.packed is not None:
            frame = opened_frame(frame, self.packed)
        frame = self._owned(frame, parts, logged)
        several = len(self.targets) + (recorder is not None) > 1
        if several:
            frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = frame.drop(HIDDEN_START, PLACE)
            written = [self._written(target, rows, epoch) for target in self.targets]
            self.clock.passed("written")
            if recorder is not None:
                self._take_down(frame, epoch, recorder)
            epoch.settle()
        finally:
            if several:
                frame.unpersist()
        self.rows_out += max(written, default=0)
        if not self.shadow:
            self.record_late(before, logged)
        passing("before-commit")

    def _written(self, target: Target, rows: DataFrame, epoch: Epoch) -> int:
        if not target.decides:
            epoch.decide("admitted", "")
        return target.write(rows, epoch)

    def _owned(self, frame: DataFrame, parts: Sequence[Part] | None, logged: Logged) -> DataFrame:
        """Leave out what another version owns, by what was logged for the batch."""
        if parts is None or self.start_before is None:
            return frame
        by = dict(one for offset in logged.offsets.values() for one in offset.owned_by or ())
        return frame.where(owned(parts, self.start_before, self.key, tuple(by.items())))

    def _take_down(self, frame: DataFrame, epoch: Epoch, recorder: Recorder) -> None:
        """Take down what was published: if that fails, it is the shadow that ends."""
        assert self.start is not None
        try:
            recorder.take(frame, self.start, epoch)
        except Exception as error:
            if not self.targets:
                raise
            recorder.error = error

    def floor(self, logged: Logged) -> int | None:
        """Return the lowest time that may still come out of the group after this batch."""
        if self.stateful:
            # State lets results go as the watermark passes them, and the batch
            # runs with the watermark that was logged for it.
            if logged.watermark_ms <= 0:
                return None
            return logged.watermark_ms * 1000 - self.behind // timedelta(microseconds=1)
        return _lowest_floor(logged)

    def reached(self, logged: Logged) -> int | None:
        """Return up to where the group has emitted everything, after this batch."""
        if self.stateful:
            return logged.watermark_ms * 1000 if logged.watermark_ms > 0 else None
        return self.floor(logged)

    def mark_read(self, logged: Logged) -> None:
        """Note in the journals how far this group has read, so that they may trim."""
        for name, offset in logged.offsets.items():
            reader = self.checkpoint.reader(self.job)
            journal_at(self.inputs[name].path).commit(reader, offset.positions)

    def record_late(self, before: Logged | None, logged: Logged) -> None:
        """Keep the late rows of a batch as dead letters; a repetition adds nothing."""
        for name, offset in logged.offsets.items():
            source = self.inputs[name]
            if source.time is None or source.grouped:
                continue
            known = before.offsets.get(name) if before else None
            start = offset.begun(known) or self._beginnings(source, len(offset.positions))
            letters = self._late_of(source, start, known, offset)
            if letters:
                with journal_at(source.path).dead_letters() as dead:
                    dead.put_all(letters)

    def _late_of(
        self, source: Input, start: Sequence[int], before: Offset | None, end: Offset
    ) -> list[DeadLetter]:
        """Return the late rows of a batch, under their positions: a repetition adds nothing."""
        letters: list[DeadLetter] = []
        reader = self._reader(source, len(end.positions))
        views = [reader.partition(number) for number in range(len(end.positions))]
        judge = judge_of(views, before, end, source.lateness)
        for partition, (a, z) in enumerate(zip(start, end.positions, strict=True)):
            for entry in reader.partition(partition).entries(a, z):
                if judge.suspects(entry):
                    letters += self._late_rows(
                        source, judge, partition, max(a, entry.position), min(z, entry.stop)
                    )
        return letters

    def _late_rows(
        self, source: Input, judge: Judge, partition: int, start: int, stop: int
    ) -> Iterator[DeadLetter]:
        for part in self._reader(source, partition + 1).partition(partition).read(start, stop):
            if part.batch is None or source.time is None:
                continue
            for place in judge.late(part, source.time).nonzero()[0].tolist():
                (record,) = records(part.batch.slice(place, 1))
                yield DeadLetter(
                    f"late:{source.name}", part.position + place, "late", record, partition
                )

    def _reader(self, source: Input, partitions: int) -> JournalReader:
        """Return a reader of our own, which knows so many partitions: the journal may have more."""
        known = self._readers.get(source.name)
        if known is None or known.description.partitions < partitions:
            known = self._readers[source.name] = journal_at(source.path).reader()
        return known

    def _beginnings(self, source: Input, partitions: int) -> list[int]:
        reader = self._reader(source, partitions)
        return [reader.partition(n).begin for n in range(partitions)]


def _parts(logged: Logged) -> Sequence[Part] | None:
    """Return what the version owns that ran a batch; None: everything."""
    return newest(one.owns for one in logged.offsets.values() if one.owns is not None)


def all_owned(parts: Sequence[Part] | None, lowest: int | None) -> bool:
    """Tell whether a version owns whatever starts at a time or later; None: at any time."""
    return parts is None or any(
        (first is None or (lowest is not None and first <= lowest))
        and until is None
        and (low, high) == (0, WHOLE)
        for first, until, low, high in parts
    )


def _lowest_floor(logged: Logged) -> int | None:
    """Return the lowest time that sources may still hand out after a batch."""
    floors = [offset.floor for offset in logged.offsets.values()]
    known = [floor for floor in floors if floor is not None]
    return min(known) if known and len(known) == len(floors) else None


def _watermark_behind(logged: Logged) -> int | None:
    """Return the watermark that the batch after this one has, for stages in event-time order."""
    floor = _lowest_floor(logged)
    return None if floor is None else watermark_ms(floor, slack_ms=1)
