"""An engine with real processes, files and sockets around drivers that run no Spark."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.engine import job_runner, orders
from millstream.engine.engine import Engine
from millstream.engine.jobs import lifecycle
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.engine.jobs.status import Peer
from millstream.engine.leases.loads import EngineLoad
from millstream.errors import (
    ActionInUse,
    EngineClosed,
    EngineRunning,
    InvalidName,
    InvalidOption,
    InvalidTransition,
    JobBusy,
    JobExists,
    JobsRunning,
    NoAnswer,
    NoSuchAction,
    NoSuchJob,
    NotLoadable,
    NotThere,
    StoreBroken,
    WrongNodes,
)
from millstream.links.client import connect
from millstream.links.host import Listening
from support.checkpoints import DESCRIPTION, ID, shop, written
from support.engines import (
    drivers_of,
    flow_file,
    open_files,
    rows,
    until,
    wait_until,
    without_spark,
)

RUNNING, DRAINED, FINISHED, FAILED = (
    JobState.RUNNING,
    JobState.DRAINED,
    JobState.FINISHED,
    JobState.FAILED,
)


@pytest.fixture(autouse=True)
def sparkless(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    one = Engine(tmp_path / "data")
    one.start()
    yield one
    one.close()
    assert drivers_of(tmp_path / "data") == []


def deployed(engine: Engine, root: Path, name: str = "counts", partitions: int = 1) -> None:
    engine.deploy(pack(flow_file(root, name, partitions)), root=str(root))
    until(engine, name, RUNNING)


def test_a_job_is_deployed_fed_drained_resumed_flushed_and_undeployed(
    engine: Engine, tmp_path: Path
) -> None:
    deployed(engine, tmp_path / "flow", partitions=2)
    status = engine.status("counts-1")
    assert (status.id, status.name, status.state, status.restarts) == (
        "counts-1",
        "counts",
        RUNNING,
        0,
    )
    assert [(one.source, one.partition) for one in status.inboxes] == [("events", 0), ("events", 1)]
    assert engine.send("counts.events", rows(0, 10)) == 10
    assert engine.status("counts").sources["events"].rows == 10
    with pytest.raises(JobBusy, match='job "counts" is running'):
        engine.undeploy("counts")
    with pytest.raises(JobsRunning, match="1 job runs: counts"):
        engine.stop()
    assert engine.drain("counts").state is JobState.DRAINING
    drained = engine.wait("counts", 240)
    assert (drained.state, drained.unprocessed, drained.inboxes[0].free) == (DRAINED, 0, 0)
    with pytest.raises(NoAnswer):
        engine.send("counts.events", rows(10, 11), timeout=0.3)
    engine.resume("counts")
    until(engine, "counts", RUNNING)
    engine.drain("counts", flush=True)
    assert engine.wait("counts", 240).state is FINISHED
    with pytest.raises(InvalidTransition, match="has finished"):
        engine.resume("counts")
    assert sum(part.rows for part in engine.journals("counts")[0].partitions) == 11
    assert engine.undeploy("counts").state is JobState.UNDEPLOYED
    assert engine.jobs() == []
    assert (tmp_path / "data/jobs/counts/counts/journals/events").is_dir(), (
        "journals stay unless they are purged"
    )
    states = [one.what for one in engine.history("counts-1")]
    begun = [
        "deployed",
        "running",
        "draining",
        "drained",
        "starting",
        "running",
        "draining",
        "finished",
        "undeployed",
    ]
    assert states == begun
    engine.stop()
    assert engine.stopped.is_set()


def test_a_driver_that_is_killed_is_started_again_while_events_are_taken(
    engine: Engine, tmp_path: Path
) -> None:
    deployed(engine, tmp_path / "flow")
    pid = engine.status("counts").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert engine.send("counts.events", rows(0, 5)) == 5
    wait_until(lambda: engine.status("counts").restarts == 1)
    again = until(engine, "counts", RUNNING)
    assert again.pid != pid
    assert "restarting" in [one.what for one in engine.history("counts")]
    assert "the driver was killed by SIGKILL" in [one.detail for one in engine.history("counts")]
    # What a driver prints comes another way than what it reports.
    wait_until(lambda: engine.logs("counts").count("running counts") == 2)


def test_a_full_disk_is_not_counted_against_a_job(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "WAITING_S", 0.05)
    root = tmp_path / "flow"
    deployed(engine, root)
    (root / "full").touch()
    runs = tmp_path / "data/jobs/counts/counts/runs"
    wait_until(
        lambda: len(runs.read_text().splitlines()) > lifecycle.MOST_DEATHS,
        what="starting again and again",
    )
    status = engine.status("counts")
    assert status.state in lifecycle.ALIVE
    assert status.restarts == 0
    wait_until(lambda: engine.status("counts").reason == "the disk is full: group a failed")
    monkeypatch.setattr(orders, "LEAST_ROOM", 1 << 60)
    wait_until(
        lambda: f"the disk of {tmp_path / 'data'} is full" in str(engine.status("counts").reason)
    )
    (root / "full").unlink()
    monkeypatch.setattr(orders, "LEAST_ROOM", 1)
    until(engine, "counts", RUNNING)


def test_a_mistake_that_a_new_start_would_make_again_is_given_up_at_once(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployed(engine, tmp_path / "flow")
    (tmp_path / "flow/hopeless").touch()
    failed = until(engine, "counts", FAILED)
    assert failed.reason == "the flow has a mistake"
    assert failed.pid is None
    assert engine.send("counts.events", rows(0, 5)) == 5, (
        "what is sent to a job that has failed waits in its journals"
    )
    assert engine.status("counts").unprocessed == 5
    resume = '"millstream resume counts"'
    with connect(str(engine.address)) as client:
        assert client.info("counts.events").notice == (
            f'job "counts" is failed; rows are stored until {resume}'
        )
        assert any(resume in one.getMessage() for one in caplog.records)
    sent = CliRunner().invoke(app, ["send", "counts.events", "--to", str(engine.address)], input="")
    assert f'note: job "counts" is failed; rows are stored until {resume}' in sent.stderr
    (tmp_path / "flow/hopeless").unlink()
    assert engine.resume("counts").state is JobState.STARTING
    until(engine, "counts", RUNNING)
    wait_until(lambda: engine.status("counts").unprocessed == 0)
    with connect(str(engine.address)) as client:
        assert client.info("counts.events").notice is None


def test_a_sender_to_a_job_whose_inboxes_cannot_be_opened_gets_its_state_and_what_helps(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with closing(Engine(data)) as engine:
        engine.start()
        deployed(engine, tmp_path / "flow")
        engine.send("counts.events", rows(0, 5))
    (description,) = data.glob("jobs/counts/*/journals/events/journal.json")
    sound = description.read_bytes()
    description.write_bytes(b"{")
    with closing(Engine(data)) as engine:
        engine.start()
        until(engine, "counts", FAILED)
        with (
            connect(str(engine.address)) as client,
            pytest.raises(NotThere, match=r'job "counts" is failed: .*journal\.json') as found,
        ):
            client.send("counts.events", rows(5, 6))
        assert found.value.hint == "remove the cause, then millstream resume counts"
        description.write_bytes(sound)
        engine.resume("counts")
        with connect(str(engine.address)) as client:
            assert client.send("counts.events", rows(5, 6)) == 1


def test_a_driver_that_dies_while_its_job_drains_is_started_again_and_drains_on(
    engine: Engine, tmp_path: Path
) -> None:
    deployed(engine, tmp_path / "flow")
    (tmp_path / "flow/die").touch()
    wait_until(lambda: engine.status("counts").restarts == 1)
    engine.drain("counts", flush=True)
    (tmp_path / "flow/die").unlink()
    assert engine.wait("counts", 240).state is FINISHED


def test_a_flow_with_a_mistake_is_refused_and_leaves_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import millstream as ms\nflow = ms.Flow('bad')\nflow.source('s', 3)\n")
    with pytest.raises(Exception, match="is made of int"):
        engine.deploy(pack(file))
    file.write_text("raise SystemExit(3)")
    with pytest.raises(Exception, match="SystemExit"):
        engine.deploy(pack(file))
    with pytest.raises(InvalidName):
        engine.deploy(pack(flow_file(tmp_path / "flow")), name="../up")
    with pytest.raises(InvalidOption, match="speed"):
        engine.deploy(pack(flow_file(tmp_path / "flow")), options={"speed": 3})
    with pytest.raises(NotLoadable):
        pack(tmp_path / "none.py")
    assert engine.jobs() == []
    wait_until(lambda: drivers_of(tmp_path / "data") == [])
    assert list((tmp_path / "data/packages").iterdir()) == []


def test_a_name_is_one_jobs_and_a_flow_can_have_another(engine: Engine, tmp_path: Path) -> None:
    deployed(engine, tmp_path / "flow")
    with pytest.raises(JobExists, match="running, counts-1"):
        engine.deploy(pack(tmp_path / "flow/flow.py"))
    other = engine.deploy(pack(tmp_path / "flow/flow.py"), name="others")
    assert other.id == "others-1"
    assert engine.send("others.events", rows(0, 3)) == 3
    with pytest.raises(NoSuchJob) as error:
        engine.status("count")
    assert error.value.hint == 'did you mean "counts"?'
    engine.undeploy("counts", force=True, purge=True)
    assert engine.deploy(pack(tmp_path / "flow/flow.py")).id == "counts-2"


def test_one_engine_has_a_folder_and_a_node_keeps_it(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(EngineRunning, match="process"):
        Engine(tmp_path / "data").start()
    engine.close()
    with pytest.raises(WrongNodes, match="belongs to node 0 of 1"):
        Engine(tmp_path / "data", node=1, of=2).start()
    with pytest.raises(EngineClosed):
        engine.jobs()


def test_jobs_go_on_when_an_engine_is_closed_and_started_again(tmp_path: Path) -> None:
    first = Engine(tmp_path / "data")
    first.start()
    address = first.address
    for name in ("a", "b", "c"):
        deployed(first, tmp_path / name, name)
    first.drain("b")
    assert first.wait("b", 240).state is DRAINED
    first.send("a.events", rows(0, 5))
    first.drain("c", flush=True)
    assert first.wait("c", 240).state is FINISHED
    first.close(drain_s=5)
    assert drivers_of(tmp_path / "data") == []
    second = Engine(tmp_path / "data")
    second.start()
    try:
        assert second.address == address
        until(second, "a", RUNNING)
        assert second.send("a.events", rows(5, 8)) == 3
        assert (second.status("b").state, second.status("c").state) == (DRAINED, FINISHED)
        assert second.status("b").inboxes[0].free == 0
        second.resume("b")
        until(second, "b", RUNNING)
    finally:
        second.close()


def test_a_job_that_was_prepared_begins_when_all_engines_are_ready(tmp_path: Path) -> None:
    engines = [Engine(tmp_path / f"data{n}", node=n, of=2) for n in range(2)]
    try:
        for one in engines:
            one.start()
        package = pack(flow_file(tmp_path / "flow", partitions=3))
        with pytest.raises(WrongNodes):
            engines[0].deploy(package)
        ready = [one.prepare(package, root=str(tmp_path / "flow")) for one in engines]
        assert [list(one.addresses["events"]) for one in ready] == [[0, 2], [1]]
        found = {p: place for one in ready for p, place in one.addresses["events"].items()}
        places = {"events": [found[p] for p in range(3)]}
        assert engines[0].status("counts").state is JobState.DEPLOYED
        assert engines[1].tasks().loads == {}, "nobody has named the other yet"
        peers = [Peer(f"http://node{n}", "127.0.0.1") for n in range(2)]
        follower = engines[1].begin("counts", places, driver=False, engines=peers)
        loads = {f"node {n}": EngineLoad(url=f"http://node{n}") for n in range(2)}
        assert engines[1].tasks().loads == loads
        assert (follower.state, follower.pid) == (RUNNING, None)
        engines[0].begin("counts", places, driver=True)
        until(engines[0], "counts", RUNNING)
        assert engines[0].send("counts.events", rows(0, 30)) == 30
        taken = [sum(inbox.rows for inbox in one.status("counts").inboxes) for one in engines]
        assert sum(taken) == 30
        assert min(taken) > 0
        assert engines[1].status("counts").unprocessed == 0, "the driver's engine counts them"
        engines[1].drain("counts")
        assert engines[1].status("counts").state is JobState.DRAINING
        assert engines[1].settled("counts", DRAINED).state is DRAINED
        assert engines[1].undeploy("counts", purge=True).state is JobState.UNDEPLOYED
    finally:
        for one in engines:
            one.close()


def test_an_engine_that_has_shut_down_before_the_end_reaches_it_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "PEERS_S", 1.0)
    first, second = (Engine(tmp_path / f"data{n}", node=n, of=2) for n in range(2))
    first.start()
    second.start()
    try:
        begun_on_two(first, second, tmp_path / "flow")
        until(first, "counts", RUNNING)
        second.close()
        first.drain("counts", flush=True)
        failed = first.wait("counts", 240)
        assert failed.state is FAILED
        assert failed.reason == "node 1 did not answer: what is there is not processed"
        first.undeploy("counts", purge=True)
        first.stop()
        assert drivers_of(tmp_path / "data0") == []
    finally:
        second.close()
        first.close()


def begun_on_two(first: Engine, second: Engine, root: Path) -> None:
    """Begin job "counts" on two engines, with its driver on the first."""
    package = pack(flow_file(root, partitions=2))
    ready = [one.prepare(package, root=str(root)) for one in (first, second)]
    places = {"events": [one.addresses["events"][n] for n, one in enumerate(ready)]}
    second.begin("counts", places, driver=False)
    first.begin("counts", places, driver=True)


def test_a_job_that_waits_for_another_engine_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "PEERS_S", 3_600.0)
    first, second = (Engine(tmp_path / f"data{n}", node=n, of=2) for n in range(2))
    first.start()
    second.start()
    try:
        begun_on_two(first, second, tmp_path / "flow")
        until(first, "counts", RUNNING)
        package = pack(flow_file(tmp_path / "other", name="other", partitions=1))
        ready = first.prepare(package, root=str(tmp_path / "other"))
        first.begin("other", {"events": [ready.addresses["events"][0]]}, driver=True)
        until(first, "other", RUNNING)
        second.close()
        assert first.drain("counts").state is JobState.DRAINING
        first.drain("other")
        assert first.wait("other", 240).state is DRAINED
        first.resume("other")
        until(first, "other", RUNNING)
        assert first.status("counts").state is JobState.DRAINING, (
            "it waits for what the other engine has"
        )
        first.undeploy("counts", force=True)
    finally:
        second.close()
        first.close()


def test_an_engine_that_closes_waits_for_no_driver_that_is_not_ready(
    engine: Engine, tmp_path: Path
) -> None:
    root = tmp_path / "flow"
    package = pack(flow_file(root))
    (root / "slow").touch()
    engine.deploy(package, root=str(root))
    wait_until(lambda: engine.status("counts").pid is not None)
    started = time.monotonic()
    engine.close(drain_s=300)
    assert time.monotonic() - started < 200
    assert drivers_of(tmp_path / "data") == []


def test_every_start_of_an_engine_is_in_the_history(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "flow"
    package = pack(flow_file(root))
    (root / "slow").touch()
    engine.deploy(package, root=str(root))
    # As a kill of the engine leaves it: a job that was starting, and is starting again.
    shutil.copytree(
        tmp_path / "data", tmp_path / "killed", ignore=shutil.ignore_patterns("inbox_*")
    )
    second = Engine(tmp_path / "killed")
    second.start()
    try:
        assert [one.what for one in second.history("counts")][-1] == "engine started"
    finally:
        second.close()


ENGINE = """
import sys, time
from pathlib import Path
from millstream.engine.driver import process as drivers
from millstream.engine.engine import Engine
from millstream.engine.jobs.package import pack
drivers.PROGRAM = (sys.argv[3],)
engine = Engine(Path(sys.argv[1]))
engine.start()
engine.deploy(pack(Path(sys.argv[2]) / "flow.py"), root=sys.argv[2])
while engine.status("counts").state != "running": time.sleep(0.02)
print(engine.status("counts").pid, flush=True)
time.sleep(600)
"""


def test_drivers_end_with_an_engine_that_is_killed_and_a_new_one_goes_on(tmp_path: Path) -> None:
    flow_file(tmp_path / "flow")
    driver = Path(__file__).parents[1] / "support/sparkless_driver.py"
    command = [
        sys.executable,
        "-c",
        ENGINE,
        str(tmp_path / "data"),
        str(tmp_path / "flow"),
        str(driver),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert int(first.stdout.readline()) > 0
        assert drivers_of(tmp_path / "data") != []
        first.kill()
    wait_until(lambda: drivers_of(tmp_path / "data") == [], what="the end of its driver")
    second = Engine(tmp_path / "data")
    second.start()
    try:
        until(second, "counts", RUNNING)
        assert second.send("counts.events", rows(0, 5)) == 5
        assert [one.what for one in second.history("counts")][-3:] == [
            "running",
            "engine started",
            "running",
        ]
    finally:
        second.close()


@pytest.mark.slow
def test_jobs_leave_no_process_socket_thread_or_file_behind(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "data", warm=1)
    engine.start()
    try:
        cycle(engine, tmp_path, "first")  # what is made once, is made now
        wait_until(lambda: engine._open.runner.drivers.warm == 1)
        before, threads = open_files(), threading.active_count()
        for number in range(6):
            cycle(engine, tmp_path, f"job{number}")
        wait_until(lambda: engine._open.runner.drivers.warm == 1)
        wait_until(lambda: len(open_files()) <= len(before), what="closing of files")
        wait_until(lambda: threading.active_count() <= threads, what="the end of threads")
        assert len(drivers_of(tmp_path / "data")) == 1, "the spare one"
        assert list((tmp_path / "data/jobs").iterdir()) == []
        assert list((tmp_path / "data/packages").iterdir()) == []
        assert len(list((tmp_path / "data/scratch").iterdir())) == 1
    finally:
        engine.close()
    assert drivers_of(tmp_path / "data") == []
    left = sorted(
        file.name for file in (tmp_path / "data").rglob("*") if file.is_file() or file.is_socket()
    )
    assert left == ["engine.lock", "inboxes.json", "jobs.sqlite"]


def cycle(engine: Engine, tmp_path: Path, name: str) -> None:
    """Deploy a job, feed it, end it, undeploy it."""
    deployed(engine, tmp_path / "flows" / name, name, partitions=2)
    engine.send(f"{name}.events", rows(0, 20))
    engine.drain(name, flush=True)
    assert engine.wait(name, 240).state is FINISHED
    engine.undeploy(name, purge=True)


def test_a_full_disk_stops_the_intake_and_is_got_over(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], capture_output=True
    ).returncode:
        pytest.skip("cannot here: a small disk cannot be mounted")
    try:
        engine = Engine(small / "data")
        engine.start()
        try:
            full_disk(engine, small, tmp_path)
        finally:
            engine.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def full_disk(engine: Engine, small: Path, tmp_path: Path) -> None:
    deployed(engine, tmp_path / "flow")
    assert engine.send("counts.events", rows(0, 10)) == 10
    filler = small / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    with pytest.raises(NoAnswer):
        engine.send("counts.events", rows(10, 5_000), timeout=2)
    wait_until(
        lambda: "takes nothing" in (engine.status("counts").reason or ""), what="the full disk"
    )
    status = engine.status("counts")
    assert "space" in str(status.reason)
    assert status.inboxes[0].free == 0
    with pytest.raises(StoreBroken, match="full"):
        engine.drain("counts")
    filler.unlink()
    wait_until(lambda: "takes nothing" not in (engine.status("counts").reason or ""))
    time.sleep(0.1)
    assert engine.send("counts.events", rows(5_000, 5_010)) == 10
    engine.drain("counts", flush=True)
    assert engine.wait("counts", 240).state is FINISHED
    kept = engine.journals("counts")[0]
    assert sum(part.rows for part in kept.partitions) == 5_010, (
        "each row once, those that waited too"
    )


def test_inboxes_listen_where_they_are_told(tmp_path: Path) -> None:
    one = Engine(tmp_path / "data", listening=Listening(network="127.0.0.0/8"))
    one.start()
    assert one.address.ip.startswith("127.")
    one.close()


def test_a_job_keeps_the_program_that_it_was_deployed_with(engine: Engine, tmp_path: Path) -> None:
    file = flow_file(tmp_path / "flow")
    action = 'events.action("scored", ["score@latest", "-v"], output="s long").sink("out", ms.jsonl("out"))'
    file.write_text(f"{file.read_text()}{action}\n")
    with pytest.raises(NoSuchAction, match='there is no action "score"'):
        engine.deploy(pack(file), root=str(file.parent))
    assert engine.jobs() == []
    added(engine, b"one")
    engine.deploy(pack(file), root=str(file.parent))
    until(engine, "counts", RUNNING)
    added(engine, b"two")
    program = tmp_path / "data" / "jobs" / "counts" / "counts" / "score@latest"
    assert program.read_bytes() == b"one"
    program.unlink()
    drivers_of(tmp_path / "data")[0].kill()
    wait_until(program.exists, what="a new start")
    assert program.read_bytes() == b"one"
    for version in (1, None):
        with pytest.raises(
            ActionInUse, match='version 1 of action "score" is in use by job "counts"'
        ):
            engine.remove_binary("score", version)
    engine.undeploy("counts", force=True)
    wait_until(lambda: not engine.users(), what="its end")
    assert [str(one) for one in engine.remove_binary("score", None)] == ["score@1", "score@2"]


def added(engine: Engine, program: bytes) -> None:
    sha256 = hashlib.sha256(program).hexdigest()
    engine.binaries.contents.receive(sha256, program, offset=0, total=len(program))
    engine.binaries.add("score", sha256)


def test_senders_wait_while_more_rows_are_unread_than_a_job_lets_wait(
    engine: Engine, tmp_path: Path
) -> None:
    root = tmp_path / "flow"
    package = pack(flow_file(root, "counts"))
    (root / "slow").touch()
    engine.deploy(package, root=str(root), options={"most_unread": 10})
    assert engine.send("counts.events", rows(0, 10)) == 10
    wait_until(lambda: engine.status("counts").inboxes[0].free == 0)
    with pytest.raises(NoAnswer):
        engine.send("counts.events", rows(10, 11), timeout=0.3)
    (root / "slow").unlink()
    wait_until(lambda: engine.status("counts").inboxes[0].free > 0)
    assert engine.send("counts.events", rows(11, 12), timeout=60) == 1


def test_a_driver_is_asked_for_state_while_it_runs(engine: Engine, tmp_path: Path) -> None:
    deployed(engine, tmp_path)
    with pytest.raises(NotThere, match='there is no job "counts"'):
        engine.states("counts")
    group = shop(tmp_path / "data" / "jobs" / "counts" / "made")
    with_window = {**DESCRIPTION, "stages": {"sums": {"kind": "window", "input": "sales"}}}
    written(group / "group.json", json.dumps({"checkpoint": ID, "description": with_window}))
    shutil.rmtree(group / ID / "state" / "1")
    metadata = group / ID / "state/0/_metadata/v2/0"
    metadata.write_text(
        metadata.read_text().replace("transformWithStateInPandasExec", "stateStoreSave")
    )
    shutil.copytree(group.parent, tmp_path / "data/jobs/counts/counts/groups")
    (found,) = engine.states("counts")
    assert (found.group, found.stage, found.kind, found.batch) == ("sums", "sums", "window", 3)
    with pytest.raises(NotThere, match="cannot be shown by key"):
        engine.state_rows("counts", "sums", key=None, at=None, limit=1)
    engine.drain("counts")
    until(engine, "counts", DRAINED)
    with pytest.raises(InvalidTransition, match='job "counts" does not run'):
        engine.states("counts")
