"""What a group does when another driver has written to its checkpoint, or has taken its job."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import TakenOver
from millstream.joblog import Decided, JobLog, State
from millstream.journal import journal_at
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.sink import GroupSink, Input
from millstream.spark.io.targets import Epoch, Target, decided_offsets
from millstream.storage import Folder

SENDER = "shop/sums/abc"


class Rows:
    """A batch of which nobody looks at the rows."""

    def drop(self, *names: str) -> Rows:
        return self


class Noting(Target):
    """Notes which epochs it writes, or only reads if it has nothing to publish."""

    def __init__(self, *, decides: bool = False) -> None:
        self.decides = decides  # type: ignore[misc]
        self.written: list[int] = []

    def write(self, frame: Any, epoch: Epoch) -> int:
        self.written.append(epoch.batch)
        return 0


def logged(position: int, generation: int | None) -> str:
    """Return what Spark logs for a batch that a driver has planned."""
    offset = {"journal": "events", "positions": [position], "floor": None, "starts": 1}
    if generation is not None:
        offset["generation"] = generation
    return f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}\n'


def claimed(folder: Path) -> JobLog:
    log = JobLog(Folder(folder))
    log.claim(wait=lambda _: None)
    return log


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    journal_at(tmp_path / "events").create(pa.schema([("v", pa.int64())]))
    return Checkpoint(tmp_path / "sums", "sums", "abc", {})


def plan(checkpoint: Checkpoint, batch: int, text: str) -> None:
    """Write offsets as Spark does, with the checksum that Hadoop keeps beside them."""
    file = checkpoint.location / "offsets" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.with_name(f".{batch}.crc").write_bytes(b"crc")


def sink_of(checkpoint: Checkpoint, log: JobLog, *targets: Target) -> GroupSink:
    source = Input("events", checkpoint.folder.parent / "events", None, 0, grouped=False)
    inputs = {"events": source}
    sink = GroupSink("shop", checkpoint, targets, inputs, stateful=False, behind=timedelta(0))
    sink.log = log
    return sink


def names(checkpoint: Checkpoint) -> set[str]:
    return {path.name for path in (checkpoint.location / "offsets").iterdir()}


FRAME: Any = Rows()


# restoring


def test_offsets_that_are_as_decided_stay_with_those_after_them(checkpoint: Checkpoint) -> None:
    for batch in (6, 7, 8):
        plan(checkpoint, batch, logged(batch, 3))
    assert not checkpoint.restore(7, logged(7, 3))
    assert names(checkpoint) == {"6", "7", "8", ".6.crc", ".7.crc", ".8.crc"}


def test_offsets_that_another_driver_has_overwritten_are_put_back(checkpoint: Checkpoint) -> None:
    for batch, generation in ((6, 3), (7, 1), (8, 1)):
        plan(checkpoint, batch, logged(batch, generation))
    assert checkpoint.restore(7, logged(70, 3))
    assert checkpoint.offsets(7) == logged(70, 3)
    # What was planned after other offsets is planned again, and no checksum contradicts them.
    assert names(checkpoint) == {"6", ".6.crc", "7"}


def test_offsets_that_are_missing_are_put_back(checkpoint: Checkpoint) -> None:
    assert checkpoint.restore(0, logged(5, 3))
    assert checkpoint.offsets(0) == logged(5, 3)


def test_a_start_restores_the_last_batch_and_the_one_before_it(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    first = claimed(tmp_path)
    for batch in range(20):
        first.decide(f"{SENDER}#a", Decided(batch, "", logged(batch, 0)))
    # The other target has had nothing to publish since: Spark has removed those offsets.
    first.decide(f"{SENDER}#b", Decided(3, "", logged(3, 0)))
    for batch in (10, 17, 18, 19, 20):
        plan(checkpoint, batch, logged(1000, 1))
    sink_of(checkpoint, claimed(tmp_path)).recover()
    assert names(checkpoint) == {"10", ".10.crc", "17", ".17.crc", "18", "19"}
    assert checkpoint.offsets(18) == logged(18, 0)
    assert checkpoint.offsets(19) == logged(19, 0)


def test_the_offsets_that_stand_are_those_of_the_last_two_epochs_of_a_sender() -> None:
    def decided(**epochs: int) -> dict[str, Decided]:
        return {
            f"{SENDER}#{name}": Decided(epoch, "", f"at {epoch}") for name, epoch in epochs.items()
        }

    assert decided_offsets(State(), SENDER) == {}
    assert decided_offsets(State(decided=decided(a=4)), "shop/sums/other") == {}
    assert decided_offsets(State(decided=decided(a=4)), SENDER) == {4: "at 4"}
    assert decided_offsets(State(decided=decided(a=4, b=5, c=1)), SENDER) == {4: "at 4", 5: "at 5"}
    assert decided_offsets(State(decided=decided(b=5, a=4)), SENDER) == {4: "at 4", 5: "at 5"}
    before = {f"{SENDER}#a": "before 4"}
    assert decided_offsets(State(decided=decided(a=4), before=before), SENDER) == {
        3: "before 4",
        4: "at 4",
    }


def test_a_log_knows_the_offsets_before_the_last_decision_only_if_they_were_decided(
    tmp_path: Path,
) -> None:
    log = claimed(tmp_path)
    log.decide("a", Decided(4, "", "at 4"))
    assert log.state.before == {"a": ""}
    log.decide("a", Decided(5, "", "at 5"))
    log.decide("b", Decided(5, "", "at 5"))
    assert log.state.before == {"a": "at 4", "b": ""}
    log.decide("a", Decided(8, "", "at 8"))
    assert claimed(tmp_path).state.before == {"a": "", "b": ""}


# publishing


@pytest.mark.parametrize("decides", [False, True])
def test_a_batch_of_ones_own_is_published_and_decided_with_its_offsets(
    checkpoint: Checkpoint, tmp_path: Path, decides: bool
) -> None:
    log, target = claimed(tmp_path), Noting(decides=decides)
    sink = sink_of(checkpoint, log, target)
    sink.recover()
    for batch in range(2):
        plan(checkpoint, batch, logged(batch, log.generation))
        sink(FRAME, batch)
    assert target.written == [0, 1]
    stands = {batch: logged(batch, log.generation) for batch in range(2)}
    assert decided_offsets(claimed(tmp_path).state, SENDER) == stands


def test_a_batch_of_a_group_without_targets_is_decided_too(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    log = claimed(tmp_path)
    plan(checkpoint, 0, logged(0, log.generation))
    sink_of(checkpoint, log)(FRAME, 0)
    assert decided_offsets(log.state, SENDER) == {0: logged(0, log.generation)}


def test_offsets_that_another_driver_has_written_meanwhile_are_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    log, target = claimed(tmp_path), Noting()
    sink = sink_of(checkpoint, log, target)
    sink.recover()
    plan(checkpoint, 0, logged(5, log.generation + 1))
    with pytest.raises(TakenOver, match="another driver has written the offsets of batch 0"):
        sink(FRAME, 0)
    assert target.written == []
    assert log.state.decided == {}


def test_a_batch_that_was_logged_before_this_start_runs_as_it_was_logged(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    first = claimed(tmp_path)
    plan(checkpoint, 0, logged(5, first.generation))
    log, target = claimed(tmp_path), Noting()
    sink = sink_of(checkpoint, log, target)
    sink.recover()
    sink(FRAME, 0)
    assert target.written == [0], "another generation has planned it, and this one runs it again"
    assert decided_offsets(log.state, SENDER) == {0: logged(5, first.generation)}


def test_a_batch_that_was_logged_before_this_start_and_has_changed_since_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    first = claimed(tmp_path)
    plan(checkpoint, 0, logged(5, first.generation))
    log, target = claimed(tmp_path), Noting()
    sink = sink_of(checkpoint, log, target)
    sink.recover()
    plan(checkpoint, 0, logged(9, first.generation))
    with pytest.raises(TakenOver, match="another driver has written"):
        sink(FRAME, 0)
    assert target.written == []


@pytest.mark.parametrize("decides", [False, True])
def test_a_driver_that_was_replaced_ends_its_batch_undecided(
    checkpoint: Checkpoint, tmp_path: Path, decides: bool
) -> None:
    log, target = claimed(tmp_path), Noting(decides=decides)
    sink = sink_of(checkpoint, log, target)
    sink.recover()
    plan(checkpoint, 0, logged(5, log.generation))
    second = claimed(tmp_path)
    with pytest.raises(TakenOver, match="has taken over the job"):
        sink(FRAME, 0)
    assert isinstance(sink.error, TakenOver)
    assert target.written == ([0] if decides else []), "one that decides asks before it publishes"
    assert second.state.decided == {}
