"""The floor of a batch: from `send` to the sink at a steady rate, and how long small batches take.

    python -m benchmarks.latency [--rate 1000] [--seconds 30] [--cases plain,windows,pattern,hand]

A process of its own makes rows every 50 ms. A flow takes them over an inbox; PySpark by hand takes
the same rows from files, which is the nearest thing to an inbox that it has. Results are files. The
delay of a row is from the moment when it was made to the one at which its file was there, by the
clock of the file system; PySpark's files count from the commit that names them. All cases run in one
session one after the other, each after a few seconds that do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
from benchmarks.common import folder, save, show
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session

TICK_S: Final = 0.05
WARM_UP_S: Final = 8.0
DDL: Final = "k string, v long, at timestamp, made long"


# Sending: a process of its own


def made(tick: int, rows: int) -> pa.Table:
    """Return the rows of a tick, with the moment at which they are made."""
    now = time.time_ns() // 1000
    numbers = np.arange(rows) + tick * rows
    moments = pa.array(np.full(rows, now), pa.timestamp("us", "UTC"))
    keys = pa.array([f"k{number % 100}" for number in numbers.tolist()])
    return pa.table(
        {"k": keys, "v": numbers % 97, "at": moments, "made": np.full(rows, now, np.int64)}
    )


def to_files(place: Path) -> Callable[[int, pa.Table], None]:
    def send(tick: int, rows: pa.Table) -> None:
        part, whole = place / f".{tick:06}.part", place / f"{tick:06}.json"
        lines = (json.dumps({**row, "at": row["at"].isoformat()}) for row in rows.to_pylist())
        part.write_text("\n".join(lines))
        part.rename(whole)

    return send


def _open(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) != b""
    except BlockingIOError:
        return True


def produce(kind: str, where: str, rate: int) -> None:
    """Send until standard input ends."""
    if kind == "inbox":
        client = ms.connect(where, timeout=60)

        def send(_: int, rows: pa.Table) -> None:
            client.send_nowait("latency.events", rows)
    else:
        send = to_files(Path(where))
    os.set_blocking(0, False)
    begin, tick = time.monotonic(), 0
    while _open(0):
        send(tick, made(tick, round(rate * TICK_S)))
        tick += 1
        time.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))


@contextmanager
def load(kind: str, where: str, rate: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.latency", "--send", kind, where, str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.communicate()


# The cases


def flow_of(case: str, out: Path) -> ms.Flow:
    flow = ms.Flow("latency")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="0 seconds")
    if case == "plain":
        found = events.sql("some", "SELECT k, v, at, made FROM events WHERE v >= 10")
    elif case == "windows":
        found = events.window("totals", every="1 second", by="k", made="max(made)", n="count(*)")
    else:
        rise = ms.Pattern().begin("a", "v < 5").followed_by("b", "v > 90").within("10 seconds")
        found = events.match("rise", rise, emit="b.k as k, b.made as made")
    found.sink("out", ms.jsonl(str(out)))
    return flow


def run(spark: SparkSession, case: str, place: Path, rate: int, seconds: float) -> dict[str, Any]:
    if case == "hand":
        return run_by_hand(spark, place, rate, seconds)
    return run_flow(spark, case, place, rate, seconds)


def run_flow(
    spark: SparkSession, case: str, place: Path, rate: int, seconds: float
) -> dict[str, Any]:
    running = FlowRun(spark, flow_of(case, place / "out"), Options(place / "data", place))
    try:
        running.start()
        with load("inbox", str(running.address), rate):
            measured = watched(lambda: _of_flow(running), seconds)
    finally:
        running.stop()
    return measured | delays(files_of_flow(place / "out"), measured)


def _of_flow(run: FlowRun) -> tuple[list[Any], dict[str, float]]:
    run.poll()
    (group,) = run.queries.values()
    spent = group.statistics(0).spent
    return list(group.query.recentProgress) if group.query else [], dict(spent)


def run_by_hand(spark: SparkSession, place: Path, rate: int, seconds: float) -> dict[str, Any]:
    (place / "in").mkdir()
    frame = spark.readStream.schema(DDL).json(str(place / "in")).where("v >= 10")
    writer = frame.writeStream.format("json").option(
        "checkpointLocation", str(place / "checkpoint")
    )
    query = writer.start(str(place / "out"))
    try:
        with load("files", str(place / "in"), rate):
            measured = watched(lambda: (list(query.recentProgress), {}), seconds)
    finally:
        query.stop()
    return measured | delays(files_by_hand(place / "out"), measured)


# Measuring


def watched(
    look: Callable[[], tuple[list[Any], dict[str, float]]], seconds: float
) -> dict[str, Any]:
    """Let a case run; return what its batches took, and the CPU of all processes of this one."""
    time.sleep(WARM_UP_S)
    _, before = look()
    begun, used, forks = time.time_ns() // 1000, cpu_seconds(), forked()
    seen: dict[str, Any] = {}
    while time.time_ns() // 1000 < begun + seconds * 1e6:
        time.sleep(0.5)
        seen |= {one["timestamp"]: one for one in look()[0] if "addBatch" in one["durationMs"]}
    progress, after = look()[0], look()[1]
    end, cpu, new = time.time_ns() // 1000, cpu_seconds() - used, forked() - forks
    seen |= {one["timestamp"]: one for one in progress if "addBatch" in one["durationMs"]}
    batches = [one for one in seen.values() if _moment(one) >= begun / 1e6]
    took = sorted(one["durationMs"]["triggerExecution"] for one in batches)
    return {
        "from_us": begun,
        "to_us": end,
        "batches": len(took),
        "batch_p50_ms": took[len(took) // 2],
        "batch_p90_ms": took[len(took) * 9 // 10],
        "cpu_ms_per_batch": round(cpu * 1000 / len(took)),
        "processes_per_batch": round(new / len(took), 2),
        "spark_ms": _means(batches),
        "causes_ms": {
            cause: round((after[cause] - before.get(cause, 0.0)) * 1000 / len(took), 1)
            for cause in after
        },
    }


def _moment(progress: Any) -> float:
    from datetime import datetime

    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def _means(batches: list[Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in batches:
        for name, milliseconds in one["durationMs"].items():
            total[name] = total.get(name, 0) + milliseconds / len(batches)
    return {name: round(value, 1) for name, value in total.items()}


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, those that have ended included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def forked() -> int:
    """Return how many processes the machine has started so far."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))


