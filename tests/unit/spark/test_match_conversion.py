"""State of patterns that earlier releases kept as a whole goes on, in pieces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import met, micros
from millstream.patterns.matcher import Matcher, matcher
from millstream.spark.io.packed import to_bytes
from millstream.spark.stages.match_rows import KEY, TIME
from millstream.spark.stages.match_state import MatchShard
from millstream.state import StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder

PATTERN = ms.Pattern("p").begin("a", "x = 1").followed_by("b", "x = 2").within("1 hour")
AUTOMATON = compile_pattern(PATTERN)
MOMENT = pa.timestamp("us", "UTC")
ROWS = pa.schema([(KEY, pa.string()), (TIME, MOMENT), ("x", pa.int64())])
HOUR = 3_600_000_000


class Listed:
    """A list, or a value, in Spark's state."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def get(self) -> Any:
        return iter(list(self.rows))

    def put(self, rows: list[Any]) -> None:
        self.rows = list(rows)

    def appendList(self, rows: list[Any]) -> None:
        self.rows += rows

    def clear(self) -> None:
        self.rows = []


class Single(Listed):
    def get(self) -> Any:
        return self.rows[0] if self.rows else None

    def update(self, row: Any) -> None:
        self.rows = [row]


class Stage:
    """The matcher of one pattern, over rows as they are."""

    shards, renumbered, settled_by_end, rows = 16, False, False, ROWS

    def __init__(self) -> None:
        self.matchers: list[Matcher] = [matcher(AUTOMATON, [], late=True)]
        self.found: list[tuple[str, bool]] = []

    def empty(self) -> list[Any]:
        return [self.matchers[0].empty(pa.string(), ROWS)]

    def sorts_out(self, _lowest: int, _watermark: int) -> bool:
        return True

    def sorted_out(self, rows: pa.Table, _watermark: int) -> tuple[pa.Table, None]:
        return rows, None

    def batches(self, rows: pa.Table) -> list[Batch]:
        masks = met(AUTOMATON, rows).astype(np.int64)
        keys = rows.column(KEY).combine_chunks()
        return [Batch(keys, micros(rows.column(TIME)), masks, [], rows)]

    def matched(self, kept: list[Any], batches: list[Batch], watermark: int) -> Any:
        after, found = self.matchers[0].process(kept[0], batches[0], watermark)
        self.found += zip(found.keys.to_pylist(), found.late.tolist(), strict=True)
        return [after], []


def rows(keys: list[str], x: int, first: int) -> pa.Table:
    at = pa.array(range(first, first + 1000 * len(keys), 1000), pa.int64()).cast(MOMENT)
    return pa.table([pa.array(keys), at, pa.array([x] * len(keys), pa.int64())], schema=ROWS)


@pytest.fixture
def shard(tmp_path: Path) -> MatchShard:
    stage: Any = Stage()
    made = MatchShard(stage, StateFiles(Folder(tmp_path), "p", 4, inline=4_000))
    states = {"pieces": Listed(), "next": Single()}
    made.init(
        SimpleNamespace(  # type: ignore[arg-type]
            getListState=lambda name, _: states[name],
            getValueState=lambda name, _: states[name],
            registerTimer=lambda _: None,
            deleteTimer=lambda _: None,
        )
    )
    return made


def advance(shard: MatchShard, given: pa.Table | None, watermark_us: int) -> None:
    timers = SimpleNamespace(getCurrentWatermarkInMs=lambda: watermark_us // 1000)
    if given is None:
        list(shard.handleExpiredTimer((3,), timers, None))
    else:
        frames = iter([{"rows": [to_bytes(given)]}])
        list(shard.handleInputRows((3,), frames, timers))


def pieces(shard: MatchShard) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for (piece,) in shard._pieces.get():
        found[piece[:1]] = found.get(piece[:1], b"") + piece[5:]
    return found


def test_runs_that_were_kept_as_a_whole_are_matched_on_and_time_out(shard: MatchShard) -> None:
    one, keys = shard.stage.matchers[0], [f"key {n}" for n in range(2_000)]
    kept, _ = one.process(shard.stage.empty()[0], shard.stage.batches(rows(keys, 1, 1000))[0], 1)
    old = msgspec.msgpack.encode([one.dump(kept)])
    shard._pieces.put([(b"K" + (16).to_bytes(4, "little") + old,)])
    shard._alarm.set(1000 + HOUR)
    # The first batch converts it; an attempt that fails begins with the same bytes again.
    for _ in range(2):
        shard._pieces.put([(b"K" + (16).to_bytes(4, "little") + old,)])
        shard.stage.found.clear()  # type: ignore[attr-defined]
        advance(shard, rows(["key 7", "key 9"], 2, 50_000), 60_000)
        assert sorted(shard.stage.found) == [("key 7", False), ("key 9", False)]  # type: ignore[attr-defined]
        assert list(pieces(shard)) == [b"M"]
    assert len(load(pieces(shard)[b"M"]).runs) == 1, "it is too large for Spark's own state"
    assert shard._alarm.moment == 1000 + HOUR
    shard.stage.found.clear()  # type: ignore[attr-defined]
    # Half of them run out of time, without any row; the rest when theirs is up.
    for moment, count in ((1_000_000 + HOUR, 998), (2_000_000 + HOUR, 1000)):
        advance(shard, None, moment)
        assert len(shard.stage.found) == count  # type: ignore[attr-defined]
        assert all(late for _, late in shard.stage.found)  # type: ignore[attr-defined]
        shard.stage.found.clear()  # type: ignore[attr-defined]
    assert shard._alarm.moment is None


def test_what_is_small_needs_no_files_and_leaves_nothing(shard: MatchShard, tmp_path: Path) -> None:
    advance(shard, rows(["a", "b"], 1, 1000), 5_000)
    assert list(pieces(shard)) == [b"M"]
    advance(shard, rows(["a", "b"], 2, 6_000), 7_000)
    assert sorted(shard.stage.found) == [("a", False), ("b", False)]  # type: ignore[attr-defined]
    assert pieces(shard) == {}
    assert list(tmp_path.iterdir()) == []
    assert shard._alarm.moment is None
