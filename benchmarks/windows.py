"""Windows per key, or a join: a Millstream flow over a journal against PySpark written by hand over files of the same rows.

    python -m benchmarks.windows                     windows of 60 s, 1 M events
    python -m benchmarks.windows --full              4 M events
    python -m benchmarks.windows --shape sessions    sessions with gaps of 6 s
    python -m benchmarks.windows --shape join        pairs of a key's readings at most 10 s apart

All variants run in one session, with the same rows per batch, the same state store and Parquet
results, one after the other in turn; the first turn warms up and is not counted. Their results are
compared row by row.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from benchmarks import events
from benchmarks.common import Timing, folder, save, show
from pyspark.sql import DataFrame, SparkSession, functions

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import IN_MEMORY, ROCKSDB, session

PROVIDERS = {"memory": IN_MEMORY, "rocksdb": ROCKSDB}
RESULT = {
    "windows": ["key", "window_start", "events", "total", "highest"],
    "sessions": ["key", "window_start", "events", "total", "highest"],
    "join": ["key", "reading", "other", "at"],
}
TITLES = {
    "windows": "60 s windows",
    "sessions": "sessions, gaps of 6 s",
    "join": "join within 10 s",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured."""

    events: int
    keys: int
    minutes: int
    rows_per_batch: int
    entry: int
    state: str
    shape: str

    @property
    def span_us(self) -> int:
        return self.minutes * 60_000_000

    def blocks(self, size: int) -> Iterator[pa.RecordBatch]:
        return events.blocks(self.events, self.keys, self.span_us, size)


@dataclass
class Variant:
    """One way to get the results."""

    name: str
    run: Callable[[Path], list[dict[str, Any]]]
    seconds: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    durations: dict[str, float] = field(default_factory=dict)


# The flow


def flow_over(name: str, shape: str, out: Path) -> ms.Flow:
    flow = ms.Flow(name)
    readings = flow.source("readings", ms.inbox(events.DDL), time="at", lateness=events.LATENESS)
    sums = {"events": "count(*)", "total": "sum(value)", "highest": "max(value)"}
    if shape == "windows":
        found = readings.window("totals", every="60 seconds", by="key", **sums)
    elif shape == "sessions":
        found = readings.window("totals", gap="6 seconds", by="key", **sums)
    else:
        even = readings.sql("even", "SELECT key, reading, at FROM readings WHERE reading % 2 = 0")
        odd = readings.sql(
            "odd", "SELECT key, reading AS other, at FROM readings WHERE reading % 2 = 1"
        )
        found = even.join("totals", odd, on="key", within="10 seconds")
    found.sink("totals", ms.parquet(str(out)))
    return flow


def run_flow(spark: SparkSession, case: Case, journal: Path, place: Path) -> list[dict[str, Any]]:
    data = place / "data"
    flow = flow_over("bench", case.shape, place / "out")
    # The journal is filled before; a link stands for it, so that every run starts from a fresh
    # checkpoint.
    (data / "bench" / "journals").mkdir(parents=True)
    (data / "bench" / "journals" / "readings").symlink_to(journal)
    run = FlowRun(spark, flow, Options(data, place, case.rows_per_batch, case.state))
    try:
        run.start()
        run.wait()
        query = run.queries["totals"].query
        return [dict(progress) for progress in query.recentProgress] if query else []
    finally:
        run.stop()


# By hand


def by_hand(frame: DataFrame, shape: str) -> DataFrame:
    timed = frame.withWatermark("at", events.LATENESS)
    if shape == "join":
        return _joined(timed)
    if shape == "windows":
        span = functions.window("at", "60 seconds")
    else:
        span = functions.session_window("at", "6 seconds")
    found = timed.groupBy("key", span.alias("w")).agg(
        functions.count("*").alias("events"),
        functions.sum("value").alias("total"),
        functions.max("value").alias("highest"),
    )
    return found.select(
        "key",
        functions.col("w.start").alias("window_start"),
        functions.col("w.end").alias("window_end"),
        "events",
        "total",
        "highest",
    )


def _joined(timed: DataFrame) -> DataFrame:
    even = timed.where("reading % 2 = 0").select("key", "reading", "at")
    odd = timed.where("reading % 2 = 1").selectExpr("key AS k", "reading AS other", "at AS seen")
    near = "seen BETWEEN at - INTERVAL 10 SECONDS AND at + INTERVAL 10 SECONDS"
    return even.join(odd, functions.expr(f"key = k AND {near}")).drop("k", "seen")


def run_by_hand(
    spark: SparkSession, case: Case, format: str, rows: Path, place: Path
) -> list[dict[str, Any]]:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[case.state])
    # Two files a batch: the two tasks that the journal is cut into.
    frame = (
        spark.readStream.format(format)
        .schema(events.DDL)
        .option("maxFilesPerTrigger", 2)
        .load(str(rows))
    )
    writer = (
        by_hand(frame, case.shape)
        .writeStream.format("parquet")
        .outputMode("append")
        .trigger(availableNow=True)
    )
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "out"))
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]


# Measuring


