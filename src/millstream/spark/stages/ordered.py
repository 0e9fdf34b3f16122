"""Stages of our own that see rows in event-time order: `fold` and `distinct`.

Keys are spread over shards by the stable hash, and one shard is one key for
Spark: a call for state costs a millisecond, so it must not be paid per key.
Rows are packed per shard as Arrow data before the shuffle, by the source itself
where nothing stands between. They are taken in (time, place) order once all rows
up to theirs have come: the watermark tells that a batch later, what is announced
with a batch (`io/batch_floor.py`) tells it at once. Rows for which that is too early wait in
the shard's state. What comes out is therefore independent of batch boundaries. `place` is
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
from functools import cache
from itertools import chain, compress, repeat
from operator import ne
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from millstream.spark.daemon import settle
from millstream.spark.io.batch_floor import announced_us, microseconds
from millstream.spark.io.packed import PIECE, SHARD, Packed, from_bytes, micros, packed, packing
from millstream.spark.io.result_rows import PACKED
from millstream.spark.io.source import PLACE
from millstream.spark.stages.alarm import Alarm
from millstream.spark.stages.coding import decode_all, encode_all
from millstream.spark.stages.frames import frame_of, packed_frame, plain_types
from millstream.spark.stages.row_keys import RowKeys
from millstream.spark.task_time import PYTHON, STATE, Worked, measured
from millstream.state import ShardState, StateFiles
from millstream.state.manifest import Stored, joined, load

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.stages import Distinct, Fold
    from millstream.spark.stages.build import Builder

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
    return _dictionaries(tuple(rows.column_names))(*columns) if columns else []


@cache
def _dictionaries(names: tuple[str, ...]) -> Callable[..., list[dict[str, Any]]]:
    """Return what makes dictionaries of columns: with fixed names, four times as fast as `dict(zip(...))`."""
    each = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, each, strict=True))
    code = f"lambda *columns: [{{{pairs}}} for {', '.join(each)}, in zip(*columns)]"
    made: Callable[..., list[dict[str, Any]]] = eval(code)  # noqa: S307 (names are quoted)
    return made


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


def parted(pieces: list[Packed], time: str, watermark: int) -> tuple[pa.Table, list[Packed]]:
    """Return the rows that the watermark has passed, in order, and what waits on."""
    due = [one for one in pieces if one.lowest <= watermark]
    # Earlier releases packed them with other columns that may be null.
    rows = pa.concat_tables([one.rows() for one in due], promote_options="default")
    ready = micros(rows.column(time)) <= watermark
    rest = [one for one in pieces if one.lowest > watermark]
    if not ready.all():
        rest += [Packed.of(data, time) for data in packed(rows.filter(pa.array(~ready)), time)]
        rows = rows.filter(pa.array(ready))
    return in_order(rows, time), rest


# The border to Spark


def ordered(
    stage: Fold | Distinct,
    builder: Builder,
    rule: Rule,
    *,
    time: str | None,
    output: StructType,
    wait: bool,
    packed: bool = False,
) -> DataFrame:
    """Run `rule` over the rows of a stage's input, shard by shard.

    Rows come in order of arrival if they need not `wait` for the watermark. What comes out may be
    `packed`: see `io/result_rows.py`.
    """
    output = StructType([one for one in output if not (packed and one.name == PLACE)])
    messages = builder.messages(stage.input, rule.by, stage.shards) if wait else None
    if messages is None:
        frame = builder.frame(stage.input)
        messages = _messages(frame, rule.by, stage.shards, time if wait else None)
    processor = _Shard(
        rule,
        time,
        output.fieldNames(),
        wait,
        builder.state_files(stage),
        plain_types(output),
        builder.worked,
        prompt=builder.prompt(stage.input),
        packed=output if packed else None,
    )
    return messages.groupBy(SHARD).transformWithStateInPandas(
        processor,
        PACKED if packed else output,
        outputMode="append",
        timeMode="none" if time is None else "eventTime",
        eventTimeColumnName=time if time is not None and not packed else "",
    )


def _messages(frame: DataFrame, by: tuple[str, ...], shards: int, time: str | None) -> DataFrame:
    """Return rows as messages to their shards."""
    names = ", ".join(f"cast(`{name}` as string)" for name in by)
    hashed = F.expr(f"cast(pmod(xxhash64({names}), {shards}) as int)" if by else "0")
    return frame.withColumn(SHARD, hashed).mapInArrow(packing(time), f"{SHARD} int, rows binary")


@dataclass
class _Shard(StatefulProcessor):
    """One shard: rows that wait, and the state of its keys."""

    rule: Rule
    time: str | None
    columns: list[str]
    wait: bool
    files: StateFiles | None = None
    types: dict[str, pa.DataType] = field(default_factory=dict)
    worked: Accumulator[Worked] | None = None
    #: No stage above holds rows back: they wait for what is announced with their batch.
    prompt: bool = False
    #: The columns of what comes out, if it is packed.
    packed: StructType | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle()
        self._waiting = handle.getListState("waiting", "data binary")
        self._keys = handle.getListState("keys", "data binary")
        self._alarm = Alarm(handle)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = [bytes(data) for frame in rows for data in frame["rows"]]
        found: Iterable[pd.DataFrame] = ()
        self._alarm.turn()
        with measured(self.worked, STATE):
            if self.wait:
                found = list(self._advance(int(key[0]), fresh, timerValues))
            elif fresh:
                arrived = in_place(pa.concat_tables(map(from_bytes, fresh)))
                found = list(self._take(int(key[0]), arrived))
        yield from found

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        self._alarm.turn(expiredTimerInfo)
        with measured(self.worked, STATE):
            found = list(self._advance(int(key[0]), [], timerValues))
        yield from found

    def close(self) -> None:
        """Nothing to give back."""

    def _advance(self, shard: int, fresh: list[bytes], timers: Any) -> Iterator[pd.DataFrame]:
        watermark = watermark_us(timers)
        if self.prompt:
            watermark = max(watermark, announced_us())
        new = [Packed.of(data, self._timed) for data in fresh]
        known = self._alarm.moment
        due = [*(one.lowest for one in new), *(() if known is None else (known,))]
        if not due:
            return
        if min(due) > watermark:
            if new:
                self._waiting.appendList([(one.data,) for one in new])
                self._alarm.set(min(due))
            return
        before = [Packed.of(bytes(data), self._timed) for (data,) in self._waiting.get()]
        ready, rest = parted([*before, *new], self._timed, watermark)
        self._keep(rest)
        yield from self._take(shard, ready, watermark)

    def _take(
        self, shard: int, ready: pa.Table, watermark: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Let the rule have rows, and store what it remembers."""
        with uncollected():
            results = self._taken(shard, ready, watermark)
        if not len(results):
            return
        if self.packed is None:
            yield frame_of(results, self.columns, self.types)
        else:
            yield packed_frame(results, self.packed, self.types)

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

    def _keep(self, rest: list[Packed]) -> None:
        """Let rows wait."""
        self._alarm.set(min((one.lowest for one in rest), default=None))
        if rest:
            self._waiting.put([(one.data,) for one in rest])
        else:
            self._waiting.clear()


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


def watermark_us(timers: Any) -> int:
    """Return the watermark of a batch; before every moment while there is none."""
    return microseconds(int(timers.getCurrentWatermarkInMs()))
