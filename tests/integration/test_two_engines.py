"""A job over two engines on two hosts: both are killed, one after the other, and every result is there, once."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from millstream.cluster import Cluster, EngineClient
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import JobStatus
from millstream.engine.tokens import token_of
from millstream.journal.kinds.files.reader import Reader
from millstream.links.client import connect
from millstream.links.keys import new_keys
from property.test_mirror import compare_partition
from support.links import NOON, row, wait_for
from support.namespaces import SecondHost, second_host

pytestmark = pytest.mark.spark

FLOW = """
import millstream as ms

flow = ms.Flow("shop")
sales = flow.source(
    "sales", ms.inbox("origin string, n long, at timestamp"), time="at", key="origin", partitions=2, idle="4 s",
    lateness="10 minutes",
)
sales.window("minutes", every="1 minute", by="origin", n="count(*)", last="max(n)").sink("minutes", ms.jsonl("out"))
"""


class Node:
    """An engine in a process of its own."""

    def __init__(self, folder: Path, keys: Path, node: int, host: SecondHost, port: int) -> None:
        self.data = folder / f"engine{node}"
        self.ip = host.far_ip if node else host.near_ip
        self.url = f"http://{self.ip}:{port}"
        self.token = token_of(self.data)
        self._command = [
            *(host.prefix if node else ()),
            *(sys.executable, "-m", "millstream", "engine", "--node", str(node), "--of", "2"),
            *(
                "--data",
                str(self.data),
                "--host",
                self.ip,
                "--port",
                str(port),
                "--open-without-tls",
            ),
            *(
                "--network",
                host.network,
                "--key",
                str(keys / "engine.key"),
                "--producers",
                str(keys / "known"),
            ),
            "--json",
        ]
        self._log = (folder / f"engine{node}.log").open("ab")
        self.process: subprocess.Popen[str] | None = None
        self.inbox = ""

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        with self.process.stdout as told:
            said = told.readline()
        assert said, Path(self._log.name).read_text()
        self.inbox = json.loads(said)["inbox"]

    def kill(self) -> None:
        """End it as a loss of power would: nothing is told, nothing is written."""
        if self.process is None:
            return
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        self.process = None
        _, alive = psutil.wait_procs(children, timeout=120)
        assert not alive, "processes that outlive their engine"

    def close(self) -> None:
        self.kill()
        self._log.close()


@contextmanager
def engines(folder: Path) -> Iterator[tuple[Node, Node]]:
    keys = folder / "keys"
    new_keys(keys, "engine")
    new_keys(keys, "producer")
    (keys / "known").mkdir()
    shutil.copy(keys / "producer.pub", keys / "known")
    with second_host() as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLSTREAM_OPEN_WITHOUT_TLS", "1")  # as they listen
        nodes = Node(folder, keys, 0, host, _free_port()), Node(folder, keys, 1, host, 8340)
        try:
            for node in nodes:
                node.start()
            yield nodes
        finally:
            for node in nodes:
                node.close()


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("", 0))
        return int(trial.getsockname()[1])


class Sending(threading.Thread):
    """A producer that sends until it is told to stop, whoever is killed meanwhile."""

    def __init__(self, address: str, keys: Path) -> None:
        super().__init__(daemon=True)
        self._client = connect(
            address, key=keys / "producer.key", server=keys / "engine.pub", timeout=220.0
        )
        self._enough = threading.Event()
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self._client as client:
                while not self._enough.is_set():
                    client.send_nowait(
                        "shop.sales", [row(n) for n in range(self.rows, self.rows + 20)]
                    )
                    self.rows += 20
                    time.sleep(0.1)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._enough.set()
        self.join(240)
        assert self.error is None
        assert not self.is_alive()


def results(folder: Path) -> list[tuple[str, str, int, int]]:
    lines = [
        json.loads(line)
        for file in folder.glob("out/*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return [
        (line["origin"], line["window_start"][11:16], line["n"], line["last"]) for line in lines
    ]


def expected(rows: int) -> list[tuple[str, str, int, int]]:
    counts: Counter[tuple[str, str]] = Counter()
    last = {}
    for n in range(rows):
        key = (f"k{n % 7}", (NOON + timedelta(seconds=n)).strftime("%H:%M"))
        counts[key] += 1
        last[key] = n
    return [(*key, count, last[key]) for key, count in counts.items()]


@pytest.mark.soak
def test_killed_engines_lose_and_double_nothing(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with engines(tmp_path) as (near, far):
        cluster = Cluster([near.url, far.url], {near.url: near.token, far.url: far.token})
        with closing(cluster):
            assert cluster.deploy(tmp_path / "flow.py").state in (
                JobState.STARTING,
                JobState.RUNNING,
            )
            sending = Sending(near.inbox, tmp_path / "keys")
            sending.start()
            grows(tmp_path)

            far.kill()
            time.sleep(6)  # longer than an idle partition is waited for
            far.start()
            grows(tmp_path)

            cluster.drain("shop")
            assert cluster.wait("shop", 300).state is JobState.DRAINED
            assert both(near, far)
            time.sleep(6)  # longer than an idle partition is waited for: its floor is no row
            assert [status.unprocessed for status in statuses(near, far)] == [0, 0]
            cluster.resume("shop")
            grows(tmp_path)

            near.kill()
            time.sleep(1)
            near.start()
            grows(tmp_path)

            sending.finish()
            cluster.drain("shop", flush=True)
            status = cluster.wait("shop", 300)
            assert status.state is JobState.FINISHED
            assert (status.late, status.dead) == (0, 0)
            assert both(near, far)
        assert sorted(results(tmp_path)) == sorted(expected(sending.rows))


@pytest.mark.soak
def test_a_job_over_two_engines_is_switched_while_one_of_them_is_away(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    later = FLOW.replace(
        "sales.window(", 'sales.sql("all", "SELECT * FROM sales WHERE n >= 0").window('
    )
    with engines(tmp_path) as (near, far):
        cluster = Cluster([near.url, far.url], {near.url: near.token, far.url: far.token})
        with closing(cluster):
            cluster.deploy(tmp_path / "flow.py")
            sending = Sending(near.inbox, tmp_path / "keys")
            sending.start()
            grows(tmp_path)

            (tmp_path / "flow.py").write_text(later)
            cluster.switch("shop", tmp_path / "flow.py")
            far.kill()
            time.sleep(6)  # longer than an idle partition is waited for
            far.start()
            status = cluster.wait_switch("shop", 300)
            assert status.switch is not None
            assert (status.switch.state, status.version) == ("done", "2")
            grows(tmp_path)

            near.kill()
            near.start()
            grows(tmp_path)
            cluster.switch("shop", None)
            assert cluster.wait_switch("shop", 300).version == "3"
            grows(tmp_path)

            sending.finish()
            cluster.drain("shop", flush=True)
            assert cluster.wait("shop", 300).state is JobState.FINISHED
            assert both(near, far)
        assert sorted(results(tmp_path)) == sorted(expected(sending.rows))


def statuses(*nodes: Node) -> list[JobStatus]:
    """Return what each engine says of the job."""
    found = []
    for node in nodes:
        with closing(EngineClient(node.url, node.token)) as engine:
            found.append(engine.get("/jobs/shop", JobStatus))
    return found


def both(near: Node, far: Node) -> bool:
    """Tell whether both partitions have had rows, and the copy is its original."""
    ours, theirs = (
        node.data / "jobs" / "shop" / "shop" / "journals" / "sales" for node in (near, far)
    )
    compare_partition(theirs, ours, 1)
    return all(Reader(ours).partition(number).end > 200 for number in (0, 1))


def grows(folder: Path) -> None:
    """Wait until there are results that were not there before."""
    before = len(results(folder))
    wait_for(lambda: len(results(folder)) > before + 20, limit_s=300)
