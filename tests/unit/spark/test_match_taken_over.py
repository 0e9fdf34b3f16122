"""A shard of a pattern takes runs over that came from another checkpoint: once, and with their timers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from millstream.spark.io.packed import SHARD, packing
from millstream.spark.stages import waking
from millstream.spark.stages.match_state import MatchShard
from millstream.state import StateFiles
from millstream.state.carrying import carry_as_it_is, decide_carried, promise
from millstream.state.manifest import load
from millstream.storage import Folder
from unit.spark.test_match_conversion import HOUR, Listed, Single, Stage, advance, pieces, rows


def made(files: StateFiles) -> MatchShard:
    stage: Any = Stage()
    states = {"pieces": Listed(), "next": Single()}
    shard = MatchShard(stage, files)
    shard.init(
        SimpleNamespace(  # type: ignore[arg-type]
            getListState=lambda name, _: states[name],
            getValueState=lambda name, _: states[name],
            registerTimer=lambda _: None,
            deleteTimer=lambda _: None,
        )
    )
    return shard


@pytest.fixture
def taking(tmp_path: Path) -> MatchShard:
    """Return a shard that is to take over a run of key "a"."""
    old, new = (StateFiles(Folder(tmp_path / name), "p", 4) for name in ("old", "new"))
    before = made(old)
    advance(before, rows(["a"], 1, 1000), 5_000)
    token = promise(new.storage, "p")
    carry_as_it_is(old, new, token, 3, pieces(before)[b"M"])
    decide_carried(new, token, [3], wake=0)
    return made(replace(new, imported=token))


def woken(shard: MatchShard) -> None:
    timers = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0)
    list(shard.handleInputRows((3,), iter([{"rows": [b""]}]), timers))


def found(shard: MatchShard) -> list[Any]:
    return shard.stage.found  # type: ignore[attr-defined, no-any-return]


def test_a_shard_that_is_woken_ends_its_runs_in_time_without_rows(taking: MatchShard) -> None:
    woken(taking)
    assert taking._alarm.moment == 1000 + HOUR
    assert found(taking) == []
    advance(taking, None, 1000 + HOUR)
    assert found(taking) == [("a", True)]


def test_what_was_taken_over_and_is_gone_does_not_come_back(taking: MatchShard) -> None:
    advance(taking, rows(["a"], 2, 6_000), 7_000)
    assert found(taking) == [("a", False)]
    assert taking.files is not None
    assert load(pieces(taking)[b"M"]).imported == taking.files.imported
    woken(taking)
    advance(taking, rows(["a"], 2, 8_000), 9_000)
    advance(taking, None, 1000 + HOUR)
    assert found(taking) == [("a", False)]


@pytest.mark.parametrize(("batch", "count"), [(0, 0), (1, 1), (2, 1), (3, 0)])
def test_shards_are_woken_right_behind_the_decision(
    taking: MatchShard, monkeypatch: pytest.MonkeyPatch, batch: int, count: int
) -> None:
    context = SimpleNamespace(getLocalProperty=lambda _: str(batch))
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    assert taking.files is not None
    rows = list(waking.waking(packing(None), taking.files)(iter([])))
    assert [one.column(SHARD).to_pylist() for one in rows] == [[3]] * count
