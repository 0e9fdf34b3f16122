"""A journal as a Spark source: by position, aligned, with markers that move the watermark.

Spark's own watermark depends on speed, batch boundaries and restarts. Here
the rows never move it: `withWatermark` is given a delay of a hundred years
(`DELAY`), and only markers, rows dated floor + `DELAY`, lift it, to the lowest
time that may still come by the journal's own account. What Spark takes as late
is then a function of the journal alone, and no batch can be split so that
Spark drops a row that a source has let through.

An offset is `{"journal", "positions", "floor", "starts"}`. Spark logs it before it uses it, so a
batch that is run again reads the same rows and hands out the same marker. `starts` grows with every
start of the query: it makes a first batch happen even if nothing new is in the journal, because
Spark begins each source's watermark at nothing after a restart and waits for the slowest. A journal
may have got more partitions since an offset was logged: those that it has no position in are unread
(`padded`). While versions are switched, an offset also says where its version began (`first`) and
what it owns (`owns`): copies of its orders, see `control`.

The methods that choose offsets run in a Python process beside the driver,
`read` runs in the executors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from msgspec import structs
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from millstream.errors import PositionUnwritten
from millstream.journal import PartitionReader, Slice, Steps, align, journal_at
from millstream.spark.daemon import settle
from millstream.spark.io.arrays import Numbers, fitted, flags, narrowed, numbers
from millstream.spark.io.control import Answer, Control, Orders, Question
from millstream.spark.io.late import Judge
from millstream.spark.io.packed import GATHERED
from millstream.spark.io.picked_rows import Picked, keyless_reason
from millstream.spark.io.ranges import Range, TaskRanges, split
from millstream.spark.io.schemas import arrow_schema_of
from millstream.spark.io.shard_rows import Shards, message_schema, messages
from millstream.spark.io.summed_rows import MOST, Sums, summed
from millstream.spark.io.unseen import expected_here
from millstream.spark.served.place import ServedPlace, read_place
from millstream.switch.cut import CutColumn, Part, handed_out, passed, promised_floor

MARKER: Final = "__marker"
PLACE: Final = "__place"
#: The delay of `withWatermark`; see the module's docstring.
DELAY: Final = "36500 days"
DELAY_US: Final = 36500 * 86_400 * 1_000_000
#: Rows in one Arrow batch on the way to the JVM.
CHUNK: Final = 65_536
#: And their bytes, if rows are large.
CHUNK_BYTES: Final = 64 << 20
#: How long a reader waits for what the driver has already seen.
BEHIND_S: Final = 20.0
MILLISECOND_US: Final = 1000
#: What only an offset of a version has that is, or was, switched.
_SWITCHED: Final = (
    *("first", "owns", "owned_by", "lateness", "generation"),
    *("since", "until"),
)
#: The bits of a place that hold the position; above them partition and input.
POSITION_BITS: Final = 44


class ReadSettings(msgspec.Struct, frozen=True):
    """The settings of a source, as one JSON option."""

    journal: str
    path: str
    columns: tuple[str, ...]
    schema: str
    time: str | None
    lateness: int
    grouped: bool
    limit: int
    tasks: int
    #: The fields that are needed of a column, where these are not all.
    fields: dict[str, tuple[str, ...]] = {}
    #: How far the watermark stays below the floor: see `watermark_ms`.
    slack_ms: int = 1
    #: The number of this input in its group, for the order among equal times, if that is needed.
    place: int | None = None
    #: The checkpoint under whose name orders are found; None: there are none.
    control: str | None = None
    #: The file with the place of the service that reads for executors; None: they read themselves.
    served: str | None = None
    #: The driver's, in the job's log; None: there is none.
    generation: int | None = None
    #: The shards for which rows are packed; None: they are handed out one by one.
    shards: Shards | None = None
    #: What is summed up for windows; None: nothing.
    sums: Sums | None = None


class Offset(msgspec.Struct, frozen=True):
    """How far a source has been read."""

    journal: str
    positions: tuple[int, ...]
    floor: int | None
    starts: int
    #: Where a version began that did not begin with its journal.
    first: tuple[int, ...] | None = None
    #: What its version owns; None: everything.
    owns: tuple[Part, ...] | None = None
    #: By which column it does, at the cuts that say so.
    owned_by: tuple[CutColumn, ...] | None = None
    #: The lateness, if a switch has changed it.
    lateness: Steps | None = None
    #: The generation of the driver that chose it, if the job has a log.
    generation: int | None = None
    #: Rows before the one, and from the other on, are another version's.
    since: int | None = None
    until: int | None = None

    @property
    def leaving(self) -> bool:
        """Whether its version owns nothing from some moment on."""
        return self.owns is not None and all(until is not None for _, until, *_ in self.owns)

    def begun(self, before: Offset | None) -> tuple[int, ...] | None:
        """Return where a batch begins that ends here; None: at the beginning of the journal."""
        found = self.first if before is None else before.next_positions(self.first)
        return None if found is None else padded(found, len(self.positions))

    def next_positions(self, first: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return where the next batch begins, if orders say where its version begins, or nothing.

        A version jumps there with the first batch after the order. Until then it has run none, or an
        empty one at the beginning of the journal, which warmed it up.
        """
        return first if first is not None and self.first is None else self.positions


