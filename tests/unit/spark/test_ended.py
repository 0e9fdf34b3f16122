"""That a flow has ended is known without Spark, and only if nothing has changed since."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import millstream as ms
from millstream import ingest
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.ingest import IngestStatistics
from millstream.journal import Kind, journal_at
from millstream.plan.groups import plan
from millstream.spark import ended
from millstream.spark.ended import ended_before, note_end
from millstream.spark.flow_run import RunStatistics
from millstream.spark.run.query import GroupStatistics
from support.links import batch

GROUP = GroupStatistics("rows", 4, 70, 60, 0.5, 10**13, 0, 0.0, 9, finished=True)
SOURCE = IngestStatistics(70, 1, 900, ended=True, error=None)
NUMBERS = RunStatistics((GROUP,), {"s": SOURCE}, late=1, dead=2, ended=True)


def flow(*, target: object = None, partitions: int = 1) -> Flow:
    made = Flow("f")
    source = ms.inbox("origin string, n long, at timestamp")
    rows = made.source("s", source, time="at", key="origin", partitions=partitions)
    rows.sink("rows", target or ms.jsonl("out"))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data of a flow that has ended."""
    stage = flow().stages["s"]
    assert isinstance(stage, Source)
    path = tmp_path / "journals" / "s"
    ingest.declare(stage, path)
    with journal_at(path).writer() as writer:
        writer.append("me", 0, batch(0, 5))
        writer.instruct(Kind.END_OF_STREAM)
    write_group(tmp_path)
    note_end(plan(flow()), tmp_path, NUMBERS, "1")
    return tmp_path


def write_group(folder: Path, checkpoint: str = "abc") -> None:
    group = folder / "groups" / "rows"
    group.mkdir(parents=True, exist_ok=True)
    (group / "group.json").write_text(json.dumps({"checkpoint": checkpoint, "description": {}}))


def test_a_flow_that_has_ended_shows_the_numbers_of_a_run_that_did_nothing(folder: Path) -> None:
    found = ended_before(plan(flow()), folder, "1")
    assert found is not None
    assert found.groups == (replace(GROUP, rows_in=0, rows_out=0, batch_seconds=0.0, state_rows=0),)
    assert found.sources == {"s": replace(SOURCE, rows=0, refused=0, bytes=0)}
    assert (found.late, found.dead, found.ended) == (1, 2, True)


def lose_note(folder: Path) -> None:
    (folder / "ended.json").unlink()


def damage_note(folder: Path) -> None:
    (folder / "ended.json").write_bytes((folder / "ended.json").read_bytes()[:-9])


def another_checkpoint(folder: Path) -> None:
    write_group(folder, "other")


def lose_checkpoint(folder: Path) -> None:
    (folder / "groups/rows/group.json").unlink()


def lose_journal(folder: Path) -> None:
    (folder / "journals/s/journal.json").unlink()


CHANGES: list[Callable[[Path], None]] = [
    *(lose_note, damage_note, another_checkpoint, lose_checkpoint, lose_journal),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_whatever_has_changed_is_left_to_spark(
    folder: Path, change: Callable[[Path], None]
) -> None:
    change(folder)
    assert ended_before(plan(flow()), folder, "1") is None


def test_another_source_or_sink_is_left_to_spark(folder: Path) -> None:
    for other in (flow(partitions=2), flow(target=ms.jsonl("elsewhere"))):
        assert ended_before(plan(other), folder, "1") is None


def test_so_is_another_version_of_millstream(folder: Path) -> None:
    assert ended_before(plan(flow()), folder, "2") is None


def test_so_is_a_flow_that_was_switched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended.SwitchLog, "read", lambda _self: "a record")
    assert ended_before(plan(flow()), folder, "1") is None


def test_nothing_is_noted_of_a_flow_that_goes_on_elsewhere_or_has_not_ended(tmp_path: Path) -> None:
    stage = flow().stages["s"]
    assert isinstance(stage, Source)
    path = tmp_path / "journals" / "s"
    ingest.declare(stage, path)
    write_group(tmp_path)
    note_end(plan(flow()), tmp_path, NUMBERS, "1")
    assert not (tmp_path / "ended.json").exists()
    with journal_at(path).writer() as writer:
        writer.instruct(Kind.END_OF_STREAM)
    outbox = ms.outbox("tcp://127.0.0.1:7", "g.s", end=True)
    note_end(plan(flow(target=outbox)), tmp_path, NUMBERS, "1")
    assert not (tmp_path / "ended.json").exists()
