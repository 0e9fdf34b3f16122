"""The state of a shard: rows that wait for the watermark, and what the matchers keep.

Both lie in one list of Spark's, as pieces that a first byte marks:

    W   rows that wait
    M   the manifest of what the matchers keep: see `match_pieces`
    K   all that they keep, as earlier releases stored it; N for patterns whose states have changed since
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from millstream.spark.io.batch_floor import announced_us
from millstream.spark.io.packed import PIECE as CHUNK
from millstream.spark.io.packed import Packed, packed, to_bytes
from millstream.spark.stages.alarm import Alarm
from millstream.spark.stages.frames import frame_of
from millstream.spark.stages.match_pieces import Pieces
from millstream.spark.stages.match_rows import TIME, ShardMatcher, in_order
from millstream.spark.stages.ordered import watermark_us
from millstream.spark.task_time import MATCHING, STATE, Worked, measured
from millstream.state import NO_TIME, ShardState, StateFiles
from millstream.state.manifest import Manifest, dump, load

#: How many there were before the state recorded it.
OLD_SHARDS: Final = 64


@dataclass
class MatchShard(StatefulProcessor):
    """One shard of a stream: rows that wait, and what the matchers keep.

    What is large lies in `files`, if there are any. If rows are `prompt`, no stage above holds them
    back: they wait for what is announced with their batch.
    """

    stage: ShardMatcher
    files: StateFiles | None = None
    worked: Accumulator[Worked] | None = None
    prompt: bool = False

    def init(self, handle: StatefulProcessorHandle) -> None:
        # One list for both, marked by their first byte: calls for state are what a shard's turn is
        # made of.
        self._pieces = handle.getListState("pieces", "data binary")
        self._alarm = Alarm(handle)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        given = [bytes(data) for frame in rows for data in frame["rows"]]
        fresh = [Packed.of(data, TIME) for data in given if data]
        found: list[pd.DataFrame] = []
        self._alarm.turn()
        with measured(self.worked, STATE):
            if len(fresh) < len(given):  # it is woken, to set its timer
                found += self._take(int(key[0]), [], self._reached(timerValues))
            found += self._advance(int(key[0]), fresh, timerValues)
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

    def _reached(self, timers: Any) -> int:
        """Return up to where all rows have come."""
        watermark = watermark_us(timers)
        return max(watermark, announced_us()) if self.prompt else watermark

    def _advance(self, shard: int, fresh: list[Packed], timers: Any) -> Iterator[pd.DataFrame]:
        watermark, reached = watermark_us(timers), self._reached(timers)
        both = [self._sorted_out(one, watermark) for one in fresh]
        yield from (_frame(letters) for _, letters in both if letters is not None)
        fresh = [one for one, _ in both if one is not None]
        known = self._alarm.moment
        due = [*(one.lowest for one in fresh), *(() if known is None else (known,))]
        if not due:
            return
        if min(due) > reached:
            if fresh:
                self._pieces.appendList([(self._marked(_WAITING, one.data),) for one in fresh])
                self._alarm.set(min(due))
            return
        yield from self._take(shard, fresh, reached)

    def _sorted_out(self, one: Packed, watermark: int) -> tuple[Packed | None, pa.Table | None]:
        """Return the rows that can be matched, and dead letters for the others."""
        if not self.stage.sorts_out(one.lowest, watermark):
            return one, None
        good, letters = self.stage.sorted_out(one.rows(), watermark)
        if good.num_rows == 0:
            return None, letters
        return Packed.of(one.data if letters is None else to_bytes(good, TIME), TIME), letters

    def _take(self, shard: int, fresh: list[Packed], watermark: int) -> Iterator[pd.DataFrame]:
        pieces = [self._opened(bytes(piece)) for (piece,) in self._pieces.get()]
        waiting = [Packed.of(content, TIME) for mark, content in pieces if mark == _WAITING]
        due = [one for one in (*waiting, *fresh) if one.lowest <= watermark]
        later = [one for one in (*waiting, *fresh) if one.lowest > watermark]
        tables = [_fitted(one.rows(), self.stage.rows) for one in due]
        # What has waited may be told to have nulls where what comes is not.
        whole = pa.concat_tables(tables, promote_options="default") if tables else None
        rows = self.stage.rows.empty_table() if whole is None else whole
        ready = micros(rows.column(TIME)) <= watermark
        if not ready.all():
            rest = packed(rows.filter(pa.array(~ready)), TIME)
            later += [Packed.of(data, TIME) for data in rest]
            rows = rows.filter(pa.array(ready))
        batches = self.stage.batches(in_order(rows))
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
        marked = [self._marked(_WAITING, one.data) for one in later]
        self._store([*self._cut(committed), *marked])
        soonest = room.next_time(watermark, changes)
        if self.stage.settled_by_end and kept.outline.keys:
            soonest = min(soonest, FOREVER)
        soonest = min([soonest, *(one.lowest for one in later)])
        self._alarm.set(None if soonest == NO_TIME else soonest)
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
