"""The state of a shard: rows that wait for the watermark, and what the matchers keep.

Both lie in one list of Spark's, as pieces that a first byte marks:

    W   rows that wait
    M   the manifest of what the matchers keep: see `match_pieces`
    K   all that they keep, as earlier releases stored it; N for patterns whose states have changed since
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millstream.errors import GroupChanged
from millstream.patterns.automaton import FOREVER
from millstream.patterns.events import micros
from millstream.patterns.matcher import Kept
from millstream.spark.stages.frames import frame_of
from millstream.spark.stages.match_pieces import Pieces
from millstream.spark.stages.match_rows import TIME, ShardMatcher, in_order
from millstream.spark.stages.ordered import PIECE as CHUNK
from millstream.spark.stages.ordered import from_bytes, to_bytes, wake_at, watermark_us
from millstream.spark.task_time import MATCHING, STATE, Worked, measured
from millstream.state import NO_TIME, ShardState, StateFiles
from millstream.state.manifest import Manifest, dump, load

#: How many there were before the state recorded it.
OLD_SHARDS: Final = 64


@dataclass
class MatchShard(StatefulProcessor):
    """One shard of a stream: rows that wait, and what the matchers keep.

    What is large lies in `files`, if there are any.
    """

    stage: ShardMatcher
    files: StateFiles | None = None
    worked: Accumulator[Worked] | None = None
    _handle: Any = field(default=None, repr=False)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # One list for both, marked by their first byte: calls for state are what a shard's turn is
        # made of.
        self._pieces = handle.getListState("pieces", "data binary")
        self._next = _Once(handle.getValueState("next", "time bigint"))

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        packed = [bytes(data) for frame in rows for data in frame["rows"]]
        fresh = [_Packed(from_bytes(data), data) for data in packed if data]
        shard, watermark = int(key[0]), watermark_us(timerValues)
        found: list[pd.DataFrame] = []
        with measured(self.worked, STATE):
            if len(fresh) < len(packed):
                found += self._take(shard, [], watermark)  # it is woken, to set its timer
            found += self._advance(shard, fresh, watermark)
        yield from found

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        with measured(self.worked, STATE):
            found = list(self._advance(int(key[0]), [], watermark_us(timerValues)))
        yield from found

    def close(self) -> None:
        """Nothing to give back."""

    def _advance(self, shard: int, fresh: list[_Packed], watermark: int) -> Iterator[pd.DataFrame]:
        both = [(one, *self.stage.sorted_out(one.rows, watermark)) for one in fresh]
        yield from (_frame(letters) for _, _, letters in both if letters is not None)
        fresh = [
            one if letters is None else _Packed(good)
            for one, good, letters in both
            if good.num_rows
        ]
        self._next.forget()
        stored = self._next.get()
        times = [int(micros(one.rows.column(TIME)).min()) for one in fresh]
        lowest = min([*times, *(stored[:1] if stored else ())], default=None)
        if lowest is None:
            return
        if lowest > watermark:
            if fresh:
                self._pieces.appendList([(self._marked(_WAITING, one.bytes()),) for one in fresh])
                wake_at(self._handle, self._next, lowest)
            return
        yield from self._take(shard, [one.rows for one in fresh], watermark)

    def _take(self, shard: int, fresh: list[pa.Table], watermark: int) -> Iterator[pd.DataFrame]:
        pieces = [self._opened(bytes(piece)) for (piece,) in self._pieces.get()]
        stored = [from_bytes(content) for mark, content in pieces if mark == _WAITING]
        tables = [_fitted(table, self.stage.rows) for table in (*stored, *fresh)]
        rows = pa.concat_tables(tables) if tables else self.stage.rows.empty_table()
        ready = micros(rows.column(TIME)) <= watermark
        rest = rows.filter(pa.array(~ready))
        batches = self.stage.batches(in_order(rows.filter(pa.array(ready))))
        data, old = (
            b"".join(content for mark, content in pieces if mark == wanted)
            for wanted in (MANIFEST, KEPT)
        )
        before_all = load(data)
        manifest = before_all
        if self.files is not None:
            manifest = self.files.taken_over(shard, before_all)
        room = ShardState(manifest, self.files, shard)
        kept = Pieces(room, self.stage.matchers, self.stage.empty())
        before = kept.load((one.keys for one in batches), watermark)
        with measured(self.worked, MATCHING, within=STATE):
            after, results = self.stage.matched(
                self._converted(old) if old else before, batches, watermark
            )
        committed, changes = kept.commit(after)
        if committed is None:
            committed = data if manifest is before_all else dump(manifest)
        elif not committed and manifest.imported:
            # Whoever has taken state over knows it, also when nothing is left of it.
            committed = dump(Manifest(manifest.touches, imported=manifest.imported))
        self._store([*self._cut(committed), *self._packed(rest)])
        soonest = room.next_time(watermark, changes)
        if self.stage.settled_by_end and kept.outline.keys:
            soonest = min(soonest, FOREVER)
        self._wake_next(soonest, rest)
        if results:
            yield _frame(since_1970(pa.concat_tables(results)))

    def _converted(self, data: bytes) -> list[Kept]:
        """Return what the matchers keep, as earlier releases stored it."""
        stored = msgspec.msgpack.decode(data)
        return [
            empty if part is None else one.load(part)
            for one, part, empty in zip(
                self.stage.matchers, stored, self.stage.empty(), strict=True
            )
        ]

    def _store(self, pieces: list[bytes]) -> None:
        if pieces:
            self._pieces.put([(piece,) for piece in pieces])
        else:
            self._pieces.clear()

    def _cut(self, manifest: bytes) -> list[bytes]:
        starts = range(0, len(manifest), CHUNK)
        return [self._marked(MANIFEST, manifest[at : at + CHUNK]) for at in starts]

    def _packed(self, rest: pa.Table) -> list[bytes]:
        step = max(1, rest.num_rows * CHUNK // max(1, rest.nbytes))
        return [
            self._marked(_WAITING, to_bytes(rest.slice(at, step)))
            for at in range(0, rest.num_rows, step)
        ]

    def _marked(self, mark: bytes, content: bytes) -> bytes:
        return mark + self.stage.shards.to_bytes(4, "little") + content

    def _opened(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return the mark and the content of a piece of state.

        Raises:
            GroupChanged: The keys were spread over another number of shards, or the states of
                the pattern were others.
        """
        mark, shards, content = opened_piece(piece)
        if mark == KEPT and self.stage.renumbered and piece[:1] != _KEPT_ANEW:
            msg = "an earlier release kept the runs of the pattern in another way"
            raise GroupChanged(msg, hint="start with a new checkpoint, or continue with 0.1.0")
        if shards != self.stage.shards:
            spread = f"{shards} shards, not over {self.stage.shards}"
            msg = f"the state of the pattern is spread over {spread}"
            raise GroupChanged(msg, hint=f"say shards={shards}, or start with a new checkpoint")
        return mark, content

    def _wake_next(self, soonest: int, rest: pa.Table) -> None:
        lowest = int(micros(rest.column(TIME)).min()) if rest.num_rows else NO_TIME
        lowest = min(lowest, soonest)
        if lowest == NO_TIME:
            self._next.clear()
        else:
            wake_at(self._handle, self._next, lowest)


