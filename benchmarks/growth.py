"""What an event costs as things grow: the rows of a journal, keys, partitions, jobs on an engine.

    python -m benchmarks.growth                          small sizes
    python -m benchmarks.growth --full                   100 M rows, 10 M keys, 64 partitions, 50 jobs
    python -m benchmarks.growth --only rows --rows 10000000
    python -m benchmarks.growth --only drivers --drivers 4

A cost is CPU time of all processes that take part, seen from outside, divided by the events:

- *rows*: events go from a client through an inbox into a journal, which keeps all of them, and from
  there through windows of 60 s per key into files; the journal gets longer and longer. A figure is
  the median of the last steps before that number of rows.
- *keys*: the state of a fold (`benchmarks/state.py`), one key in a hundred touched.
- *partitions*: as *rows*, with more partitions; also what a batch of a few rows costs.
- *jobs*: events into the inboxes of all jobs of one engine, in turn: the engine's own CPU, its memory, and
  its CPU at rest. Each job has a driver process; here one without Spark, which reports as a real one does.
- *drivers*: real jobs at rest, on one engine: memory and CPU of each driver, and how many fit into
  the memory that is free.

"Flat" means that the most expensive size costs at most a quarter more than the cheapest. Points are
kept under the name of what grows, so that `--only` replaces one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
from benchmarks import events, pictures, state
from benchmarks.common import RESULTS, folder, save, show
from benchmarks.pictures import counted
from benchmarks.service import engine, wait_for
from benchmarks.switch import shared_memory
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import ROCKSDB, end_session, session

#: How much more the most expensive size may cost than the cheapest.
FLAT: Final = 1.25
#: Rows of a step, which one batch reads; and of a small one.
STEP, SMALL_STEP = 250_000, 1_000
#: The event time between two rows: a window of a minute has the same number of them at any size.
APART_US: Final = 300
KEYS: Final = 10_000
#: A figure is the median of so many steps.
STEPS: Final = 8
JOB_EVENTS: Final = 4_000_000
REST_S: Final = 20.0
FLOW: Final = """
import millstream as ms

flow = ms.Flow("{name}")
events = flow.source("events", ms.inbox("k string, n long, at timestamp"), time="at", key="k")
events.window("counted", every="1 minute", by="k", rows="count(*)").sink("counted", ms.jsonl("out/{name}"))
"""


class Grown:
    """A flow of windows over an inbox, fed by steps."""

    def __init__(self, spark: SparkSession, place: Path, partitions: int, rows: int) -> None:
        flow = ms.Flow("grown")
        source = ms.inbox(events.DDL)
        how: dict[str, Any] = {"time": "at", "key": "key", "lateness": events.LATENESS}
        readings = flow.source("readings", source, partitions=partitions, **how)
        totals = readings.window("totals", every="60 seconds", by="key", total="sum(value)")
        totals.sink("totals", ms.parquet(str(place / "out")))
        # A batch takes a step: limits are those of a partition.
        self.run = FlowRun(spark, flow, Options(place / "data", place, 2 * STEP))
        self._blocks = events.blocks(rows, KEYS, rows * APART_US, SMALL_STEP)
        self.rows = 0
        self.run.start()
        self._client = ms.connect(str(self.run.address), timeout=600)

    def step(self, rows: int) -> float:
        """Send rows, wait until they are processed, and return the CPU seconds of all of it."""
        before = state.cpu_seconds()
        sent = 0
        while sent < rows:
            block = next(self._blocks)
            self._client.send_nowait("grown.readings", block)
            sent += block.num_rows
        self._client.flush()
        self.rows += sent
        while not self._caught_up():
            self.run.poll()
            time.sleep(0.05)
        return state.cpu_seconds() - before

    def _caught_up(self) -> bool:
        group = self.run.statistics().groups[0]
        return group.rows_in >= self.rows and self.run.caught_up()

    def close(self) -> None:
        self._client.close()
        self.run.stop()


def by_rows(spark: SparkSession, place: Path, stops: Sequence[int]) -> list[dict[str, Any]]:
    """Return what an event costs while a journal grows, at these numbers of rows."""
    found = []
    warm = Grown(spark, place / "warm", 1, (STEPS + 1) * STEP)
    for _ in range(STEPS):  # Java compiles what runs often
        warm.step(STEP)
    warm.close()
    grown = Grown(spark, place, 1, stops[-1] + 2 * STEP)
    spent: list[float] = []
    try:
        for stop in stops:
            while grown.rows < stop:
                spent.append(grown.step(STEP) / STEP * 1e6)
            used = shutil.disk_usage(place).used
            journal = sum(one.stat().st_size for one in (place / "data").rglob("*.arrow*"))
            found.append(
                {
                    "rows": grown.rows,
                    "us": round(statistics.median(spent[-STEPS:]), 2),
                    "steps": [round(one, 2) for one in spent[-STEPS:]],
                    "journal_mb": round(journal / 2**20),
                    "disk_used_gb": round(used / 2**30),
                }
            )
            print(found[-1], flush=True)
    finally:
        grown.close()
    return found


def by_partitions(spark: SparkSession, place: Path, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return what an event costs in large batches, and what a small batch costs."""
    found = []
    for partitions in sizes:
        root = place / f"p{partitions}"
        root.mkdir(parents=True)
        grown = Grown(spark, root, partitions, (STEPS + 4) * STEP + STEPS * SMALL_STEP)
        try:
            for _ in range(4):  # Java compiles what runs often
                grown.step(STEP)
            large = [grown.step(STEP) / STEP * 1e6 for _ in range(STEPS)]
            small = [grown.step(SMALL_STEP) for _ in range(STEPS)]
        finally:
            grown.close()
        shutil.rmtree(root)
        found.append(
            {
                "partitions": partitions,
                "us": round(statistics.median(large), 2),
                "steps": [round(one, 2) for one in large],
                "small_batch_cpu_ms": round(statistics.median(small) * 1e3),
            }
        )
        print(found[-1], flush=True)
    return found


