"""Two engines in processes of their own share a job: one is killed, or sleeps for longer than its lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from integration.test_s3_asleep import expected, published
from millstream.cluster import Cluster
from millstream.engine.tokens import token_of
from support.crash import record
from support.engines import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak]

LEASE_S = "6"
EVENTS = 40_000
FLOW = """
import millstream as ms


def counted(state, row):
    total = state + row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


flow = ms.Flow("totals")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=1800),
    time="at",
    key="k",
    partitions=2,
)
events.fold("totals", counted, initial=0, output="k string, at timestamp, total long").sink(
    "lines", ms.jsonl("../lines")
)
"""


WINDOWS = """
import millstream as ms

flow = ms.Flow("totals")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=1800),
    time="at",
    key="k",
    partitions=2,
)
events.window("sums", every="1 hour", by="k", total="{total}").sink("lines", ms.jsonl("../lines"))
"""


class Node:
    """An engine in a process of its own."""

    def __init__(self, folder: Path, name: str, shared: str | None = None) -> None:
        self.data, self.log = folder / name, folder / f"{name}.log"
        command = [sys.executable, "-m", "millstream", "engine", "--data", str(self.data)]
        command += ["--port", "0", "--coordination", shared or str(folder / "shared")]
        command += ["--lease", LEASE_S]
        command += ["--warm", "1", "--master", "local[2]", "--json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        with self.process.stdout as told:
            said = told.readline()
        assert said, self.log.read_text()
        self.url = json.loads(said)["url"]

    @property
    def cluster(self) -> Cluster:
        return Cluster([self.url], token_of(self.data))

    def runs(self, job: str) -> bool:
        with self.cluster as found:
            return any(one.job == job and one.here for one in found.tasks().tasks)

    def everything(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the engine, its drivers and their Java."""
        for process in self.everything():
            process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            found = self.everything()
            self.process.kill()
            self.process.wait()
            for process in found:
                if process.is_running() and process.status() == psutil.STATUS_STOPPED:
                    process.kill()
            psutil.wait_procs(found, timeout=60)


@contextmanager
def two_engines(folder: Path, shared: str | None = None) -> Iterator[tuple[Node, Node]]:
    nodes: list[Node] = []
    try:
        nodes += [Node(folder, "here", shared)]
        nodes += [Node(folder, "there", shared)]
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.kill()


def begun(tmp_path: Path, kafka: str, nodes: tuple[Node, Node]) -> tuple[Node, Node]:
    """Deploy the flow on the first engine; return who runs it, and the other, in the middle of it."""
    root = tmp_path / "flow"
    with nodes[0].cluster as found:
        journals = f"kafka://{kafka}/site-{uuid.uuid4().hex[:8]}"
        found.deploy(root / "flow.py", options={"journals": journals})
    wait_until(lambda: len(published(tmp_path)) > 100, what="the first results")
    holder, other = nodes if nodes[0].runs("totals") else nodes[::-1]
    assert holder.runs("totals")
    return holder, other


def grown(tmp_path: Path) -> None:
    before = len(published(tmp_path))
    wait_until(lambda: len(published(tmp_path)) > before + 100, what="further results")


@pytest.mark.parametrize("end", ["kill -9", "sleep", "kill -9 over S3"])
def test_another_engine_goes_on_and_every_result_is_there_once(
    tmp_path: Path, kafka: str, end: str, request: pytest.FixtureRequest
) -> None:
    shared = request.getfixturevalue("s3").new_address() if end.endswith("S3") else None
    root = tmp_path / "flow"
    root.mkdir()
    (root / "flow.py").write_text(FLOW)
    rows = record(root, EVENTS)
    with two_engines(tmp_path, shared) as nodes:
        holder, other = begun(tmp_path, kafka, nodes)
        if end.startswith("kill -9"):
            os.kill(holder.process.pid, signal.SIGKILL)
        else:
            holder.signal(signal.SIGSTOP)
        wait_until(lambda: other.runs("totals"), what="the other engine takes the job")
        grown(tmp_path)
        if end == "sleep":
            holder.signal(signal.SIGCONT)
            wait_until(
                lambda: "has taken over the job; its driver here is ended" in holder.log.read_text()
            )
            wait_until(lambda: not holder.runs("totals"))
        assert len(published(tmp_path)) < len(rows), "it goes on in the middle"
        with other.cluster as found:
            assert found.wait("totals", 300).state == "finished"
        assert published(tmp_path) == expected(rows), "each once, whoever has published it"


def sums(rows: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the total of each key and hour, by plain Python."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["k"], f"{row['at']:%Y-%m-%dT%H}"] += row["v"]
    return dict(found)


def lines(tmp_path: Path) -> list[tuple[tuple[str, str], int]]:
    files = sorted((tmp_path / "lines").glob("*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [((row["k"], row["start"][:13].replace(" ", "T")), row["total"]) for row in found]


def test_another_engine_goes_on_with_a_switch_whose_engine_is_killed(
    tmp_path: Path, kafka: str
) -> None:
    root = tmp_path / "flow"
    root.mkdir()
    (root / "flow.py").write_text(WINDOWS.format(total="sum(v)"))
    rows = record(root, EVENTS)
    with two_engines(tmp_path) as nodes:
        with nodes[0].cluster as found:
            journals = f"kafka://{kafka}/site-{uuid.uuid4().hex[:8]}"
            found.deploy(root / "flow.py", options={"journals": journals})
        wait_until(lambda: len(lines(tmp_path)) > 20, what="the first results")
        holder, other = nodes if nodes[0].runs("totals") else nodes[::-1]
        (root / "flow.py").write_text(WINDOWS.format(total="1000 * sum(v)"))
        with Cluster([other.url]) as found:  # the one that does not run it
            found.switch("totals", root / "flow.py")
            wait_until(lambda: _cut(found) is not None, what="the cut")
        os.kill(holder.process.pid, signal.SIGKILL)
        with Cluster([other.url]) as found:
            wait_until(lambda: other.runs("totals"), what="the other engine takes the job")
            done = found.wait_switch("totals", 240)
            assert done.switch is not None
            assert (done.switch.state, done.version) == ("done", "2")
            assert found.wait("totals", 300).state == "finished"
    found_lines, wanted = lines(tmp_path), sums(rows)
    assert len(found_lines) == len(dict(found_lines)) == len(wanted), "each once"
    cut = min(hour for (_, hour), total in found_lines if total != wanted[_, hour])
    assert dict(found_lines) == {
        (key, hour): total * (1000 if hour >= cut else 1) for (key, hour), total in wanted.items()
    }


def _cut(found: Cluster) -> str | None:
    switch = found.status("totals").switch
    return None if switch is None else switch.cut