KEPT, _WAITING, MANIFEST = b"K", b"W", b"M"
#: Of patterns whose states 0.1.0 numbered otherwise.
_KEPT_ANEW: Final = b"N"
#: The marks of pieces that do not say over how many shards the keys are spread.
_OLD: Final = {b"k": KEPT, b"w": _WAITING}


def opened_piece(piece: bytes) -> tuple[bytes, int, bytes]:
    """Return the mark of a piece of state, over how many shards keys are spread, and its content."""
    if (mark := piece[:1]) in _OLD:
        return _OLD[mark], OLD_SHARDS, piece[1:]
    mark = KEPT if mark == _KEPT_ANEW else mark
    return mark, int.from_bytes(piece[1:5], "little"), piece[5:]


@dataclass(frozen=True, slots=True)
class _Packed:
    """Rows, and the bytes that they came as, if they are still the same."""

    rows: pa.Table
    data: bytes | None = None

    def bytes(self) -> bytes:
        return to_bytes(self.rows) if self.data is None else self.data


class _Once:
    """A value of state that is asked for once in a shard's turn."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.forget()

    def forget(self) -> None:
        self._known = False
        self._value: Any = None

    def get(self) -> Any:
        if not self._known:
            self._known, self._value = True, self._state.get()
        return self._value

    def update(self, value: tuple[Any, ...]) -> None:
        self._state.update(value)
        self._known, self._value = True, value

    def clear(self) -> None:
        self._state.clear()
        self._known, self._value = True, None


def since_1970(results: pa.Table) -> pa.Table:
    """Return results with times that Spark takes from a stream: all lie after the start of 1970."""
    at = micros(results.column(TIME))
    if at.min() > 0:
        return results
    place = results.column_names.index(TIME)
    times = pa.array(np.maximum(at, 1), pa.int64()).cast(results.column(TIME).type)
    return results.set_column(place, TIME, times)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema; those that they lack are missing."""
    for name in set(schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
    return rows.select(schema.names)


def _frame(table: pa.Table) -> pd.DataFrame:
    return frame_of(table, table.column_names)
