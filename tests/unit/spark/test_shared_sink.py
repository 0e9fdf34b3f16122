"""What members of a shared query write: files of all at once, and checkpoints as Spark's own."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.control import Control, Orders
from millstream.spark.io.shared_sink import (
    MARK_EVERY_S,
    Member,
    SharedSink,
    commit,
    common_text,
    log,
    place_of,
)
from millstream.spark.io.sink import GroupSink
from millstream.spark.io.sink_rows import SinkRows
from millstream.spark.io.source import Offset, plain
from millstream.spark.io.staging import StageFiles, StageMany
from millstream.spark.run.shared_query import Standing, may_share, standing_of
from millstream.storage import put_together


def text(*positions: int, starts: int = 1, first: tuple[int, ...] | None = None) -> str:
    offset = Offset("rows", positions, 5, starts, first)
    return "\n".join(("v1", '{"batchWatermarkMs":7}', json.dumps(plain(offset))))


def place(*positions: int) -> Offset:
    return Offset("rows", positions, 5, 0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path, "sums", "abc", {})


def member(checkpoint: Checkpoint, orders: Orders | None = None) -> Member:
    sink = GroupSink("shop", checkpoint, [], {}, stateful=False, behind=timedelta(0))
    return Member(sink, orders or Orders(), ())


def sinks() -> tuple[SinkRows, ...]:
    return (
        SinkRows("flags", 1, ("c0",), ("n",), (False,)),
        SinkRows("flags", 2, ("c1", "c0"), ("w", "number"), (True, True)),
        SinkRows("flags", 4, ("c1",), ("w",), (True,)),
    )


def test_a_task_writes_a_file_for_each_sink_that_has_rows(tmp_path: Path) -> None:
    works = tuple(StageFiles(str(tmp_path), name, "parquet") for name in "abc")
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([1, 2, 3, 3]),
                pa.array([1, None, 3, 4]),
                pa.array([None, None, "x", "y"]),
            ],
            names=["flags", "c0", "c1"],
        ).slice(skipped)
        for skipped in (0, 1)
    ]
    found = list(StageMany(sinks(), works).write(iter(batches)))
    answer = pa.Table.from_batches(found)
    assert answer.column("sink").to_pylist() == [0, 1]
    assert answer.column("rows").to_pylist() == [5, 6]
    first, second = (pq.read_table(tmp_path / name) for name in answer.column("file").to_pylist())
    assert first.column("n").to_pylist() == [1, 3, 4, 3, 4]
    assert first.schema == pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert second.column_names == ["w", "number"]
    assert second.column("w").to_pylist() == [None, "x", "y"] * 2
    assert len(list(tmp_path.glob("*.parquet"))) == 2, "no file for no rows"


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def batches():
        columns = [pa.array([1]), pa.array([5]), pa.array(["x"])]
        yield pa.RecordBatch.from_arrays(columns, names=["flags", "c0", "c1"])
        raise ValueError

    works = tuple(StageFiles(str(tmp_path), name, "parquet") for name in "abc")
    with pytest.raises(ValueError):
        list(StageMany(sinks(), works).write(batches()))
    assert not list(tmp_path.glob("*.parquet"))


def test_a_member_logs_and_commits_under_its_own_numbers(checkpoint: Checkpoint) -> None:
    one = member(checkpoint)
    assert standing_of(checkpoint) == Standing(None, None)
    logged = log([one], text(3), 10)
    assert checkpoint.offsets(0) == text(3), "as Spark has written it"
    assert standing_of(checkpoint) == Standing(None, place(3))
    commit([one], logged)
    assert standing_of(checkpoint) == Standing(place(3), None)
    assert checkpoint.commits(0) == 'v1\n{"nextBatchWatermarkMs": 7}'
    assert one.batch == member(checkpoint).batch == 1
    assert json.loads((checkpoint.location / "metadata").read_text())["id"]


def test_what_a_member_has_logged_stays(checkpoint: Checkpoint) -> None:
    log([member(checkpoint)], text(3), 10)
    (again,) = log([member(checkpoint)], text(9), 10)
    assert again.offsets["rows"].positions == (3,)


def test_older_batches_are_removed_as_spark_does(checkpoint: Checkpoint) -> None:
    one = member(checkpoint)
    for number in range(5):
        commit([one], log([one], text(number), 3))
    assert [checkpoint.offsets(batch) is not None for batch in range(5)] == [
        False,
        False,
        *3 * [True],
    ]
    assert not checkpoint.commits(1)


def test_a_member_logs_what_a_switch_has_given_it(checkpoint: Checkpoint) -> None:
    put_together([checkpoint.offsets_file(0, text(2, first=(1,))), checkpoint.commit_file(0, 7)])
    owns = ((20, None, 0, 1 << 20),)
    one = member(checkpoint, Orders(owns=owns, starts=((20, "at"),)))
    log([one], text(3), 10)
    found = checkpoint.logged(1)
    assert found is not None
    offset = found.offsets["rows"]
    assert (offset.first, offset.owns, offset.owned_by) == ((1,), owns, ((20, "at"),))
    assert place_of(found) == place(3)
    shared = common_text(checkpoint.offsets(1) or "").split("\n")[2]
    assert msgspec.json.decode(shared, type=Offset) == Offset("rows", (3,), 5, 1)


def test_a_version_shares_a_query_once_it_has_begun_where_it_was_told_to(
    checkpoint: Checkpoint,
) -> None:
    sink = SimpleNamespace(log=None)
    control = Control(checkpoint.location)
    query: Any = SimpleNamespace(
        checkpoint=checkpoint, control=control, paired=False, careful=False, sink=sink, spark=None
    )
    assert may_share(query)
    control.order(Orders(first={"rows": (7,)}))
    assert not may_share(query)
    put_together([checkpoint.offsets_file(0, text(0)), checkpoint.commit_file(0, 7)])
    assert not may_share(query), "it has run an empty batch at the beginning of the journal"
    begun = text(9, first=(7,))
    put_together([checkpoint.offsets_file(1, begun), checkpoint.commit_file(1, 7)])
    assert may_share(query)


def test_members_log_and_commit_one_file_with_a_name_in_each_checkpoint(tmp_path: Path) -> None:
    checkpoints = [Checkpoint(tmp_path / name, name, "abc", {}) for name in "ab"]
    members = [member(one) for one in checkpoints]
    commit(members, log(members, text(3), 10))
    for file in ("offsets/0", "commits/0"):
        first, second = ((one.location / file).stat() for one in checkpoints)
        assert first.st_ino == second.st_ino
    commit(members[:1], log(members[:1], text(4), 10))
    assert standing_of(checkpoints[0]) == Standing(place(4), None)
    assert standing_of(checkpoints[1]) == Standing(place(3), None)


def test_journals_learn_how_far_members_have_read_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(GroupSink, "mark_read", lambda _, logged: noted.append(logged.batch))
    one = member(Checkpoint(tmp_path, "sums", "abc", {}))
    shared = SharedSink("shared", "shop", tmp_path, [one], 10)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for batch in range(5):
        commit([one], log([one], text(batch), 10))
        shared.mark_read([one])
        now += MARK_EVERY_S / 2
    assert noted == [0, 2, 4]
