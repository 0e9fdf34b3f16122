"""The keeper of leases over a folder: who takes which job, who loses it, what all engines know."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.leases.claims import Claims
from millstream.engine.leases.coordination import Coordination, Presence, TakenJob
from millstream.engine.leases.keeper import Here, LeaseKeeper
from millstream.engine.leases.same_host import ended, space
from millstream.errors import InvalidStorage, JobExists, TakenOver
from millstream.joblog import JobLog, Lease
from millstream.storage import storage_at
from support.engines import wait_until

LEASE_S = 1.5


class Runs:
    """The jobs of an engine without an engine: a driver is its claim."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keeper: LeaseKeeper | None = None
        self.states: dict[str, JobState] = {}
        self.drivers: dict[str, JobLog] = {}
        self.lost: list[str] = []
        self.stopped: list[str] = []
        self.restarted: list[str] = []
        self.taken: list[TakenJob] = []
        self.hangs = False
        self.broken = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def here(self) -> dict[str, Here]:
        return {name: Here(state, name in self.drivers) for name, state in self.states.items()}

    def adopt(self, taken: TakenJob) -> None:
        if self.broken:
            raise RuntimeError("it cannot run here")
        assert taken.package == b"package"
        assert self.keeper is not None
        name = taken.deployment.name
        self.taken.append(taken)
        self.drive(name, self.keeper.claims.lease(name))
        self.states[name] = JobState.RUNNING

    def drive(self, name: str, lease: Lease) -> None:
        log = JobLog(
            storage_at(f"{lease.storage}/{name}"),
            renew_every=lease.renew_every,
            engine=lease.engine,
        )
        log.follow(lease)
        self.drivers[name] = log

    def stop(self, job: str) -> None:
        self.stopped.append(job)
        self.drivers.pop(job, None)

    def restart(self, job: str, why: str) -> None:
        self.restarted.append(f"{job}: {why}")
        self.drivers.pop(job, None)

    def lose(self, job: str, why: str) -> None:
        self.lost.append(f"{job}: {why}")
        self.drivers.pop(job, None)
        self.states.pop(job, None)

    def _renew(self) -> None:
        while not self._over.wait(0.05):
            for name, log in [] if self.hangs else list(self.drivers.items()):
                try:
                    log.renew()
                except TakenOver:
                    self.drivers.pop(name, None)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


class Node:
    """An engine as far as leases go."""

    def __init__(self, folder: Path, name: str) -> None:
        self.runs = Runs(folder)
        shared = Coordination(str(folder), LEASE_S, clock=SystemClock())
        self.keeper = self.runs.keeper = LeaseKeeper(shared, name, self.runs)
        self.keeper.url = f"http://{name}"
        self.keeper.start()

    @property
    def jobs(self) -> set[str]:
        return set(self.runs.drivers)

    def fall_asleep(self) -> None:
        """Stop everything, as a signal would: nothing is renewed, nothing released."""
        self.keeper.stop()
        self.runs.close()

    def close(self) -> None:
        self.keeper.stop()
        self.runs.drivers.clear()
        self.keeper.leave()
        self.runs.close()


Nodes = Callable[[str], Node]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Nodes]:
    made: list[Node] = []

    def new(name: str) -> Node:
        made.append(Node(tmp_path / "shared", name))
        return made[-1]

    yield new
    for one in made:
        one.close()


def deploy(node: Node, *names: str) -> None:
    for name in names:
        node.keeper.claims.deploy(name, b"package", None, {})


def test_a_job_deployed_on_one_engine_is_known_to_all(node: Nodes) -> None:
    first, second = node("first"), node("second")
    deploy(first, "shop")
    wait_until(lambda: second.keeper.tasks())
    with pytest.raises(JobExists):
        deploy(second, "shop")
    wait_until(lambda: first.jobs | second.jobs == {"shop"})
    holder = "first" if first.jobs else "second"
    wait_until(lambda: second.keeper.tasks()[0].state == "running")
    (task,) = second.keeper.tasks()
    assert (task.job, task.engine, task.url) == ("shop", holder, f"http://{holder}")
    assert task.next == ({"first", "second"} - {holder}).pop()
    assert task.generation is not None
    assert task.since is not None


