"""`fold` and `distinct`, the stages of our own with state per key in event-time order: events per second.

    python -m benchmarks.fold

Five flows over the same journal of 1 M events with 10,000 keys: a fold that puts out a row for
every event, the same as declared folds and with a compiled one, a fold that puts out one event in a hundred, and a distinct. They run in one session,
in turn; the first turn warms up. What they put out is checked against numpy. Starts and ends of queries are
in the seconds; the steady rate is that between a quarter of the events and all of them.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from benchmarks import events
from benchmarks.common import Timing, folder, save, show
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session

#: The seconds of each flow, and the rows that come out.
Figures = dict[str, tuple[Timing, int]]
OUTPUT = "key string, total double, events long, at timestamp"
WITHIN = "60 seconds"


def every(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put out the running total with every event."""
    state["total"] += row["value"]
    state["events"] += 1
    return state, {
        "key": row["key"],
        "total": state["total"],
        "events": state["events"],
        "at": row["at"],
    }


def seldom(
    state: dict[str, Any], row: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Put out the running total with every hundredth event of a key."""
    state, result = every(state, row)
    return state, result if state["events"] % 100 == 0 else None


def _folding(step: Callable[..., Any]) -> Callable[[ms.Stream, Path], None]:
    def build(readings: ms.Stream, out: Path) -> None:
        initial = {"total": 0.0, "events": 0}
        readings.fold("totals", step, by="key", initial=initial, output=OUTPUT).sink(
            "out", ms.parquet(str(out))
        )

    return build


def _declared(readings: ms.Stream, out: Path) -> None:
    readings.fold("totals", by="key", total="sum(value)", events="count(*)").sink(
        "out", ms.parquet(str(out))
    )


def added(known: float, value: float) -> float:
    return known + value


def _compiled(readings: ms.Stream, out: Path) -> None:
    total = ms.compiled(added, initial=0.0)
    readings.fold("totals", by="key", total=total, events="count(*)").sink(
        "out", ms.parquet(str(out))
    )


def _distinct(readings: ms.Stream, out: Path) -> None:
    readings.distinct("firsts", by="key", within=WITHIN).sink("out", ms.parquet(str(out)))


FLOWS = {
    "fold, every event": _folding(every),
    "declared fold, every event": _declared,
    "compiled fold, every event": _compiled,
    "fold, one in 100": _folding(seldom),
    "distinct": _distinct,
}


def run_flow(
    spark: SparkSession, build: Callable[[ms.Stream, Path], None], journal: Path, place: Path
) -> float:
    """Run a flow over the filled journal and return the seconds that it took."""
    flow = ms.Flow("bench")
    build(
        flow.source("readings", ms.inbox(events.DDL), time="at", lateness=events.LATENESS),
        place / "out",
    )
    (place / "data" / "bench" / "journals").mkdir(parents=True)
    (place / "data" / "bench" / "journals" / "readings").symlink_to(journal)
    run = FlowRun(spark, flow, Options(place / "data", place))
    began = time.perf_counter()
    try:
        run.start()
        run.wait()
    finally:
        run.stop()
    return time.perf_counter() - began


# What must come out


def expected(count: int, keys: int, span_us: int) -> dict[str, int]:
    """Count, with numpy, the rows that each flow puts out."""
    table = pa.Table.from_batches(list(events.blocks(count, keys, span_us, 1_000_000)))
    names = table.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
    times = table.column("at").cast(pa.int64()).to_numpy()
    sizes = np.bincount(names)
    return {
        "fold, every event": count,
        "declared fold, every event": count,
        "compiled fold, every event": count,
        "fold, one in 100": int((sizes // 100).sum()),
        "distinct": _firsts(names, times),
    }


def _firsts(names: np.ndarray, times: np.ndarray) -> int:
    last: dict[int, int] = {}
    found = 0
    for place in np.argsort(times, kind="stable").tolist():
        key, at = int(names[place]), int(times[place])
        if key not in last or at - last[key] >= 60_000_000:
            last[key] = at
            found += 1
    return found


def put_out(out: Path) -> int:
    return int(ds.dataset(out, format="parquet", exclude_invalid_files=True).count_rows())


def measure(spark: SparkSession, place: Path, count: int, keys: int, turns: int) -> Figures:
    """Return the seconds of each flow over so many events, turn by turn, and the rows that come out."""
    span_us = 20 * 60_000_000
    wanted = expected(count, keys, span_us)
    seconds: dict[str, list[float]] = {name: [] for name in FLOWS}
    journal = place / f"journal-{count}"
    events.fill_journal(journal, events.blocks(count, keys, span_us, 100_000), entry=1_000)
    for _ in range(turns):
        for name, build in FLOWS.items():
            here = place / "run"
            here.mkdir()
            seconds[name].append(run_flow(spark, build, journal, here))
            found = put_out(here / "out")
            if found != wanted[name]:
                raise SystemExit(f"{name}: {found} rows came out, not {wanted[name]}")
            shutil.rmtree(here)
    shutil.rmtree(journal)
    return {name: (Timing(tuple(seconds[name])), wanted[name]) for name in FLOWS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    few = args.events // 4
    with folder("fold") as place:
        spark = session("benchmark", log=place / "spark.log")
        measure(spark, place, few, args.keys, 1)  # warms up
        small, large = (
            measure(spark, place, count, args.keys, args.turns) for count in (few, args.events)
        )
        spark.stop()
    found = {}
    for name, (timing, rows_out) in large.items():
        more = max(0.01, timing.median - small[name][0].median)
        found[name] = {
            **timing.plain(),
            "rows_out": rows_out,
            "events_per_second": round(args.events / timing.median),
            "steady_events_per_second": round((args.events - few) / more),
        }
    rows = [
        (
            *(name, one["median_s"], f"{one['events_per_second']:,}"),
            *(f"{one['steady_events_per_second']:,}", f"{one['rows_out']:,}", one["spread"]),
        )
        for name, one in found.items()
    ]
    show(
        f"fold and distinct, {args.events:,} events, {args.keys:,} keys",
        ("flow", "seconds", "events/s", "steady", "rows out", "spread"),
        rows,
        "steady: between a quarter of the events and all; rows out as numpy counts them",
    )
    save("fold", {"events": args.events, "keys": args.keys, "turns": args.turns}, found)


if __name__ == "__main__":
    main()
