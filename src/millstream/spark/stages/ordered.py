"""Stages of our own that see rows in event-time order: `fold` and `distinct`.

Keys are spread over shards by the stable hash, and one shard is one key for
Spark: a call for state costs a millisecond, so it must not be paid per key.
Rows are packed per shard as Arrow data before the shuffle, wait in the shard's
state until the watermark has passed them, and are then taken in (time, place)
order. What comes out is therefore independent of batch boundaries. `place` is
(input, partition, position) where the rows still carry it; rows that lost it in
an `apply` or `sql` are put in order of their content, which is as repeatable.

The rules (`Folding` in `fold`, `Keeping` in `distinct`) know nothing of Spark. What they keep per key
is in the room `millstream.state`: a batch reads and writes the keys that it touches. A small shard
is one value of Spark's; a larger one has files beside the checkpoint.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, compress, pairwise, repeat
from operator import ne
from typing import Any, Final, Protocol, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DataType, DoubleType, FloatType, StructType

from millstream.spark.daemon import settle
from millstream.spark.io.source import PLACE
from millstream.spark.stages.coding import decode_all, encode_all
from millstream.spark.stages.frames import frame_of
from millstream.spark.stages.row_keys import RowKeys
from millstream.spark.task_time import PYTHON, STATE, Worked, measured
from millstream.state import ShardState, StateFiles
from millstream.state.manifest import Stored, joined, load

SHARD: Final = "__shard"
#: So many rows are gathered before they are packed by shard.
PACKED: Final = 1 << 17
#: State values are stored in pieces of at most this size.
PIECE: Final = 16 << 20

#: Below every moment that Spark has, in microseconds.
NO_WATERMARK: Final = -(1 << 62)

# In Arrow's zone, not in that of `clock.EPOCH`: rows are put in order by the text of their values.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))

#: What is kept for the keys that rows touch: a value, and the event time at which it was put.
State = dict[bytes, tuple[Any, int]]
#: What comes out: dictionaries or columns.
Results: TypeAlias = list[dict[str, Any]] | pa.Table


class RowFailed(Exception):
    """A rule failed on a row: `again` takes the others, and begins with the state from before.

    The rule may have changed the state that it was given.
    """

    def __init__(self, again: Callable[[pa.Table, RowKeys, State], Results]) -> None:
        super().__init__()
        self.again = again


class Rule(Protocol):
    """What a stage does with rows that are in order."""

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that make a key."""
        ...

    @property
    def keep(self) -> int | None:
        """For how many microseconds a key's state counts; a row that comes later finds none."""
        ...

    def old_time(self, value: Raw) -> int:
        """Return the event time of a value of earlier versions, which stored none beside it."""
        ...

    def take(self, rows: pa.Table, keys: RowKeys, state: State) -> Results:
        """Return rows, and change the `state` of the `keys` of the rows that are given.

        Raises:
            RowFailed: A row must be left out.
        """
        ...