def test_jobs_are_spread_and_stay_where_they_are(node: Nodes) -> None:
    first, second = node("first"), node("second")
    wait_until(lambda: len(first.keeper.others()) == 1 and len(second.keeper.others()) == 1)
    deploy(first, "a", "b", "c", "d")
    wait_until(lambda: len(first.jobs | second.jobs) == 4)
    assert {len(first.jobs), len(second.jobs)} <= {1, 2, 3}, "no engine has them all"
    before = first.jobs, second.jobs
    third = node("third")
    beats = second.keeper._beat
    wait_until(lambda: second.keeper._beat > beats + 4)
    assert (first.jobs, second.jobs, third.jobs) == (*before, set())


def test_the_jobs_of_an_engine_that_sleeps_are_taken_and_it_gives_them_up(node: Nodes) -> None:
    first = node("first")
    deploy(first, "shop")
    wait_until(lambda: first.jobs == {"shop"})
    second = node("second")
    sleeper = first.runs.drivers["shop"]
    first.fall_asleep()
    wait_until(lambda: second.jobs == {"shop"})
    with pytest.raises(TakenOver, match="has taken over the job"):
        sleeper.renew(now=True)
    first.keeper._look()  # it is awake again
    assert first.runs.lost == ["shop: engine second has taken over the job"]
    assert second.jobs == {"shop"}


def test_an_engine_holds_a_job_whose_driver_is_away(node: Nodes) -> None:
    first, second = node("first"), node("second")
    deploy(first, "shop")
    wait_until(lambda: first.jobs | second.jobs)
    holder, other = (first, second) if first.jobs else (second, first)
    holder.runs.drivers.clear()
    beats = other.keeper._beat
    wait_until(lambda: other.keeper._beat > beats + 5)
    assert other.jobs == set()
    wait_until(lambda: holder.keeper.claims.generation("shop") is not None)
    holder.runs.drive("shop", holder.keeper.claims.lease("shop"))


def test_a_driver_that_hangs_on_the_only_engine_is_started_again(node: Nodes) -> None:
    first = node("first")
    deploy(first, "shop")
    wait_until(lambda: first.jobs)
    first.runs.hangs = True
    wait_until(lambda: first.runs.restarted)
    assert first.runs.restarted == ["shop: the driver has not renewed its lease for 1.5 s"]
    wait_until(lambda: first.keeper.claims.generation("shop") is not None)
    first.runs.hangs = False
    first.runs.drive("shop", first.keeper.claims.lease("shop"))
    beats = first.keeper._beat
    wait_until(lambda: first.keeper._beat > beats + 5)
    assert first.jobs == {"shop"}
    assert len(first.runs.restarted) == 1


def left_by(folder: Path, process: int, there: str) -> None:
    """Leave a job as an engine in a process does that is killed."""
    shared = Coordination(str(folder), LEASE_S, clock=SystemClock())
    Claims(shared, "killed").deploy("shop", b"package", None, {})
    shared.log("shop", "killed").claim()
    shared.show(Presence(id="killed", beat=1, cores=2, process=process, space=there))


@pytest.mark.parametrize("same_host", [True, False], ids=["on this host", "elsewhere"])
def test_an_engine_whose_process_has_ended_is_waited_for_only_if_it_was_elsewhere(
    node: Nodes, tmp_path: Path, same_host: bool
) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    left_by(tmp_path / "shared", process.pid, space() if same_host else "another start of a host")
    first = node("first")
    wait_until(lambda: first.jobs)
    assert (first.keeper._beat <= 3) is same_host


def test_a_process_has_ended_if_it_is_gone_or_waits_for_its_parent() -> None:
    child = subprocess.Popen(["sleep", "100"])
    assert not ended(child.pid, space())
    child.kill()
    wait_until(lambda: ended(child.pid, space()), what="nobody has waited for it")
    child.wait()
    assert ended(child.pid, space())
    assert not ended(child.pid, "elsewhere")
    assert not ended(0, "")