def padded(positions: Sequence[int], partitions: int) -> tuple[int, ...]:
    """Return positions in so many partitions: in those that a journal has got since, the beginning.

    Nothing is removed of a partition in which a reader has no position.
    """
    return (*positions, *(0 for _ in range(partitions - len(positions))))


class JournalSource(DataSource):
    """The data source `millstream`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.settings = msgspec.json.decode(options["settings"], type=ReadSettings)

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.settings.schema))

    def streamReader(self, schema: StructType) -> JournalStreamReader:
        return JournalStreamReader(self.settings)


class JournalStreamReader(DataSourceStreamReader):
    """Chooses batches and reads them."""

    def __init__(self, settings: ReadSettings) -> None:
        self.settings = settings
        self._starts: int | None = None
        self._control = None if settings.control is None else Control(settings.control)

    def initialOffset(self) -> dict[str, Any]:
        views = _views(self.settings.path)
        return plain(Offset(self.settings.journal, tuple(view.begin for view in views), None, 0))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.settings.limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        began = msgspec.convert(start, Offset)
        if self._starts is None:
            self._starts = began.starts + 1
        rows = self.settings.limit if isinstance(limit, ReadAllAvailable) else limit.max_rows  # type: ignore[attr-defined]
        if self._control is not None:
            found = self._ordered(began, self._control.orders(), rows)
        else:
            reached = self._reach(began.positions, rows)
            floor = reached.floor if self.settings.time else None
            found = Offset(began.journal, reached.positions, floor, self._starts)
        return plain(structs.replace(found, generation=self.settings.generation))

    def _ordered(self, began: Offset, orders: Orders, rows: int) -> Offset:
        """Return the next offset of a version that is given orders."""
        assert self._starts is not None
        if orders.held:
            return structs.replace(began, starts=self._starts)
        if orders.question is not None and orders.question.stop:
            self._answer(began, began, orders.question)
            return structs.replace(began, starts=self._starts)
        steps = orders.lateness.get(began.journal)
        first = orders.first.get(began.journal)
        start = began.next_positions(first)
        reached = self._reach(start, rows, steps)
        if orders.question is not None and orders.question.kind == "confirm":
            reached = self._below(reached, start, began, orders.question, steps)
        # With a longer lateness than before, the floor by rows may lie below what was logged.
        before = began.floor if reached.floor is not None else None
        floors = [
            one
            for one in (reached.floor, before, orders.close_us)
            if one is not None and self.settings.time
        ]
        found = Offset(
            began.journal,
            reached.positions,
            _held_at(max(floors, default=None), orders.until_us),
            self._starts,
            first if began.first is None else began.first,
            orders.owns,
            orders.starts or None,
            orders.lateness.get(began.journal),
            since=orders.since_us,
            until=orders.until_us,
        )
        if orders.question is not None:
            self._answer(began, found, orders.question)
        return found

    def _answer(self, began: Offset, found: Offset, question: Question) -> None:
        assert self._control is not None
        # A batch of a backlog may span many windows: a report that left out the one that begins now
        # would always be outrun.
        highest = self._highest(found if question.kind == "report" else began, question.step_us)
        over = question.kind == "confirm" and any(passed(one, question.bound) for one in highest)
        self._control.answer(began.journal, Answer(question.kind, question.round, highest, over))

    def _highest(self, offset: Offset, step_us: int) -> tuple[int | None, ...]:
        """Return the highest window of each partition that is in an offset."""
        views = _views(self.settings.path)
        positions = padded(offset.positions, len(views))
        states = [view.state_at(at) for view, at in zip(views, positions, strict=True)]
        return tuple(handed_out(state.running_max, offset.floor, step_us) for state in states)

    def _below(
        self,
        reached: align.Reach,
        start: Sequence[int],
        began: Offset,
        question: Question,
        steps: Steps | None,
    ) -> align.Reach:
        """Keep a promise: hand out nothing at or after the cut, as long as the question stands."""
        if any(passed(one, question.bound) for one in self._highest(began, question.step_us)):
            return reached
        views = _views(self.settings.path)[: len(reached.positions)]
        begun = padded(start, len(views))
        stops = [
            view.first_above(question.cut_us - 1, a, z) if a < z else a
            for view, a, z in zip(views, begun, reached.positions, strict=True)
        ]
        inside = self.settings.grouped or self.settings.time is None
        if inside:
            floor = align.epoch_floor_at(views, stops)
        else:
            floor = align.floor_at(views, stops, steps or self.settings.lateness)
        return align.Reach(tuple(stops), promised_floor(floor, question.cut_us))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskRanges]:
        before, after = msgspec.convert(start, Offset), msgspec.convert(end, Offset)
        begun = after.begun(before) or before.positions
        judge, served, span = self._judge(before, after), self._served(), (after.since, after.until)
        found = [
            TaskRanges(self._excerpted(ranges, served), None, judge, served, span)
            for ranges in split(begun, after.positions, self.settings.tasks)
        ]
        moved = after.floor is not None and (
            after.floor != before.floor or after.starts != before.starts
        )
        if not moved:
            return found
        # The marker rides with rows where there are any: a task of its own costs more than it does.
        empty = Range(0, begun[0], begun[0])
        last = found[-1] if found else TaskRanges(self._excerpted((empty,), served), served=served)
        return [*found[:-1], replace(last, marker=after.floor)]

    def _served(self) -> ServedPlace | None:
        return None if self.settings.served is None else read_place(self.settings.served)

    def _excerpted(
        self, ranges: tuple[Range, ...], served: ServedPlace | None
    ) -> tuple[Range, ...]:
        """Let a task read by itself that does not see the journal's folder, if it can."""
        if served is None:
            return ranges
        excerpt = journal_at(self.settings.path).excerpt
        return tuple(
            replace(one, excerpt=excerpt(one.partition, one.start, one.stop)) for one in ranges
        )

    def _judge(self, before: Offset, after: Offset) -> Judge | None:
        """Return who tells late rows of a batch; nobody where none can be late."""
        if self.settings.time is None or self.settings.grouped:
            return None
        return judge_of(_views(self.settings.path), before, after, self.settings.lateness)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)
        settle()
        settings, schema = self.settings, _arrow_schema(self.settings, partition)
        rows = _kept(settings, partition)
        plain = schema if settings.time is None else schema.remove(schema.get_field_index(MARKER))
        if settings.shards is not None:
            schema = message_schema(str(settings.time), MARKER)
            batches = (_joined(parts, plain) for parts in _chunks(rows, GATHERED))
            yield from messages(batches, settings.shards, schema, _refused)
        elif settings.sums is not None:
            schema = arrow_schema_of(settings.schema)
            batches = (_joined(parts, plain) for parts in _chunks(rows, MOST))
            yield from summed(batches, settings.sums, schema)
        else:
            yield from (_joined(parts, schema) for parts in _chunks(rows, CHUNK))
        if partition.marker is not None:
            yield marker(schema, settings, partition.marker)

    def _reach(self, start: Sequence[int], limit: int, steps: Steps | None = None) -> align.Reach:
        views = _views(self.settings.path)
        start = padded(start, len(views))
        if self.settings.grouped or self.settings.time is None:
            return align.reach_of_epochs(views, start, limit)
        found = align.reach_of_rows(views, start, self.settings.lateness, limit)
        if steps is None:
            return found
        return align.Reach(found.positions, align.floor_at(views, found.positions, steps))


