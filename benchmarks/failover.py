"""From kill -9 of the engine that runs a job to the first new result, from the other engine.

    python -m benchmarks.failover [--turns 3] [--lease 9]

Two engines on one machine share a job by a folder (`--coordination`), each with a driver in reserve
(`--warm 1`); its journal is in Kafka, on a broker that the benchmark starts. A recording is replayed
into it all the time. The engine that runs the job is killed with its drivers; the other one claims
the job at once, since it sees that the process has ended, and goes on. Engines that do not see each
other's processes (`unshare`, as root) are as on two hosts: then the claim comes after the lease. Then the killed one is started again, and the other one killed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.common import Timing, folder, save, show

from millstream.cluster import Cluster
from millstream.engine.leases.tasks import TaskStatus
from millstream.engine.tokens import token_of
from millstream.testing.kafka import broker

FLOW = """
import millstream as ms

flow = ms.Flow("totals")
events = flow.source(
    "events", ms.replay("events.parquet", "k string, at timestamp", speed=60), time="at", key="k"
)
events.window("seconds", every="10 seconds", by="k", n="count(*)").sink("out", ms.jsonl("out"))
"""
_LIMIT_S = 180.0
#: Engines do not see each other's processes, as on two hosts.
_APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Node:
    """An engine in a process of its own."""

    def __init__(self, place: Path, name: str, lease: float, *, apart: bool) -> None:
        self.name, self.data, self.log = name, place / name, place / f"{name}.log"
        self._command = list(_APART) if apart else []
        self._command += [sys.executable, "-m", "millstream", "engine", "--data", str(self.data)]
        self._command += ["--port", "0", "--coordination", str(place / "shared"), "--json"]
        self._command += ["--lease", f"{lease:g}", "--warm", "1", "--master", "local[2]"]
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    @property
    def cluster(self) -> Cluster:
        return Cluster([self.url], token_of(self.data))

    def task(self) -> TaskStatus | None:
        with self.cluster as found:
            return next(iter(found.tasks().tasks), None)

    @property
    def warm(self) -> bool:
        """Whether a driver with Spark waits, beside the one of a job."""
        with self.cluster as found:
            return found.engines()[0].warm > 0

    @property
    def runs(self) -> bool:
        task = self.task()
        return task is not None and task.here

    @property
    def state(self) -> str:
        task = self.task()
        return "" if task is None or not task.here else task.state

    def kill(self) -> None:
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(children, timeout=60)


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + _LIMIT_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not in {_LIMIT_S:g} s")
        time.sleep(0.05)


def results(place: Path) -> int:
    return sum(1 for _ in (place / "flow" / "out").glob("*.jsonl"))


def measure(place: Path, turns: int, lease: float, *, apart: bool) -> dict[str, Timing]:
    """Return the seconds to the claim of the other engine, to its queries, and its first result."""
    claims: list[float] = []
    starts: list[float] = []
    first: list[float] = []
    with broker(place / "kafka") as kafka:
        nodes = [Node(place, name, lease, apart=apart) for name in ("one", "two")]
        try:
            until(lambda: all(node.warm for node in nodes), "spares")
            with nodes[0].cluster as found:
                options = {"journals": f"kafka://{kafka.servers}/site"}
                found.deploy(place / "flow" / "flow.py", options=options)
            until(lambda: results(place), "the first result")
            for _ in range(turns):
                until(lambda: all(node.warm for node in nodes), "spares")
                holder, other = nodes if nodes[0].runs else nodes[::-1]
                before = results(place)
                until(lambda before=before: results(place) > before, "further results")
                holder.kill()
                before, began = results(place), time.monotonic()
                until(lambda other=other: other.runs, "the claim")
                claims.append(time.monotonic() - began)
                until(lambda other=other: other.state == "running", "the start")
                starts.append(time.monotonic() - began)
                until(lambda before=before: results(place) > before, "the next result")
                first.append(time.monotonic() - began)
                holder.start()
        finally:
            for node in nodes:
                node.kill()
    found = {"claim": claims, "queries run": starts, "first result": first}
    return {name: Timing(tuple(seconds)) for name, seconds in found.items()}


def record(root: Path) -> None:
    """Write a recording of ten hours, which takes ten minutes to replay."""
    root.mkdir()
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    rows = [{"k": f"k{n % 5}", "at": begin + timedelta(seconds=n)} for n in range(36_000)]
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    pq.write_table(pa.Table.from_pylist(rows, schema), root / "events.parquet")
    (root / "flow.py").write_text(FLOW)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--lease", type=float, default=9.0)
    parser.add_argument("--only", action="append", choices=("on one host", "as on two hosts"))
    given = parser.parse_args()
    found: dict[str, Timing] = {}
    for where in given.only or ("on one host", "as on two hosts"):
        with folder("failover") as place:
            record(place / "flow")
            measured = measure(place, given.turns, given.lease, apart="two" in where)
            found |= {f"{name}, {where}": one for name, one in measured.items()}
    rows = [
        [name, f"{one.median:.1f}", *(f"{s:.1f}" for s in one.seconds)]
        for name, one in found.items()
    ]
    turns = [f"turn {n + 1} (s)" for n in range(given.turns)]
    show("from kill -9 of an engine", ["to", "median (s)", *turns], rows)
    save(
        "failover",
        {"lease_s": given.lease, "turns": given.turns},
        {name: one.plain() for name, one in found.items()},
    )


if __name__ == "__main__":
    main()