def files_of_flow(out: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield when each file was there, and when its rows were made."""
    for path in out.glob("*.jsonl"):
        rows = [json.loads(line)["made"] for line in path.read_text().splitlines()]
        yield path.stat().st_ctime_ns // 1000, rows


def files_by_hand(out: Path) -> Iterator[tuple[int, list[int]]]:
    for commit in (out / "_spark_metadata").iterdir():
        if not commit.name.isdecimal():
            continue
        there = commit.stat().st_ctime_ns // 1000
        for line in commit.read_text().splitlines()[1:]:
            path = Path(json.loads(line)["path"].removeprefix("file:"))
            yield there, [json.loads(row)["made"] for row in path.read_text().splitlines()]


def delays(files: Iterator[tuple[int, list[int]]], measured: dict[str, Any]) -> dict[str, Any]:
    begun, end = measured.pop("from_us"), measured.pop("to_us")
    found = sorted(
        (there - one) / 1000
        for there, rows in files
        for one in rows
        if begun <= one and there <= end
    )
    cuts = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
    return {"rows": len(found)} | {
        name: round(found[int(len(found) * part)], 1) for name, part in cuts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", default="plain,windows,pattern,hand")
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        produce(given.send[0], given.send[1], int(given.send[2]))
        return
    results = {}
    with folder("latency") as place:
        spark = session("latency", log=place / "spark.log")
        for case in given.cases.split(","):
            (place / case).mkdir()
            results[case] = run(spark, case, place / case, given.rate, given.seconds)
            print(case, json.dumps(results[case]), flush=True)
        spark.stop()
    columns = ("batch_p50_ms", "batch_p90_ms", "p50_ms", "p99_ms", "cpu_ms_per_batch")
    show(
        f"{given.rate:,} events/s: milliseconds of a batch, from send to sink, and of CPU",
        ["case", "batch p50", "batch p90", "delay p50", "delay p99", "CPU of a batch"],
        [[case, *(one[name] for name in columns)] for case, one in results.items()],
    )
    settings = {"rate": given.rate, "seconds": given.seconds, "tick_ms": TICK_S * 1000}
    print(save("latency", settings, results))


if __name__ == "__main__":
    main()