def dictionaries(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries."""
    columns = [values(column) for column in rows.columns]
    names = rows.column_names
    # Each has as many values as there are names; asking for it takes a third as long again.
    return [dict(zip(names, row)) for row in zip(*columns)]  # noqa: B905


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as `to_pylist` does, which takes 3 us for every timestamp.

    Maps are dictionaries, as Spark takes and gives them.
    """
    kind = column.type
    if _is_plain(column):
        found: list[Any] = column.to_numpy().tolist()
        return found
    if (
        not pa.types.is_timestamp(kind)
        or kind.unit != "us"
        or kind.tz != "UTC"
        or column.null_count
    ):
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    return [_EPOCH + since for since in micros(column).view("timedelta64[us]").tolist()]


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Tell whether numpy makes the same Python values of a column, in a tenth of the time."""
    kind = column.type
    if pa.types.is_string(kind):
        return True
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return numbers and not column.null_count


def micros(column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a timestamp column as microseconds since 1970."""
    result: np.ndarray[Any, np.dtype[np.int64]] = pc.cast(column, pa.int64()).to_numpy()
    return result


def in_order(rows: pa.Table, time: str) -> pa.Table:
    """Sort rows by time, then by place, or by content where they have no place."""
    if PLACE in rows.column_names:
        return rows.take(
            pc.sort_indices(rows, sort_keys=[(time, "ascending"), (PLACE, "ascending")])
        )
    times = micros(rows.column(time)).tolist()
    content = [repr(list(row.values())) for row in rows.to_pylist()]
    order = sorted(range(len(times)), key=lambda i: (times[i], content[i]))
    return rows.take(pa.array(order, pa.int64()))


def in_place(rows: pa.Table) -> pa.Table:
    """Sort rows as they arrived, where they still know it."""
    return rows.sort_by(PLACE) if PLACE in rows.column_names else rows


def released(rows: pa.Table, time: str, watermark: int) -> tuple[pa.Table, pa.Table]:
    """Split rows into those that the watermark has passed, in order, and the rest."""
    ready = micros(rows.column(time)) <= watermark
    return in_order(rows.filter(pa.array(ready)), time), rows.filter(pa.array(~ready))


# The border to Spark


def ordered(
    frame: DataFrame,
    rule: Rule,
    *,
    time: str | None,
    output: StructType,
    shards: int,
    wait: bool,
    files: StateFiles | None = None,
    worked: Accumulator[Worked] | None = None,
) -> DataFrame:
    """Run `rule` over `frame`, shard by shard.

    Rows come in order of arrival if they need not `wait` for the watermark. State that is large is
    kept in `files`, if there are any. Tasks report to `worked` how long they are at it.
    """
    by = rule.by
    names = ", ".join(f"cast(`{name}` as string)" for name in by)
    hashed = F.expr(f"cast(pmod(xxhash64({names}), {shards}) as int)" if by else "0")
    packed = frame.withColumn(SHARD, hashed).mapInArrow(pack, f"{SHARD} int, rows binary")
    processor = _Shard(rule, time, output.fieldNames(), wait, files, fractions(output), worked)
    return packed.groupBy(SHARD).transformWithStateInPandas(
        processor,
        output,
        outputMode="append",
        timeMode="none" if time is None else "eventTime",
        eventTimeColumnName=time or "",
    )


def fractions(output: StructType) -> dict[str, pa.DataType]:
    """Return the columns with floating point, and their types."""
    types: dict[DataType, pa.DataType] = {DoubleType(): pa.float64(), FloatType(): pa.float32()}
    return {one.name: types[one.dataType] for one in output if one.dataType in types}


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn rows into Arrow messages, each of one shard and of many rows.

    A message costs more than the rows of a small one.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= PACKED:
            yield from _packed(waiting)
            waiting = []
    yield from _packed(waiting)


def _packed(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not any(batch.num_rows for batch in batches):
        return
    rows = pa.Table.from_batches(batches)
    numbers = rows.column(SHARD).to_numpy()
    # Numbers as short as can be: those of up to 16 bits are sorted in one pass.
    order = np.argsort(numbers.astype(np.min_scalar_type(int(numbers.max()))), kind="stable")
    rows, numbers = rows.take(pa.array(order)), numbers[order]
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    plain = rows.drop_columns([SHARD])
    parts = [to_bytes(plain.slice(a, z - a)) for a, z in pairwise(edges)]
    yield pa.RecordBatch.from_arrays(
        [pa.array(numbers[edges[:-1]], pa.int32()), pa.array(parts, pa.binary())],
        names=[SHARD, "rows"],
    )


@dataclass
class _Shard(StatefulProcessor):
    """One shard: rows that wait, and the state of its keys."""

    rule: Rule
    time: str | None
    columns: list[str]
    wait: bool
    files: StateFiles | None = None
    fractions: dict[str, pa.DataType] = field(default_factory=dict)
    worked: Accumulator[Worked] | None = None
    _handle: Any = field(default=None, repr=False)

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle()
        self._handle = handle
        self._waiting = handle.getListState("waiting", "data binary")
        self._keys = handle.getListState("keys", "data binary")
        self._next = handle.getValueState("next", "time bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = [from_bytes(data) for frame in rows for data in frame["rows"]]
        found: Iterable[pd.DataFrame] = ()
        with measured(self.worked, STATE):
            if self.wait:
                found = list(self._advance(int(key[0]), fresh, watermark_us(timerValues)))
            elif fresh:
                found = list(self._take(int(key[0]), in_place(pa.concat_tables(fresh))))
        yield from found

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        with measured(self.worked, STATE):
            found = list(self._advance(int(key[0]), [], watermark_us(timerValues)))
        yield from found

    def close(self) -> None:
        """Nothing to give back."""

    def _advance(self, shard: int, fresh: list[pa.Table], watermark: int) -> Iterator[pd.DataFrame]:
        lowest = self._lowest(fresh)
        if lowest is None:
            return
        if lowest > watermark:
            if fresh:
                self._waiting.appendList([(to_bytes(table),) for table in fresh])
                wake_at(self._handle, self._next, lowest)
            return
        ready, rest = released(pa.concat_tables([*self._stored(), *fresh]), self._timed, watermark)
        self._keep(rest)
        yield from self._take(shard, ready, watermark)

    def _take(
        self, shard: int, ready: pa.Table, watermark: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Let the rule have rows, and store what it remembers."""
        with uncollected():
            results = self._taken(shard, ready, watermark)
        if len(results):
            yield frame_of(results, self.columns, self.fractions)

    def _taken(self, shard: int, ready: pa.Table, watermark: int | None) -> Results:
        manifest = load(joined(piece for (piece,) in self._keys.get()), self.rule.old_time)
        if self.files is not None:
            manifest = self.files.taken_over(shard, manifest)
        kept = ShardState(manifest, self.files, shard)
        touched = RowKeys.of(ready, self.rule.by)
        before = kept.lookup(touched.known)
        state = _decoded(before)
        with measured(self.worked, PYTHON, within=STATE):
            try:
                results = self.rule.take(ready, touched, state)
            except RowFailed as failed:
                state = _decoded(before)
                results = failed.again(ready, touched, state)
        keep = self.rule.keep
        expired = None if keep is None or watermark is None else watermark - keep
        data = kept.commit(_changed(before, state), expired)
        if data is not None:
            self._keys.put([(data[at : at + PIECE],) for at in range(0, len(data), PIECE)])
        return results

    @property
    def _timed(self) -> str:
        assert self.time is not None, "who waits has a time"
        return self.time

    def _lowest(self, fresh: list[pa.Table]) -> int | None:
        """Return the time of the first row that waits."""
        times = [int(micros(table.column(self._timed)).min()) for table in fresh if table.num_rows]
        stored = self._next.get()
        return min([*times, *(stored[:1] if stored else ())], default=None)

    def _stored(self) -> list[pa.Table]:
        return [from_bytes(data) for (data,) in self._waiting.get()]

    def _keep(self, rest: pa.Table) -> None:
        """Let rows wait."""
        if rest.num_rows == 0:
            self._waiting.clear()
            self._next.clear()
            return
        step = max(1, rest.num_rows * PIECE // max(1, rest.nbytes))
        self._waiting.put(
            [(to_bytes(rest.slice(at, step)),) for at in range(0, rest.num_rows, step)]
        )
        wake_at(self._handle, self._next, int(micros(rest.column(self._timed)).min()))


def _decoded(before: Mapping[bytes, Stored]) -> State:
    found = decode_all([value for value, _ in before.values()])
    times = [time for _, time in before.values()]
    return dict(zip(before, zip(found, times, strict=True), strict=True))


def _changed(before: Mapping[bytes, Stored], state: State) -> dict[bytes, Stored | None]:
    """Return the entries that differ from those before, encoded.

    The keys of `state` begin with those of `before`, in the same order: it was made of them.
    """
    found = encode_all([value for value, _ in state.values()])
    times = [time for _, time in state.values()]
    after = list(zip(found, times, strict=True))
    differ = chain(map(ne, before.values(), after), repeat(True))
    return dict(compress(zip(state, after, strict=True), differ))


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for cycles later: many small objects that stay make it look often."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def wake_at(handle: StatefulProcessorHandle, known: Any, moment: int) -> None:
    """Let a shard's timer go off when `moment` has passed; `known` holds the last one in state."""
    stored = known.get()
    if stored and stored[0] == moment:
        return
    if stored:
        handle.deleteTimer(timer(stored[0]))
    known.update((moment,))
    handle.registerTimer(timer(moment))


def timer(moment: int) -> int:
    """Return the timer that fires just when the watermark lets a row of `moment` go.

    Timers and watermarks are whole milliseconds, so rounding up is exact: not early (a timer that
    is set again while it fires is lost in Spark 4.3) and not late. There is no watermark before the
    first millisecond of 1970 is over, whatever lies before it.
    """
    return max(-(-moment // 1000), 1)


def watermark_us(timers: Any) -> int:
    """Return the watermark of a batch; before every moment while there is none.

    Spark says 0 then, and never when there is one: a row at or before 1970 is not behind it.
    """
    found = int(timers.getCurrentWatermarkInMs())
    return found * 1000 if found > 0 else NO_WATERMARK


def to_bytes(table: pa.Table) -> bytes:
    """Return rows as an Arrow stream, compressed.

    On its way through Spark and its state a byte costs more than compressing it.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
