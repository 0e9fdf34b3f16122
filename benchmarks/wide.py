"""Twelve sinks on one source, in one query and in queries of their own, beside one sink: wall and CPU seconds.

    python -m benchmarks.wide

Each sink chooses one event in twelve and some columns. The flows read the same journal in batches of the same size, in one session, in turn; the first
turn warms up. CPU seconds are those of the driver, of Java and of all Python processes. The rows that come out are counted.
"""

from __future__ import annotations

import argparse
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
from benchmarks import events
from benchmarks.common import Timing, folder, save, show
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session

SINKS = 12
VARIANTS = {"1 sink": (1, True), "12 sinks, shared": (SINKS, True), "12 sinks": (SINKS, False)}


def build(place: Path, sinks: int, *, shared: bool) -> ms.Flow:
    """Return a flow with so many sinks, each with other rows."""
    flow = ms.Flow("bench")
    readings = flow.source("readings", ms.inbox(events.DDL), time="at", lateness=events.LATENESS)
    for number in range(sinks):
        chosen = f"SELECT key, value, at FROM readings WHERE pmod(hash(key), {SINKS}) = {number}"
        readings.sql(f"chosen{number}", chosen).sink(
            f"out{number}", ms.parquet(place / f"out{number}")
        )
        if not shared:
            flow.group(f"alone{number}", f"out{number}")
    return flow


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all that it has started, also those that have ended."""
    total = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def run_flow(
    spark: SparkSession, flow: ms.Flow, journal: Path, place: Path, rows: int
) -> tuple[float, float]:
    """Run a flow over the filled journal; return its wall and CPU seconds."""
    (place / "data" / "bench" / "journals").mkdir(parents=True)
    (place / "data" / "bench" / "journals" / "readings").symlink_to(journal)
    run = FlowRun(spark, flow, Options(place / "data", place, rows_per_batch=rows))
    began, used = time.perf_counter(), cpu_seconds()
    try:
        run.start()
        run.wait()
        return time.perf_counter() - began, cpu_seconds() - used
    finally:
        run.stop()


def rows_out(place: Path) -> int:
    folders = sorted(place.glob("out*"))
    return sum(
        ds.dataset(one, format="parquet", exclude_invalid_files=True).count_rows()
        for one in folders
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    wall: dict[str, list[float]] = {name: [] for name in VARIANTS}
    cpu: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with folder("wide") as place:
        journal = place / "journal"
        events.fill_journal(
            journal, events.blocks(args.events, 10_000, 20 * 60_000_000, 10_000), entry=1_000
        )
        spark = session("benchmark", log=place / "spark.log")
        for turn in range(args.turns + 1):
            for name, (sinks, shared) in VARIANTS.items():
                here = place / "run"
                here.mkdir()
                seconds = run_flow(
                    spark, build(here, sinks, shared=shared), journal, here, args.batch
                )
                if sinks == SINKS and rows_out(here) != args.events:
                    raise SystemExit(f"{name}: {rows_out(here)} rows came out, not {args.events}")
                shutil.rmtree(here)
                if turn > 0:
                    wall[name].append(seconds[0])
                    cpu[name].append(seconds[1])
        spark.stop()
    least = {
        kind: Timing(tuple(all_["1 sink"])).median for kind, all_ in (("wall", wall), ("cpu", cpu))
    }
    found = {
        name: {
            **Timing(tuple(wall[name])).plain(),
            "cpu_s": round(Timing(tuple(cpu[name])).median, 3),
            "wall_ratio": round(Timing(tuple(wall[name])).median / least["wall"], 2),
            "cpu_ratio": round(Timing(tuple(cpu[name])).median / least["cpu"], 2),
        }
        for name in VARIANTS
    }
    columns = ("flow", "seconds", "CPU s", "seconds, ratio", "CPU, ratio", "spread")
    rows = [
        (name, f["median_s"], f["cpu_s"], f["wall_ratio"], f["cpu_ratio"], f["spread"])
        for name, f in found.items()
    ]
    show(f"wide flows, {args.events:,} events in batches of {args.batch:,}", columns, rows)
    settings = {"events": args.events, "batch": args.batch, "turns": args.turns}
    save("wide", settings, found)


if __name__ == "__main__":
    main()
