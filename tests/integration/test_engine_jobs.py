"""Jobs with real drivers: whatever is killed, every event is processed once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import millstream as ms
from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.package import pack
from millstream.spark.served import serving
from millstream.testing.kafka import free_port
from support.engines import drivers_of, flow_file, rows, until, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "engine_process.py"
LIMIT_S = 300.0


class EngineProcess:
    """An engine in a process of its own."""

    def __init__(self, data: Path, flow: Path) -> None:
        self.data = data
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(data), str(flow)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        assert found, f"the engine ended with {self._process.wait()}"
        return found

    def status(self) -> tuple[int, int]:
        """Return the driver's process, and how often it was started again."""
        assert self._process.stdin is not None
        self._process.stdin.write("status\n")
        self._process.stdin.flush()
        pid, restarts = self._line().split()
        return int(pid), int(restarts)

    def driver(self) -> int:
        pid, _ = self.status()
        assert pid > 0, "the job has a driver"
        return pid

    def kill_driver(self) -> None:
        os.kill(self.driver(), signal.SIGKILL)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def terminate(self) -> None:
        self._process.terminate()
        self._end()

    def _end(self) -> None:
        self._process.wait(LIMIT_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


@contextmanager
def running(data: Path, flow: Path) -> Iterator[EngineProcess]:
    engine = EngineProcess(data, flow)
    try:
        yield engine
    finally:
        engine.kill()


def results(root: Path) -> list[int]:
    files = (root / "rows").glob(
        "*.jsonl"
    )  # published ones; staged ones, deeper, are moved while we look
    return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())


def processed(root: Path, count: int) -> None:
    wait_until(lambda: len(results(root)) >= count, limit_s=LIMIT_S, what=f"{count} results")


@pytest.mark.long
def test_driver_engine_and_both_are_killed_and_every_event_is_processed_once(
    tmp_path: Path,
) -> None:
    flow, data = flow_file(tmp_path / "flow"), tmp_path / "data"
    root = flow.parent
    with running(data, flow) as first, ms.connect(first.address, timeout=LIMIT_S) as client:
        client.send("counts.events", rows(0, 100))
        processed(root, 100)

        first.kill_driver()
        client.send("counts.events", rows(100, 200))  # intake goes on
        processed(root, 200)
        assert first.status()[1] == 1

        first.kill()
        wait_until(lambda: drivers_of(data) == [], limit_s=LIMIT_S, what="the end of the driver")
        pending = client.send_nowait("counts.events", rows(200, 300))
        with running(data, flow) as second:
            assert second.address == first.address
            assert pending.result(LIMIT_S) is not None
            processed(root, 300)

            pid = second.driver()
            second.kill()
            with gone_already():
                os.kill(pid, signal.SIGKILL)
            with running(data, flow) as third:
                client.send("counts.events", rows(300, 400))
                processed(root, 400)
                client.send("counts.events", rows(400, 450))
                third.terminate()  # it processes what it has, and stops its driver
                assert results(root) == list(range(450))
                assert drivers_of(data) == []


def listening_ports(pid: int | None) -> set[int]:
    found = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}


@contextmanager
def gone_already() -> Iterator[None]:
    """The driver may have ended with its engine before we come to it."""
    try:
        yield
    except ProcessLookupError:
        return


@pytest.mark.soak
def test_a_job_drains_is_resumed_and_undeployed_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv(serving.SERVE, "always")
    monkeypatch.setenv(serving.PORT, str(port))
    flow, data = flow_file(tmp_path / "flow", partitions=2), tmp_path / "data"
    engine = Engine(data, master="local[2]", warm=1)
    engine.start()
    try:
        wait_until(lambda: engine._open.runner.drivers.warm == 1, limit_s=LIMIT_S)
        began = time.monotonic()
        engine.deploy(pack(flow), root=str(flow.parent))
        engine.send("counts.events", rows(0, 100))
        until(engine, "counts", JobState.RUNNING, limit_s=LIMIT_S)
        print(f"running after {time.monotonic() - began:.1f} s, warm")
        served = range(port, port + serving.MORE_PORTS + 1)
        assert listening_ports(engine.status("counts").pid) & set(served), "it serves executors"
        wait_until(lambda: engine.status("counts").groups, limit_s=LIMIT_S, what="numbers")
        engine.drain("counts")
        drained = engine.wait("counts", LIMIT_S)
        assert (drained.state, drained.unprocessed) == (JobState.DRAINED, 0)
        assert results(flow.parent) == list(range(100)), "all that was taken is processed"
        engine.resume("counts")
        until(engine, "counts", JobState.RUNNING, limit_s=LIMIT_S)
        engine.send("counts.events", rows(100, 150))
        engine.drain("counts", flush=True)
        assert engine.wait("counts", LIMIT_S).state is JobState.FINISHED
        assert results(flow.parent) == list(range(150))
        assert engine.undeploy("counts", purge=True).state is JobState.UNDEPLOYED
    finally:
        engine.close()
    assert drivers_of(data) == []
    left = sorted(file.name for file in data.rglob("*") if not file.is_dir())
    assert left == ["engine.lock", "inboxes.json", "jobs.sqlite"]
