"""`fold` and `distinct`, attacked: whatever the batches, rows are taken in order of event time, each once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.journal import journal_at
from millstream.spark.io.packed import Packed, to_bytes
from millstream.spark.io.source import PLACE
from millstream.spark.stages import ordered
from millstream.spark.stages.coding import decode
from millstream.spark.stages.distinct import Keeping
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import _Shard
from millstream.state import StateFiles
from millstream.state.manifest import joined, load
from millstream.storage import Folder

LATENESS = 3
MS = 1000


class Values:
    """A state of Spark's, in memory: a list, of which a single value is the first."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def get(self) -> Any:
        return iter(list(self.rows))

    def put(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = list(rows)

    def appendList(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows += rows

    def clear(self) -> None:
        self.rows = []


class Value(Values):
    def get(self) -> Any:
        return self.rows[0] if self.rows else None

    def update(self, row: tuple[Any, ...]) -> None:
        self.rows = [row]


class Handle:
    """Spark's side of a shard, with its timers as Spark 4.3 keeps them."""

    def __init__(self) -> None:
        self.timers: set[int] = set()

    def getListState(self, name: str, schema: str) -> Values:
        return Values()

    def getValueState(self, name: str, schema: str) -> Value:
        return Value()

    def registerTimer(self, expiry: int) -> None:
        self.timers.add(expiry)

    def deleteTimer(self, expiry: int) -> None:
        self.timers.remove(expiry)  # of one that is gone, Spark warns


class Times:
    def __init__(self, watermark: int) -> None:
        self.watermark = watermark

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark


def step(state: list[int], row: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    return [*state, row["v"]], {"at": row["at"], "seen": [*state, row["v"]]}


def batch(rows: Iterable[tuple[int, int, int]]) -> pd.DataFrame:
    """Pack (time in ms, value, place) as the stage before the shuffle does."""
    times, values, places = zip(*rows, strict=True)
    table = pa.table(
        {
            "k": pa.array(["k"] * len(times)),
            "v": pa.array(values, pa.int64()),
            "at": pa.array([t * MS for t in times], pa.timestamp("us", "UTC")),
            PLACE: pa.array(places, pa.int64()),
        }
    )
    return pd.DataFrame({"rows": [to_bytes(table, "at")]})


def run(
    shard: _Shard, batches: list[tuple[list[tuple[int, int, int]], int]]
) -> Iterator[dict[str, Any]]:
    """Feed batches, each with the watermark it runs with, as Spark does: rows first, then timers that are due.

    What is announced with a batch is the watermark of the next one.
    """
    handle = Handle()
    shard.init(handle)  # type: ignore[arg-type]
    behind = [watermark for _, watermark in batches[1:]] + [10**9]
    for (rows, watermark), announced in zip(batches, behind, strict=True):
        times = Times(watermark)
        with patch.object(ordered, "announced_us", lambda at=announced: at * MS):
            if rows:
                for frame in shard.handleInputRows((0,), iter([batch(rows)]), times):
                    yield from frame.to_dict("records")
            for expiry in sorted(timer for timer in handle.timers if timer <= watermark):
                fired = SimpleNamespace(getExpiryTimeInMs=lambda at=expiry: at)
                for frame in shard.handleExpiredTimer((0,), times, fired):
                    yield from frame.to_dict("records")
                # PySpark deletes a timer after its handler has run, also if it was set again there.
                handle.timers.discard(expiry)
    assert not handle.timers


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[list[tuple[int, int, int]], int]]:
    """Draw batches of rows that are never late, on a coarse grid, with the watermark of the rows before."""
    batches: list[tuple[list[tuple[int, int, int]], int]] = []
    highest = 10
    floor = highest - LATENESS
    place = 0
    for _ in range(draw(st.integers(1, 6))):
        rows = []
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(highest - LATENESS, highest + 4))
            rows.append((at, draw(st.integers(0, 2)), place))
            highest = max(highest, at)
            place += 1
        # Groups with such stages run with a watermark one millisecond below the floor.
        batches.append((rows, floor - 1))
        floor = highest - LATENESS
    return [*batches, ([], floor - 1), ([], 10**9)]


@given(streams(), st.booleans())
@settings(max_examples=300)
def test_a_fold_takes_every_row_once_in_order_of_time_and_place(
    batches: list[tuple[list[tuple[int, int, int]], int]], prompt: bool
) -> None:
    shard = _Shard(
        Folding("counts", ("k",), step, [], frozenset({"at", "seen"}), "at"),
        "at",
        ["at", "seen"],
        wait=True,
        prompt=prompt,
    )
    results = list(run(shard, batches))
    rows = sorted((at, place, value) for rows, _ in batches for at, value, place in rows)
    assert [result["at"].timestamp() * 1000 for result in results] == [at for at, _, _ in rows]
    if rows:
        assert results[-1]["seen"] == [value for _, _, value in rows]


KEEP = 5


def counting(seen: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return seen + 1, {"v": row["v"], "at": row["at"], "seen": seen + 1}


@given(streams(), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_state_counts_for_as_long_as_it_is_kept_whatever_the_batches(
    batches: list[tuple[list[tuple[int, int, int]], int]], filed: bool, prompt: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # A threshold of nothing: every change makes a file.
        files = StateFiles(Folder(Path(folder)), "f", 4, inline=1) if filed else None
        names = ["v", "at", "seen"]
        rule = Folding("f", ("v",), counting, 0, frozenset(names), "at", keep=KEEP * MS)
        shard = _Shard(rule, "at", names, wait=True, files=files, prompt=prompt)
        results = list(run(shard, batches))
    expected, known = [], dict[int, tuple[int, int]]()
    for at, _, value in sorted(
        (at, place, value) for rows, _ in batches for at, value, place in rows
    ):
        seen, last = known.get(value, (0, at))
        known[value] = (seen + 1 if at - last < KEEP else 1, at)
        expected.append((value, at, known[value][0]))
    found = [(row["v"], round(row["at"].timestamp() * 1000), row["seen"]) for row in results]
    assert found == expected


def failing(state: list[int], row: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    state.append(row["v"])
    if row["v"] == 1:
        raise ValueError("one is too many")
    return state, {"at": row["at"], "seen": list(state)}


@given(streams())
@settings(max_examples=50)
def test_rows_on_which_a_fold_fails_are_dead_letters_and_all_others_are_as_without_them(
    batches: list[tuple[list[tuple[int, int, int]], int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal_at(folder).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)

        def shard() -> _Shard:
            rule = Folding("f", ("k",), failing, [], frozenset({"at", "seen"}), "at", folder)
            return _Shard(rule, "at", ["at", "seen"], wait=True)

        good = [([row for row in rows if row[1] != 1], watermark) for rows, watermark in batches]
        expected = list(run(shard(), good))
        # Twice, as when batches are run again: letters are there once.
        assert list(run(shard(), batches)) == list(run(shard(), batches)) == expected
        bad = sum(row[1] == 1 for rows, _ in batches for row in rows)
        assert sum(journal_at(folder).dead_counts().values()) == bad


@given(streams(), st.booleans())
@settings(max_examples=300)
def test_distinct_keeps_the_first_of_each_span(
    batches: list[tuple[list[tuple[int, int, int]], int]], prompt: bool
) -> None:
    shard = _Shard(Keeping(("v",), "at", 4 * MS), "at", ["v", "at"], wait=True, prompt=prompt)
    kept = [(result["v"], round(result["at"].timestamp() * 1000)) for result in run(shard, batches)]
    expected, last = [], dict[int, int]()
    for at, _, value in sorted(
        (at, place, value) for rows, _ in batches for at, value, place in rows
    ):
        if value not in last or at - last[value] >= 4:
            last[value] = at
            expected.append((value, at))
    assert kept == expected


@given(streams())
@settings(max_examples=100)
def test_rows_wait_for_no_batch_behind_the_one_that_has_all_before_them(
    batches: list[tuple[list[tuple[int, int, int]], int]],
) -> None:
    """What a batch's floor has passed comes out with its last row, or with the timer one batch later."""
    shard = _Shard(Keeping(("v", "at"), "at", 1), "at", ["v", "at"], wait=True, prompt=True)
    shard.init(Handle())  # type: ignore[arg-type]
    for place, (rows, watermark) in enumerate(batches[:-1]):
        announced = batches[place + 1][1]
        with patch.object(ordered, "announced_us", lambda at=announced: at * MS):
            if rows:
                list(shard.handleInputRows((0,), iter([batch(rows)]), Times(watermark)))
                waiting = [Packed.of(data, "at").lowest for (data,) in shard._waiting.get()]
                assert all(lowest > announced * MS for lowest in waiting)


def test_distinct_hands_on_numbers_that_are_nan() -> None:
    table = pa.table(
        {
            "v": pa.array([float("nan"), None, 1.5]),
            "at": pa.array([9 * MS, 10 * MS, 11 * MS], pa.timestamp("us", "UTC")),
        }
    )
    shard = _Shard(Keeping(("at",), "at", MS), "at", ["v", "at"], wait=True)
    shard.init(Handle())  # type: ignore[arg-type]
    packed = pd.DataFrame({"rows": [to_bytes(table)]})
    (frame,) = shard.handleInputRows((0,), iter([packed]), Times(20))
    # As Spark does.
    found = pa.Array.from_pandas(frame["v"], type=pa.float64())
    assert repr(found.to_pylist()) == "[nan, None, 1.5]"


def keeping_numbers(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    return {"last": row["x"], "all": [*state["all"], row["x"]]}, {"at": row["at"]}


def test_a_fold_may_keep_nan() -> None:
    rule = Folding("f", (), keeping_numbers, {"last": None, "all": []}, frozenset({"at"}), "at")
    times = pa.array([9 * MS, 10 * MS], pa.timestamp("us", "UTC"))
    table = pa.table({"x": pa.array([float("nan"), 1.5]), "at": times})
    shard = _Shard(rule, "at", ["at"], wait=True)
    shard.init(Handle())  # type: ignore[arg-type]
    packed = pd.DataFrame({"rows": [to_bytes(table)]})
    (frame,) = shard.handleInputRows((0,), iter([packed]), Times(20))
    assert len(frame) == 2
    (kept,) = load(joined(one for (one,) in shard._keys.get())).fresh.values()
    assert repr(decode(bytes(kept[0]))) == repr({"last": 1.5, "all": [float("nan"), 1.5]})