def by_keys(spark: SparkSession, place: Path, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return what an event of a fold costs by keys, if one in a hundred is touched."""
    asked = argparse.Namespace(
        keys=list(sizes), variants=["state"], events=100_000, batches=6, whole=0, mapped=0
    )
    return [
        {"keys": one["keys"], "us": one["cpu_us_per_event"], "batches": one["batches"]}
        for one in state.measure(spark, place, asked)
    ]


# jobs


def serve_jobs(data: Path, jobs: int) -> None:
    """Be an engine with so many jobs, whose drivers have no Spark; end when stdin closes."""
    from millstream.engine.driver import process as drivers
    from millstream.engine.engine import Engine
    from millstream.engine.jobs.lifecycle import JobState
    from millstream.engine.jobs.package import pack

    drivers.PROGRAM = (str(Path(__file__).with_name("idle_driver.py")),)
    one = Engine(data / "engine")
    one.start()
    try:
        for name in job_names(jobs):
            (data / f"{name}.py").write_text(FLOW.format(name=name))
            one.deploy(pack(data / f"{name}.py"), root=str(data))
            while one.status(name).state is not JobState.RUNNING:
                time.sleep(0.05)
        print(one.address, flush=True)
        sys.stdin.read()
    finally:
        one.close()


def job_names(jobs: int) -> list[str]:
    return [f"job-{number:02}" for number in range(jobs)]


@contextmanager
def engine_with(jobs: int) -> Iterator[tuple[psutil.Process, str]]:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "benchmarks.growth", "--serve", place, "--jobs", str(jobs)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield psutil.Process(process.pid), process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(300)


def own_cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def by_jobs(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return what an event costs an engine by its jobs, and what they cost it at rest."""
    found = []
    for jobs in sizes:
        with engine_with(jobs) as (process, address), ms.connect(address, timeout=600) as client:
            time.sleep(5)  # until it has started
            idle, began = own_cpu(process), time.monotonic()
            time.sleep(REST_S)
            resting = (own_cpu(process) - idle) / (time.monotonic() - began)
            memory = shared_memory(process.pid) / 2**20
            before, began = own_cpu(process), time.monotonic()
            _send(client, job_names(jobs), JOB_EVENTS)
            took = time.monotonic() - began
            spent = own_cpu(process) - before - resting * took
            figures = {"threads": process.num_threads(), "files": process.num_fds()}
        found.append(
            {
                "jobs": jobs,
                "us": round(spent / JOB_EVENTS * 1e6, 2),
                "idle_cpu_percent": round(resting * 100, 2),
                "engine_mb": round(memory, 1),
                **figures,
            }
        )
        print(found[-1], flush=True)
    return found


def _send(client: ms.Client, jobs: Sequence[str], count: int) -> None:
    """Send events to all jobs in turn, a thousand at a time."""
    number = np.arange(SMALL_STEP)
    at = pa.array(np.full(SMALL_STEP, time.time_ns() // 1000)).cast(pa.timestamp("us", "UTC"))
    keys = pa.array([f"k{n % 10}" for n in number])
    rows = pa.record_batch([keys, pa.array(number), at], names=["k", "n", "at"])
    for turn in range(count // SMALL_STEP):
        client.send_nowait(f"{jobs[turn % len(jobs)]}.events", rows)
    client.flush()


def by_drivers(place: Path, most: int, spare_gb: float = 3.0) -> dict[str, Any]:
    """Deploy real jobs until there are `most`, or memory gets short; return what one costs at rest."""
    with engine(place) as (process, cluster):
        deployed: list[str] = []
        for name in job_names(most):
            if psutil.virtual_memory().available < spare_gb * 2**30:
                break
            (place / f"{name}.py").write_text(FLOW.format(name=name))
            cluster.deploy(place / f"{name}.py")
            wait_for(lambda name=name: cluster.status(name).state == "running", 600)
            deployed.append(name)
            print(f"{counted(len(deployed), 'driver')}", flush=True)
        time.sleep(REST_S)
        trees = [_tree(cluster.status(name).pid or 0) for name in deployed]
        before, began = [_cpu(tree) for tree in trees], time.monotonic()
        time.sleep(REST_S)
        passed = time.monotonic() - began
        busy = [(_cpu(tree) - cpu) / passed for tree, cpu in zip(trees, before, strict=True)]
        sizes = [sum(_memory(one) for one in tree) / 2**20 for tree in trees]
        engine_mb = shared_memory(process.pid) / 2**20
        for name in deployed:
            cluster.undeploy(name, force=True)
    total = psutil.virtual_memory().total / 2**20
    each = statistics.median(sizes)
    return {
        "drivers": len(deployed),
        "driver_mb": round(each),
        "driver_idle_cpu_percent": round(statistics.median(busy) * 100, 2),
        "engine_mb": round(engine_mb),
        "fit": int((total - spare_gb * 1024 - engine_mb) / each),
        "memory_gb": round(total / 1024),
        "stopped_by_memory": len(deployed) < most,
    }


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def _cpu(tree: Sequence[psutil.Process]) -> float:
    total = 0.0
    for one in tree:
        with contextlib.suppress(psutil.Error):
            total += own_cpu(one)
    return total


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error, OSError, StopIteration):
        return shared_memory(process.pid)
    return 0


# Showing


def judged(points: Sequence[dict[str, Any]], what: str) -> str:
    """Return in words whether the cost of an event is flat."""
    cheapest, dearest = (pick(points, key=lambda one: one["us"]) for pick in (min, max))
    times = dearest["us"] / cheapest["us"] if cheapest["us"] > 0 else float("inf")
    first, last = points[0], points[-1]
    said = f"{first['us']:g} µs with {first[what]:,}, {last['us']:g} µs with {last[what]:,}"
    if times <= FLAT:
        return f"flat: {said}"
    return f"not flat: {said}; the dearest ({dearest[what]:,}) costs {times:.2f} times the cheapest"


def draw(results: dict[str, Any]) -> None:
    notes: dict[str, Callable[[dict[str, Any]], str]] = {
        "rows": lambda _: "µs an event",
        "keys": lambda _: "µs an event",
        "partitions": lambda one: f"µs an event; a small batch {one['small_batch_cpu_ms']} ms",
        "jobs": lambda one: f"µs an event; at rest {one['idle_cpu_percent']} % CPU",
    }
    for what, note in notes.items():
        if what in results:
            values = [(_sized(one[what], what), one["us"], note(one)) for one in results[what]]
            label = f"CPU time of an event by {what}"
            pictures.bars(f"growth-{what}", values, 1, label)


def _sized(count: int, what: str) -> str:
    return counted(count, what.removesuffix("s"))


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


SMALL: Final = {
    "rows": [1_000_000, 2_000_000, 4_000_000],
    "keys": [10_000, 100_000],
    "partitions": [1, 4, 16],
    "jobs": [1, 5, 10],
}
FULL: Final = {
    "rows": [1_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000],
    "keys": [10_000, 100_000, 1_000_000, 10_000_000],
    "partitions": [1, 2, 4, 8, 16, 32, 64],
    "jobs": [1, 5, 10, 25, 50],
}


def measure(what: str, sizes: Sequence[int], place: Path) -> list[dict[str, Any]]:
    """Measure one kind of growth, in a Spark session of its own if it needs one."""
    if what == "jobs":
        return by_jobs(sizes)
    ways = {"rows": by_rows, "keys": by_keys, "partitions": by_partitions}
    conf = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    if what == "keys":
        conf["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
    with ExitStack() as stack:
        spark = session("benchmark", log=place / "spark.log", conf=conf)
        stack.callback(end_session, spark)
        return ways[what](spark, place / what, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", choices=[*SMALL, "drivers"])
    for name in SMALL:
        parser.add_argument(f"--{name}", type=numbers, metavar="N,N")
    parser.add_argument("--drivers", type=int, help="how many real jobs at most")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve_jobs(given.serve, given.jobs[0])
        return
    chosen = {name: getattr(given, name) or (FULL if given.full else SMALL)[name] for name in SMALL}
    results = _kept(given.full)
    for what, sizes in chosen.items():
        if given.only in (None, what):
            with folder("growth") as place:
                (place / what).mkdir()
                results[what] = measure(what, sizes, place)
    if given.only in (None, "drivers"):
        with folder("growth") as place:
            results["drivers"] = by_drivers(place, given.drivers or (50 if given.full else 2))
    results["words"] = {what: judged(results[what], what) for what in SMALL if what in results}
    for what, said in results["words"].items():
        shown = [name for name in results[what][0] if name != "steps"]
        show(f"by {what}: {said}", shown, [[one[name] for name in shown] for one in results[what]])
    if "drivers" in results:
        show("real jobs at rest", ["", ""], list(results["drivers"].items()))
    save("growth-full" if given.full else "growth", {"step": STEP, "flat": FLAT}, results)
    draw(results)


def _kept(full: bool) -> dict[str, Any]:
    """Return what was measured before, so that parts can be measured apart."""
    path = RESULTS / ("growth-full.json" if full else "growth.json")
    return dict(json.loads(path.read_text())["results"]) if path.exists() else {}


if __name__ == "__main__":
    main()