def prepare(case: Case, place: Path) -> tuple[Path, Path, Path]:
    """Write the events in all forms."""
    events.fill_journal(place / "journal", case.blocks(100_000), entry=case.entry)
    half = case.rows_per_batch // 2
    for kind in ("parquet", "json"):
        batches = chain(case.blocks(half), [events.last_row(case.span_us)])
        events.write_files(place / kind, batches, format=kind)
    return place / "journal", place / "parquet", place / "json"


def measure(variant: Variant, place: Path, turn: int, columns: list[str]) -> pa.Table:
    """Run a variant once and return its results; the first turn is not counted."""
    place.mkdir(parents=True)
    began = time.perf_counter()
    progress = variant.run(place)
    seconds = time.perf_counter() - began
    if turn > 0:
        variant.seconds.append(seconds)
        variant.batches += [
            one["durationMs"]["triggerExecution"] / 1000
            for one in progress
            if one["numInputRows"] > 1
        ]
        variant.durations = _durations(progress)
    found = results(place / "out", columns)
    shutil.rmtree(place)
    return found


def _durations(progress: list[dict[str, Any]]) -> dict[str, float]:
    """Add up what Spark says about where the time of the batches went."""
    total: dict[str, float] = {}
    for one in progress:
        for name, milliseconds in one["durationMs"].items():
            total[name] = round(total.get(name, 0) + milliseconds / 1000, 3)
    return total


def results(out: Path, columns: list[str]) -> pa.Table:
    table = ds.dataset(out, format="parquet", exclude_invalid_files=True).to_table(columns=columns)
    rows = table.filter(pa.compute.not_equal(table.column("key"), "zzz"))
    for number, one in enumerate(rows.schema):
        if pa.types.is_timestamp(one.type):
            times = rows.column(number).cast(pa.timestamp("us", "UTC"))
            rows = rows.set_column(number, one.name, times)
    order = [(name, "ascending") for name in columns if name not in ("total", "highest")]
    return rows.sort_by(order).combine_chunks()


def compare(variants: list[Variant], tables: list[pa.Table]) -> int:
    for variant, table in zip(variants[1:], tables[1:], strict=True):
        if not table.equals(tables[0]):
            raise SystemExit(f"{variant.name} gives other results than {variants[0].name}")
    return int(tables[0].num_rows)


def run(case: Case, turns: int) -> dict[str, Any]:
    with folder("windows") as place:
        journal, parquet, lines = prepare(case, place)
        spark = session("benchmark", log=place / "spark.log")
        variants = [
            Variant("millstream", lambda out: run_flow(spark, case, journal, out)),
            Variant("parquet", lambda out: run_by_hand(spark, case, "parquet", parquet, out)),
            Variant("json lines", lambda out: run_by_hand(spark, case, "json", lines, out)),
        ]
        rows = 0
        for turn in range(turns + 1):
            tables = [
                measure(variant, place / f"run-{turn}-{n}", turn, RESULT[case.shape])
                for n, variant in enumerate(variants)
            ]
            rows = compare(variants, tables)
        spark.stop()
    return {
        "result_rows": rows,
        "results_equal": True,
        **{variant.name: _plain(variant, case) for variant in variants},
    }


def _plain(variant: Variant, case: Case) -> dict[str, Any]:
    timing, batches = Timing(tuple(variant.seconds)), Timing(tuple(variant.batches))
    return {
        **timing.plain(),
        "events_per_second": round(case.events / timing.median),
        "batch_median_s": round(batches.median, 3),
        "durations_s": variant.durations,
    }


def report(case: Case, found: dict[str, Any]) -> None:
    mine = found["millstream"]["median_s"]
    names = ("millstream", "parquet", "json lines")
    rows = [
        (
            name,
            found[name]["median_s"],
            f"{found[name]['events_per_second']:,}",
            found[name]["batch_median_s"],
            found[name]["spread"],
            mine / found[name]["median_s"],
        )
        for name in names
    ]
    title = f"{TITLES[case.shape]}, {case.events:,} events, {case.keys:,} keys, {case.rows_per_batch:,} rows a batch, {case.state}"
    columns = ("variant", "seconds", "events/s", "batch s", "spread", "millstream / it")
    show(title, columns, rows, f"{found['result_rows']:,} result rows, equal in all three")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="4 M events")
    parser.add_argument("--events", type=int)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument(
        "--minutes", type=int, default=20, help="the event time that the events span"
    )
    parser.add_argument("--rows-per-batch", type=int, default=500_000)
    parser.add_argument("--entry", type=int, default=1_000, help="rows in one batch of the journal")
    parser.add_argument("--state", choices=sorted(PROVIDERS), default="memory")
    parser.add_argument("--shape", choices=sorted(RESULT), default="windows")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    count = args.events or (4_000_000 if args.full else 1_000_000)
    case = Case(
        count, args.keys, args.minutes, args.rows_per_batch, args.entry, args.state, args.shape
    )
    found = run(case, args.turns)
    report(case, found)
    settings = {name: getattr(case, name) for name in Case.__slots__} | {"turns": args.turns}
    size = "full" if count >= 4_000_000 else "small"
    kind = "" if case.shape == "windows" else f"-{case.shape}"
    save(f"windows{kind}-{size}-{case.state}", settings, found)


if __name__ == "__main__":
    main()