def test_a_job_that_rests_is_run_again_when_it_is_resumed(node: Nodes) -> None:
    first = node("first")
    deploy(first, "shop")
    wait_until(lambda: first.jobs)
    first.runs.drivers.clear()
    first.runs.states["shop"] = JobState.DRAINED
    wait_until(lambda: first.keeper.settled("shop") == "drained")
    second = node("second")
    beats = second.keeper._beat
    wait_until(lambda: second.keeper._beat > beats + 5)
    assert second.jobs == set(), "nobody is to run it"
    assert second.keeper.tasks()[0].state == "drained"
    first.fall_asleep()
    second.keeper.claims.resume("shop")
    wait_until(lambda: second.jobs == {"shop"})


def test_an_engine_that_stops_gives_its_jobs_away_at_once(node: Nodes) -> None:
    first = node("first")
    deploy(first, "shop")
    wait_until(lambda: first.jobs)
    second = node("second")
    wait_until(lambda: second.keeper.tasks())
    first.close()
    beats = second.keeper._beat
    wait_until(lambda: second.jobs == {"shop"})
    assert second.keeper._beat <= beats + 2, "nobody waits for who has left"


def test_draining_moves_jobs_one_by_one_and_measures_the_pause(node: Nodes) -> None:
    first = node("first")
    deploy(first, "a", "b")
    wait_until(lambda: first.jobs == {"a", "b"})
    first.keeper.moves.begin()
    beats = first.keeper._beat
    wait_until(lambda: first.keeper._beat > beats + 3)
    assert first.jobs == {"a", "b"}, "there is nobody to take them"
    second = node("second")
    wait_until(lambda: [one.state for one in first.keeper.moves.so_far] == ["moved"] * 2)
    assert first.runs.stopped == ["a", "b"]
    assert second.jobs == {"a", "b"}
    assert all(one.to == "second" and one.pause_s for one in first.keeper.moves.so_far)


def test_a_job_that_cannot_run_here_is_left_to_others(node: Nodes) -> None:
    first = node("first")
    first.runs.broken = True
    deploy(first, "shop")
    wait_until(lambda: first.keeper.tasks() and first.keeper.tasks()[0].reason)
    assert first.keeper.tasks()[0].reason == "it cannot run here"
    second = node("second")
    wait_until(lambda: second.jobs == {"shop"})


def test_a_job_that_is_undeployed_is_gone_everywhere(node: Nodes) -> None:
    first, second = node("first"), node("second")
    deploy(first, "shop")
    wait_until(lambda: first.jobs | second.jobs)
    holder, other = (first, second) if first.jobs else (second, first)
    wait_until(lambda: other.keeper.tasks() and other.keeper.tasks()[0].engine is not None)
    with pytest.raises(TakenOver):
        other.keeper.claims.undeploy("shop", purge=False)
    driver = holder.runs.drivers["shop"]
    with holder.keeper.aside("shop"):
        holder.runs.lose("shop", "asked")
        holder.keeper.claims.undeploy("shop", purge=False)
    with pytest.raises(TakenOver):
        driver.renew(now=True)
    wait_until(lambda: not first.keeper.tasks() and not second.keeper.tasks())
    deploy(other, "shop")
    wait_until(lambda: len(first.jobs | second.jobs) == 1)


def test_an_engine_without_a_wish_has_the_lease_of_the_others(tmp_path: Path) -> None:
    place = str(tmp_path / "shared")
    assert Coordination(place, 15.0, clock=SystemClock()).lease_s == 15.0
    assert Coordination(place, clock=SystemClock()).lease_s == 15.0
    assert Coordination(str(tmp_path / "new"), clock=SystemClock()).lease_s == 9.0


def test_engines_with_other_leases_are_refused(node: Nodes, tmp_path: Path) -> None:
    node("first")
    with pytest.raises(InvalidStorage, match=r"leases of 1\.5 s"):
        Coordination(str(tmp_path / "shared"), 15.0, clock=SystemClock())
