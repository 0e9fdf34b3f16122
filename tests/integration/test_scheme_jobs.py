"""Schemes as jobs of an engine: whatever is killed, no number is missing, and first arrivals are in order."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from millstream.actions import wire
from millstream.actions.queue import Queue
from millstream.cluster import Cluster
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import JobStatus, RuntimeStatus
from millstream.engine.tokens import token_of
from millstream.journal.kinds.files.reader import Reader
from support.actions import ROOT
from support.engines import drivers_of, wait_until
from support.runtimes import Raw

EXAMPLE = ROOT / "examples" / "simplepipe"
LIMIT_S = 240.0
NODES = ("numgen", "filter2", "printer2", "filter3", "printer6")


class Engine:
    """An engine in a process of its own."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        command = [
            sys.executable,
            "-m",
            "millstream",
            "engine",
            "--data",
            str(data),
            "--json",
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def kill(self) -> None:
        self.process.kill()
        self._end()
        wait_until(
            lambda: drivers_of(self.data) == [], limit_s=LIMIT_S, what="the end of the runtimes"
        )

    def stop(self) -> None:
        self.process.terminate()
        self._end()

    def _end(self) -> None:
        self.process.wait(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def go_filter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's filter, at a place of its own: other tests run theirs meanwhile."""
    if shutil.which("go") is None:
        pytest.skip("cannot here: no go")
    program = tmp_path_factory.mktemp("go") / "filter"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=EXAMPLE / "filter", check=True)
    return program


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def start(name: str = "data", *options: str) -> Engine:
        port = [] if "--port" in options else ["--port", "0"]
        started.append(Engine(tmp_path / name, *port, *options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def at(host: str) -> str:
    """An address that nobody has, nor gets by chance: below the ports that the system gives out."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind((host, port))
            return f"{host}:{port}"


def simplepipe(
    folder: Path, go_filter: Path, count: int, pause: float, **changes: dict[str, Any]
) -> Path:
    """The example's scheme at ports of its own, with its files in a folder."""
    tree = yaml.safe_load((EXAMPLE / "scheme.yaml").read_text())
    for node in tree["nodes"]:
        of_go = node["name"].startswith("filter")
        node["action"] = str(go_filter if of_go else (EXAMPLE / node["action"]).resolve())
        node["addresses"] = [at("127.0.0.1") for _ in range(2)]
        if node["name"].startswith("printer"):
            node["args"] = [str(folder / "out" / node["name"])]
        node |= changes.get(node["name"], {})
    tree["nodes"][0]["args"] = [str(count), str(pause)]
    file = folder / "scheme.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


def first_arrivals(file: Path) -> list[int]:
    text = file.read_text() if file.exists() else ""
    return list(dict.fromkeys(int(line) for line in text.split("\n")[:-1]))


def until(cluster: Cluster, true: Callable[[JobStatus], object], what: str) -> JobStatus:
    end = time.monotonic() + LIMIT_S
    while not true(status := cluster.status("simplepipe")):
        assert time.monotonic() < end, f"{what}: {status}\n" + "\n".join(
            cluster.logs("simplepipe", 50)
        )
        time.sleep(0.05)
    return status


def runtime(status: JobStatus, node: str) -> RuntimeStatus:
    return next(one for one in status.runtimes if one.node == node)


def running(status: JobStatus) -> bool:
    return status.state is JobState.RUNNING and all(
        one.state == "running" for one in status.runtimes
    )


def kill_node(cluster: Cluster, node: str) -> None:
    """Kill a runtime, and wait until another process has taken its place."""
    before = until(cluster, lambda status: runtime(status, node).pid is not None, f"{node} runs")
    pid = runtime(before, node).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(
        cluster, lambda status: runtime(status, node).pid not in (None, pid), f"{node} runs again"
    )


def complete(folder: Path, cluster: Cluster, count: int) -> None:
    evens, sixes = folder / "out" / "printer2", folder / "out" / "printer6"
    until(
        cluster,
        lambda _: (
            len(first_arrivals(evens)) >= count // 2 and len(first_arrivals(sixes)) >= count // 6
        ),
        "all numbers",
    )
    assert first_arrivals(evens) == list(range(2, count + 1, 2))
    assert first_arrivals(sixes) == list(range(6, count + 1, 6))


@pytest.mark.slow
@pytest.mark.long
def test_each_node_and_the_engine_are_killed_and_no_number_is_missing(
    go_filter: Path, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    scheme, engine = simplepipe(tmp_path, go_filter, 6000, 0.02), engines()
    with Cluster([engine.url]) as cluster:
        job = cluster.deploy(scheme)
        assert job.name == "simplepipe"
        status = until(cluster, running, "it runs")
        forged = wire.hello(wire.Hello("simplepipe_numgen", 2**60)) + wire.message(1, b"\0\0\0\2")
        assert Raw(runtime(status, "filter2").address).send(forged).closed()
        (secret,) = engine.data.rglob("runtimes.secret")
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        for node in NODES:
            kill_node(cluster, node)
    engine.kill()

    engine = engines()
    with Cluster([engine.url]) as cluster:
        until(cluster, running, "it runs again")
        complete(tmp_path, cluster, 6000)
        assert (
            runtime(cluster.status("simplepipe"), "filter2").generation == 1
        )  # it went on with its queue

        cluster.drain("simplepipe")
        assert cluster.wait("simplepipe", LIMIT_S).state is JobState.DRAINED
        assert drivers_of(engine.data) == []
        assert not [
            one for one in psutil.process_iter() if str(go_filter) in " ".join(_command(one))
        ]

        cluster.resume("simplepipe")
        until(cluster, running, "it runs after the drain")
        cluster.undeploy("simplepipe", force=True, purge=True)
        assert drivers_of(engine.data) == []
        assert not (engine.data / "jobs" / "simplepipe").exists()
    engine.stop()


@pytest.mark.soak
@pytest.mark.spark
def test_filters_run_in_spark_between_runtimes_and_each_number_is_in_their_journals_once(
    go_filter: Path, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    bare: dict[str, Any] = {"addresses": []}
    numgen = tmp_path / "numgen"  # one that ends
    numgen.write_text(
        (EXAMPLE / "numgen")
        .read_text()
        .replace("time.sleep(10**8)", "")
        .replace("__file__", f'"{EXAMPLE}/numgen"')
    )
    numgen.chmod(0o755)
    ending = {**bare, "action": str(numgen)}
    scheme = simplepipe(tmp_path, go_filter, 3000, 0.1, numgen=ending, filter2=bare, filter3=bare)
    engine = engines("data", "--master", "local[2]")
    with Cluster([engine.url]) as cluster:
        cluster.deploy(scheme)
        printed = tmp_path / "out" / "printer6"
        until(cluster, lambda _: len(first_arrivals(printed)) > 20, "some numbers")
        pid = cluster.status("simplepipe").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # the driver: Spark, and with it the runtimes
        status = until(
            cluster,
            lambda status: status.restarts == 1 and status.state is JobState.RUNNING,
            "it runs",
        )
        assert {one.node for one in status.runtimes} == {"numgen", "printer2", "printer6"}
        cluster.drain("simplepipe")
        if (
            cluster.wait("simplepipe", LIMIT_S).state is not JobState.FINISHED
        ):  # on a slow machine all may be done
            assert cluster.status("simplepipe").state is JobState.DRAINED
            cluster.resume("simplepipe")
            assert cluster.wait("simplepipe", 2 * LIMIT_S).state is JobState.FINISHED
        complete(tmp_path, cluster, 3000)
    journals = engine.data / "jobs" / "simplepipe" / "simplepipe" / "journals"
    came, evens, sixes = (
        numbers(journals / name) for name in ("filter2_in", "filter2_out", "filter3_out")
    )
    assert sorted(set(came)) == list(range(1, 3001))  # its program began anew, with the driver
    assert evens == [number for number in came if number % 2 == 0]
    assert sixes == [number for number in came if number % 6 == 0]


@pytest.mark.soak
@pytest.mark.spark
def test_a_flush_ends_the_runtimes_first_and_all_that_they_have_made_arrives(
    go_filter: Path, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    bare: dict[str, Any] = {"addresses": []}
    scheme = simplepipe(tmp_path, go_filter, 10**9, 0.02, filter2=bare, filter3=bare)
    engine = engines("data", "--master", "local[2]")
    with Cluster([engine.url]) as cluster:
        cluster.deploy(scheme)
        until(
            cluster,
            lambda _: len(first_arrivals(tmp_path / "out" / "printer6")) > 20,
            "some numbers",
        )
        cluster.drain("simplepipe", flush=True)
        assert cluster.wait("simplepipe", LIMIT_S).state is JobState.FINISHED
    folder = engine.data / "jobs" / "simplepipe" / "simplepipe"
    came = numbers(folder / "journals" / "filter2_in")
    assert came == list(range(1, len(came) + 1))
    assert first_arrivals(tmp_path / "out" / "printer2") == [
        number for number in came if number % 2 == 0
    ]
    assert first_arrivals(tmp_path / "out" / "printer6") == [
        number for number in came if number % 6 == 0
    ]
    (place,) = (folder / "runtimes" / "simplepipe_numgen").iterdir()
    with closing(Queue(place)) as queue:
        assert queue.last == len(came)


def numbers(folder: Path) -> list[int]:
    part = Reader(folder).partition(0)
    found = [
        one.batch for one in part.read(part.begin, part.end, ["value"]) if one.batch is not None
    ]
    return [
        int.from_bytes(value, "big") for batch in found for value in batch.column(0).to_pylist()
    ]


@pytest.mark.soak
def test_nodes_and_the_engine_are_killed_in_a_loop(
    go_filter: Path, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    chance, count = random.Random(7), 60_000
    scheme, engine = simplepipe(tmp_path, go_filter, count, 0.02), engines()
    with Cluster([engine.url]) as cluster:
        cluster.deploy(scheme)
    for _ in range(5):
        with Cluster([engine.url]) as cluster:
            until(cluster, running, "it runs")
            for node in chance.sample(NODES, 3):
                time.sleep(chance.uniform(0.0, 1.0))
                kill_node(cluster, node)
        engine.kill()
        engine = engines()
    with Cluster([engine.url]) as cluster:
        complete(tmp_path, cluster, count)


@pytest.mark.soak
def test_a_runtime_that_is_silent_is_replaced_at_its_spare_address(
    go_filter: Path, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    scheme, engine = simplepipe(tmp_path, go_filter, 20_000, 0.02), engines()
    with Cluster([engine.url]) as cluster:
        cluster.deploy(scheme)
        before = runtime(until(cluster, running, "it runs"), "filter2")
        assert before.pid is not None
        os.kill(before.pid, signal.SIGSTOP)  # it neither answers nor ends
        after = until(
            cluster, lambda status: runtime(status, "filter2").generation == 2, "it is replaced"
        )
        assert runtime(after, "filter2").address != before.address
        until(cluster, running, "all run")
        assert not psutil.pid_exists(before.pid)
        complete(tmp_path, cluster, 20_000)


@pytest.fixture
def two(engines: Callable[..., Engine], tmp_path: Path) -> Callable[[int], Engine]:
    """Two engines, as if on two hosts: they have addresses of their own."""
    token = token_of(tmp_path / "data0")

    def start(node: int) -> Engine:
        data = tmp_path / f"data{node}"
        data.mkdir(exist_ok=True)
        (data / "token").write_text(token)
        (data / "token").chmod(0o600)
        port = tmp_path / f"port{node}"
        options = ["--node", str(node), "--of", "2", "--host", f"127.0.0.{1 + node}"]
        engine = engines(
            f"data{node}", *options, *(["--port", port.read_text()] if port.exists() else [])
        )
        port.write_text(engine.url.rpartition(":")[2])
        return engine

    return start


def over_two(folder: Path, go_filter: Path, count: int) -> Path:
    """The filters on the second host, with their spares on the first."""
    places = {
        name: {"addresses": [at("127.0.0.2"), at("127.0.0.1")]} for name in ("filter2", "filter3")
    }
    return simplepipe(folder, go_filter, count, 0.02, **places)


@pytest.mark.soak
def test_a_machine_is_lost_with_all_its_runtimes(
    go_filter: Path, two: Callable[[int], Engine], tmp_path: Path
) -> None:
    first, second = two(0), two(1)
    with Cluster([first.url, second.url], token_of(first.data)) as cluster:
        cluster.deploy(over_two(tmp_path, go_filter, 20_000))
        until(cluster, running, "it runs")
        kill_node(cluster, "filter2")
        assert runtime(until(cluster, running, "it runs again"), "filter2").generation == 1
    second.kill()
    shutil.rmtree(second.data)
    with Cluster([first.url], token_of(first.data)) as cluster:
        status = until(
            cluster,
            lambda status: running(status) and runtime(status, "filter3").generation == 2,
            "the filters run on the first host",
        )
        assert {runtime(status, name).generation for name in ("filter2", "filter3")} == {2}
        complete(tmp_path, cluster, 20_000)


@pytest.mark.soak
def test_an_engine_without_the_supervisor_comes_back_and_nothing_moves(
    go_filter: Path, two: Callable[[int], Engine], tmp_path: Path
) -> None:
    first, second = two(0), two(1)
    with Cluster([first.url, second.url], token_of(first.data)) as cluster:
        cluster.deploy(over_two(tmp_path, go_filter, 20_000))
        until(cluster, running, "it runs")
        second.kill()
        second = two(1)
        status = until(
            cluster, lambda s: running(s) and runtime(s, "filter3").restarts > 0, "it runs again"
        )
        assert {runtime(status, name).generation for name in ("filter2", "filter3")} == {1}
        complete(tmp_path, cluster, 20_000)
        cluster.drain("simplepipe")
        assert cluster.wait("simplepipe", LIMIT_S).state is JobState.DRAINED
        wait_until(
            lambda: drivers_of(second.data) == [], limit_s=LIMIT_S, what="the end of the runtimes"
        )
        cluster.undeploy("simplepipe", purge=True)
        assert not (second.data / "jobs" / "simplepipe").exists()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