def _held_at(floor: int | None, until: int | None) -> int | None:
    """Return a floor that goes no further than all rows before `until` need, to come out."""
    return floor if floor is None or until is None else min(floor, until + MILLISECOND_US)


def watermark_ms(floor: int, slack_ms: int) -> int:
    """Return the watermark for a floor.

    A row may still come exactly at the floor. A window that ends there cannot
    take it and may close, so the watermark of windows is the floor. Joins drop
    rows that are exactly at the watermark*, and stages in event-time order let
    them go: theirs stays a millisecond below. (* as Spark 4.3 does)
    """
    return floor // 1000 - slack_ms


def marker(schema: pa.Schema, settings: ReadSettings, floor: int) -> pa.RecordBatch:
    """Return the one row that lifts the watermark to `floor`."""
    at = watermark_ms(floor, settings.slack_ms) * 1000 + DELAY_US

    def column(field: pa.Field) -> pa.Array:
        if field.name == settings.time:
            return numbers(np.array([at]), field.type)
        return flags(True, 1) if field.name == MARKER else pa.nulls(1, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def _refused(picked: Picked, rows: pa.Table) -> None:
    """Keep rows as dead letters that have no key where a pattern needs one."""
    from millstream.spark.io.refused_rows import refuse  # it needs this module

    lost = picked.lost
    assert lost is not None
    reason = keyless_reason(lost.stage, lost.columns)
    refuse(lost.letters, f"match:{lost.stage}", rows, [reason] * rows.num_rows)


def _views(path: str) -> list[PartitionReader]:
    reader = journal_at(path).cached_reader()
    return [reader.partition(n) for n in range(reader.description.partitions)]


def plain(offset: Offset) -> dict[str, Any]:
    """Return an offset as it is logged."""
    plain: dict[str, Any] = msgspec.to_builtins(offset)
    # Only a version that is switched has these: others log what they always did.
    return {
        name: value for name, value in plain.items() if value is not None or name not in _SWITCHED
    }


def _arrow_schema(settings: ReadSettings, task: TaskRanges) -> pa.Schema:
    excerpt = task.ranges[0].excerpt
    if excerpt is not None:
        stored = excerpt.schema
    elif task.served is None:
        with expected_here(settings.path):
            stored = journal_at(settings.path).cached_reader().description.schema
    else:
        from millstream.spark.served.client import schema_at

        stored = schema_at(task.served, settings.path)
    fields = [narrowed(stored.field(name), settings.fields.get(name)) for name in settings.columns]
    if settings.place is not None:
        fields.append(pa.field(PLACE, pa.int64()))
    if settings.time is not None:
        fields.append(pa.field(MARKER, pa.bool_()))
    return pa.schema(fields)


class _Part(NamedTuple):
    """Rows on the way to Spark, and their places where the group needs them."""

    batch: pa.RecordBatch
    places: Numbers | None


def _reaching(path: str, piece: Range) -> PartitionReader:
    """Return a reader that sees all rows of a range.

    On another host a shared file system may show what was written a moment later. Reading less than
    the offset says would lose rows, so a reader that stays behind fails its task, and Spark tries
    it again.
    """
    view = journal_at(path).cached_reader().partition(piece.partition)
    deadline = time.monotonic() + BEHIND_S
    while view.end < piece.stop:
        if time.monotonic() > deadline:
            raise PositionUnwritten(
                f"partition {piece.partition} of journal {path} ends at {view.end} here, and {piece.stop} was asked for",
                hint="do all hosts see the same folder? if not, run with --serve always",
            )
        time.sleep(0.1)
        view = journal_at(path).reader().partition(piece.partition)
    return view


def _slices(settings: ReadSettings, piece: Range, served: ServedPlace | None) -> Iterator[Slice]:
    if served is None:
        view = _reaching(settings.path, piece)
        return view.read(piece.start, piece.stop, columns=list(settings.columns))
    otherwise = partial(_served_slices, settings, piece, served)
    if piece.excerpt is None:
        return otherwise()
    from millstream.spark.served.direct import slices_of

    return slices_of(piece.excerpt, piece.start, piece.stop, settings.columns, otherwise)


def _served_slices(settings: ReadSettings, piece: Range, served: ServedPlace) -> Iterator[Slice]:
    from millstream.spark.served.client import slices_at

    start, stop = piece.start, piece.stop
    return slices_at(served, settings.path, piece.partition, start, stop, settings.columns)


def _kept(settings: ReadSettings, task: TaskRanges) -> Iterator[_Part]:
    """Yield the rows that are this version's and not late, with the columns Spark asked for."""
    found = chain.from_iterable(_on_time(settings, piece, task) for piece in task.ranges)
    if task.span == (None, None) or settings.time is None:
        return found
    return _within(found, settings.time, *task.span)


def _within(
    parts: Iterator[_Part], time: str, since: int | None, until: int | None
) -> Iterator[_Part]:
    """Yield the rows from one moment on, and before another."""
    for batch, places in parts:
        times = pc.cast(batch.column(time), pa.int64()).to_numpy(zero_copy_only=False)
        mine = np.ones(len(times), dtype=np.bool_)
        if since is not None:
            mine &= times >= since
        if until is not None:
            mine &= times < until
        if mine.any():
            kept = np.flatnonzero(mine)
            rows = batch.take(numbers(kept, pa.int64()))
            yield _Part(rows, None if places is None else places[kept])


def _on_time(settings: ReadSettings, piece: Range, task: TaskRanges) -> Iterator[_Part]:
    """Yield the rows of a range that are not late."""
    judge = task.judge
    for part in _slices(settings, piece, task.served):
        if part.batch is None or part.batch.num_rows == 0:
            continue
        places = _places(settings.place, piece.partition, part.position, part.batch.num_rows)
        if settings.time is None or judge is None or not judge.suspects(part):
            yield _Part(part.batch, places)
            continue
        on_time = np.flatnonzero(~judge.late(part, settings.time))
        batch = part.batch.take(numbers(on_time, pa.int64()))
        yield _Part(batch, None if places is None else places[on_time])


def _places(place: int | None, partition: int, position: int, rows: int) -> Numbers | None:
    """Return the places of consecutive rows."""
    if place is None:
        return None
    first = (place << (POSITION_BITS + 12)) + (partition << POSITION_BITS) + position
    return np.arange(first, first + rows, dtype=np.int64)


def place_of(place: int | None, record: str) -> tuple[int, int]:
    """Return what identifies a dead row: its place in its journal, or its content without one."""
    if place is None:
        return 0, xxhash.xxh3_64_intdigest(record.encode()) >> 1
    return place >> POSITION_BITS, place & ((1 << POSITION_BITS) - 1)


def _chunks(parts: Iterator[_Part], most: int) -> Iterator[list[_Part]]:
    """Gather small batches: each one costs both sides of the pipe some 100 us."""
    pending: list[_Part] = []
    rows = size = 0
    for part in parts:
        more, bytes_more = part.batch.num_rows, part.batch.get_total_buffer_size()
        # Columns of text are joined with 32-bit offsets: they must not grow beyond those.
        if pending and (rows + more > most or size + bytes_more > CHUNK_BYTES):
            yield pending
            pending, rows, size = [], 0, 0
        pending.append(part)
        rows, size = rows + more, size + bytes_more
    if pending:
        yield pending


def judge_of(
    views: Sequence[align.View], before: Offset | None, after: Offset, lateness_us: int
) -> Judge:
    """Return who tells late rows of a batch, by what was logged for it and for the one before."""
    steps = after.lateness or ((None, lateness_us),)
    lowest = None
    # The floor of a version that leaves is lifted when all that it owns is read.
    if before is not None and before.floor is not None and not before.leaving:
        floor = align.floor_at(views, padded(before.positions, len(views)), steps)
        lowest = before.floor if floor is not None and floor < before.floor else None
    return Judge(steps, lowest)


def _joined(parts: list[_Part], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of several parts as one batch, with our columns that the group needs."""
    rows = sum(part.batch.num_rows for part in parts)

    def column(field: pa.Field) -> pa.Array:
        if field.name == MARKER:
            return flags(False, rows)
        if field.name == PLACE:
            return numbers(
                np.concatenate([part.places for part in parts if part.places is not None]),
                field.type,
            )
        arrays = [fitted(part.batch.column(field.name), field.type) for part in parts]
        array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        return array if array.type == field.type else pc.cast(array, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
