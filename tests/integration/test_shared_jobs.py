"""Engines that share jobs: deployed on one, run by any, moved, taken over; drivers without Spark."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.errors import InvalidOption, InvalidTransition, JobExists, NoSuchJob, WrongNodes
from support.engines import drivers_of, flow_file, rows, until, wait_until, without_spark

pytestmark = pytest.mark.kafka

LEASE_S = 3.0
Engines = Callable[[str], Engine]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    without_spark(monkeypatch)
    made: list[Engine] = []

    def new(name: str) -> Engine:
        made.append(Engine(tmp_path / name, coordination=str(tmp_path / "shared"), lease_s=LEASE_S))
        made[-1].start()
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    return flow_file(tmp_path / "flow", partitions=2)


@pytest.fixture
def journals(kafka: str) -> str:
    return f"kafka://{kafka}/site-{uuid.uuid4().hex[:8]}"


def deploy(engine: Engine, flow: Path, journals: str) -> None:
    engine.deploy(pack(flow), root=str(flow.parent), options={"journals": journals})


def runs(engine: Engine) -> bool:
    return any(one.state is JobState.RUNNING for one in engine.jobs())


def published(flow: Path) -> list[tuple[int, int]]:
    file = flow.parent / "lines"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(epoch), int(process)) for epoch, process in map(str.split, lines)]


def test_a_job_deployed_anywhere_runs_somewhere_and_moves_with_all_its_rows(
    engine: Engines, flow: Path, journals: str
) -> None:
    first = engine("first")
    deploy(first, flow, journals)
    until(first, "counts", JobState.RUNNING)
    assert first.send("counts.events", rows(0, 20)) == 20
    second = engine("second")
    wait_until(lambda: second.tasks().tasks)
    with pytest.raises(JobExists):
        deploy(second, flow, journals)
    with pytest.raises(NoSuchJob, match='job "counts" is not here, but on'):
        second.status("counts")

    first.drain_tasks()
    wait_until(lambda: [one.state for one in first.tasks().moves] == ["moved"])
    assert all(one.pause_s for one in first.tasks().moves), "each pause is measured"
    until(second, "counts", JobState.RUNNING)
    assert first.jobs() == []
    assert second.send("counts.events", rows(20, 50)) == 30
    wait_until(lambda: sum(one.rows for one in second.journals("counts")) == 50)
    assert [epoch for epoch, _ in published(flow)] == list(range(len(published(flow))))

    second.undeploy("counts", force=True)
    wait_until(lambda: not first.tasks().tasks)
    with pytest.raises(NoSuchJob):
        first.status("counts")


def test_a_driver_that_sleeps_longer_than_its_lease_publishes_nothing_when_it_wakes(
    engine: Engines, flow: Path, journals: str
) -> None:
    first = engine("first")
    deploy(first, flow, journals)
    status = until(first, "counts", JobState.RUNNING)
    assert status.pid is not None
    second = engine("second")
    wait_until(lambda: second.tasks().tasks)
    wait_until(lambda: len(published(flow)) > 5)
    first._leases.stop()  # the engine sleeps too: it would end a driver that hangs
    os.kill(status.pid, signal.SIGSTOP)
    until_lost = len(published(flow))
    wait_until(lambda: runs(second))
    wait_until(lambda: len(published(flow)) > until_lost + 5)
    first._leases._look()
    wait_until(lambda: first.jobs() == [], what="the first engine gives it up")
    assert not [one for one in drivers_of(first.data) if one.pid == status.pid]
    found = published(flow)
    assert [epoch for epoch, _ in found] == list(range(len(found))), "each once, in order"
    processes = [process for _, process in found]
    assert processes == sorted(processes, key=processes.index), "nobody comes back"


def test_a_driver_that_hangs_on_the_only_engine_is_ended_and_started_again(
    engine: Engines, flow: Path, journals: str
) -> None:
    first = engine("first")
    deploy(first, flow, journals)
    status = until(first, "counts", JobState.RUNNING)
    assert status.pid is not None
    wait_until(lambda: len(published(flow)) > 5)
    os.kill(status.pid, signal.SIGSTOP)
    wait_until(lambda: not psutil.pid_exists(status.pid or 0), what="it is ended")
    before = len(published(flow))
    wait_until(lambda: len(published(flow)) > before + 5)
    found = published(flow)
    assert [epoch for epoch, _ in found] == list(range(len(found))), "each once, in order"
    reasons = [one.detail for one in first.history("counts")]
    assert "the driver has not renewed its lease for 3 s" in reasons


def test_a_drained_job_stays_drained_whoever_dies_and_any_engine_resumes_it(
    engine: Engines, flow: Path, journals: str
) -> None:
    first = engine("first")
    deploy(first, flow, journals)
    until(first, "counts", JobState.RUNNING)
    first.drain("counts-1")
    until(first, "counts", JobState.DRAINED)
    wait_until(lambda: first._leases.settled("counts") == "drained")
    first.close()
    second = engine("second")
    wait_until(lambda: [one.state for one in second.tasks().tasks] == ["drained"])
    assert second.drain("counts-1").state is JobState.DRAINED
    with pytest.raises(InvalidTransition, match='job "counts" is drained, and rests'):
        second.drain("counts", flush=True)
    second.resume("counts-1")
    wait_until(lambda: runs(second))
    assert second.send("counts.events", rows(0, 5)) == 5

    second.drain("counts")
    wait_until(lambda: second._leases.settled("counts") == "drained")
    second.drain("counts", flush=True)
    wait_until(lambda: second._leases.settled("counts") == "finished")
    second.close()
    third = engine("third")
    wait_until(lambda: [one.state for one in third.tasks().tasks] == ["finished"])
    with pytest.raises(InvalidTransition, match="has finished"):
        third.resume("counts-1")
    assert third.undeploy("counts-1").state is JobState.UNDEPLOYED


def test_an_engine_that_is_started_again_goes_on_with_what_was_its(
    engine: Engines, flow: Path, journals: str
) -> None:
    first = engine("first")
    deploy(first, flow, journals)
    until(first, "counts", JobState.RUNNING)
    first.send("counts.events", rows(0, 5))
    first.close()
    again = engine("first")
    wait_until(lambda: runs(again))
    assert again.send("counts.events", rows(5, 10)) == 5
    wait_until(lambda: sum(one.rows for one in again.journals("counts")) == 10)


def test_what_would_be_on_one_engine_alone_is_refused(
    engine: Engines, flow: Path, tmp_path: Path
) -> None:
    first = engine("first")
    with pytest.raises(InvalidOption, match='keep its journals in Kafka, and "events" would not'):
        first.deploy(pack(flow), root=str(flow.parent))
    assert first.tasks().tasks == ()
    assert not list(first.data.glob("packages/*"))
    with pytest.raises(WrongNodes, match="have no numbers"):
        Engine(tmp_path / "other", of=2, coordination=str(tmp_path / "shared")).start()
