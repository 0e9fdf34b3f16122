"""Windows per key, a join or a pattern: a Millstream flow against PySpark written by hand over the same rows.

    python -m benchmarks.windows                     windows of 60 s, 1 M events
    python -m benchmarks.windows --full              4 M events
    python -m benchmarks.windows --shape sessions    sessions with gaps of 6 s
    python -m benchmarks.windows --shape join        pairs of a key's readings at most 10 s apart
    python -m benchmarks.windows --shape match       a pattern; by hand it is `ms.match`
    python -m benchmarks.windows --whole csv         whole flows too: from files into a journal, stages, sink

The flow reads a journal that is filled; a whole one fills it from the files that are read by hand.
All variants run in one session, with the same rows per batch, the same state store and Parquet
results, one after the other in turn; the first turn warms up and is not counted. Their results are
compared row by row. Seconds of the processor are those of all processes: what else runs on the machine
disturbs them less.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
from benchmarks import events
from benchmarks.common import Timing, cpu_seconds, folder, save, show
from pyspark.sql import DataFrame, SparkSession, functions

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import IN_MEMORY, ROCKSDB, session

PROVIDERS = {"memory": IN_MEMORY, "rocksdb": ROCKSDB}
RESULT = {
    "windows": ["key", "window_start", "events", "total", "highest"],
    "sessions": ["key", "window_start", "events", "total", "highest"],
    "join": ["key", "reading", "other", "at"],
    "match": ["key", "first", "second", "third"],
}
TITLES = {
    "windows": "60 s windows",
    "sessions": "sessions, gaps of 6 s",
    "join": "join within 10 s",
    "match": "a sequence of three within 60 s",
}


class Size(NamedTuple):
    """How many events there are, over how much time, and how many of them are in a batch."""

    events: int
    minutes: int
    rows_per_batch: int


USUAL = {"small": Size(1_000_000, 20, 500_000), "full": Size(4_000_000, 20, 500_000)}
#: Spark compares a row of a join with all of its key that are in state. So what an event costs grows
#: with the time in a batch: here 30 s, three times what rows may lie apart.
SIZES = {
    ("join", "small"): Size(600_000, 3, 100_000),
    ("join", "full"): Size(2_000_000, 10, 100_000),
}
#: What the formats of files are called, in tables and for a source of files.
FORMATS = {"parquet": "parquet", "json": "json lines", "csv": "csv"}
PATTERN = (
    ms.Pattern("rising")
    .begin("a", "value > 500")
    .followed_by("b", "value > 700")
    .followed_by("c", "value < 50")
    .within("60 seconds")
)
MATCH = "key, a.reading as first, b.reading as second, c.reading as third"


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
    #: The formats of the files that whole flows read.
    whole: tuple[str, ...] = ()

    @property
    def by_hand(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("parquet", "json", *self.whole)))

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
    cpu_seconds: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    durations: dict[str, float] = field(default_factory=dict)


# The flow


def flow_over(name: str, shape: str, source: Any, out: Path) -> ms.Flow:
    flow = ms.Flow(name)
    readings = flow.source("readings", source, time="at", lateness=events.LATENESS)
    sums = {"events": "count(*)", "total": "sum(value)", "highest": "max(value)"}
    if shape == "windows":
        found = readings.window("totals", every="60 seconds", by="key", **sums)
    elif shape == "sessions":
        found = readings.window("totals", gap="6 seconds", by="key", **sums)
    elif shape == "match":
        found = readings.match("totals", PATTERN, by="key", emit=MATCH)
    else:
        even = readings.sql("even", "SELECT key, reading, at FROM readings WHERE reading % 2 = 0")
        odd = readings.sql(
            "odd", "SELECT key, reading AS other, at FROM readings WHERE reading % 2 = 1"
        )
        found = even.join("totals", odd, on="key", within="10 seconds")
    found.sink("totals", ms.parquet(str(out)))
    return flow


def run_flow(spark: SparkSession, case: Case, journal: Path, place: Path) -> list[dict[str, Any]]:
    # The journal is filled before; a link stands for it, so that every run starts from a fresh
    # checkpoint.
    journals = place / "data" / "bench" / "journals"
    journals.mkdir(parents=True)
    (journals / "readings").symlink_to(journal)
    return _run(spark, case, ms.inbox(events.DDL), place)


def run_whole(
    spark: SparkSession, case: Case, format: str, rows: Path, place: Path
) -> list[dict[str, Any]]:
    source = ms.files(f"{rows}/*", events.DDL, format={"json": "jsonl"}.get(format, format))
    return _run(spark, case, source, place)


def _run(spark: SparkSession, case: Case, source: Any, place: Path) -> list[dict[str, Any]]:
    flow = flow_over("bench", case.shape, source, place / "out")
    run = FlowRun(spark, flow, Options(place / "data", place, case.rows_per_batch, case.state))
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
    if shape == "match":
        return ms.match(timed, PATTERN, key="key", emit=MATCH)
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
        .option("header", True)
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


def prepare(case: Case, place: Path) -> None:
    """Write the events in all forms: place/journal, and place/parquet and so on."""
    events.fill_journal(place / "journal", case.blocks(100_000), entry=case.entry)
    half = case.rows_per_batch // 2
    for kind in case.by_hand:
        batches = chain(case.blocks(half), [events.last_row(case.span_us)])
        events.write_files(place / kind, batches, format=kind)


def variants_of(spark: SparkSession, case: Case, rows: Path) -> list[Variant]:
    """Return all ways to get the results, from the events in `rows`."""
    flow = Variant("millstream", lambda out: run_flow(spark, case, rows / "journal", out))
    by_hand = [
        Variant(FORMATS[one], lambda out, one=one: run_by_hand(spark, case, one, rows / one, out))
        for one in case.by_hand
    ]
    whole = [
        Variant(whole_name(one), lambda out, one=one: run_whole(spark, case, one, rows / one, out))
        for one in case.whole
    ]
    return [flow, *by_hand, *whole]


def whole_name(format: str) -> str:
    return f"millstream, from {FORMATS[format]}"


def measure(variant: Variant, place: Path, turn: int, columns: list[str]) -> pa.Table:
    """Run a variant once and return its results; the first turn is not counted."""
    place.mkdir(parents=True)
    began, before = time.perf_counter(), cpu_seconds(psutil.Process())
    progress = variant.run(place)
    seconds, used = time.perf_counter() - began, cpu_seconds(psutil.Process()) - before
    if turn > 0:
        variant.seconds.append(seconds)
        variant.cpu_seconds.append(used)
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
        prepare(case, place)
        spark = session("benchmark", log=place / "spark.log")
        variants = variants_of(spark, case, place)
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
        "cpu_seconds": round(statistics.median(variant.cpu_seconds), 2),
        "batches": len(batches.seconds) // len(timing.seconds),
        "batch_median_s": round(batches.median, 3),
        "durations_s": variant.durations,
    }


def report(case: Case, found: dict[str, Any]) -> None:
    mine = found["millstream"]
    whole = [whole_name(one) for one in case.whole]
    rows = [
        (
            name,
            found[name]["median_s"],
            found[name]["cpu_seconds"],
            f"{found[name]['events_per_second']:,}",
            f"{found[name]['batches']} of {found[name]['batch_median_s']:.2f} s",
            found[name]["spread"],
            mine["median_s"] / found[name]["median_s"],
            mine["cpu_seconds"] / found[name]["cpu_seconds"],
        )
        for name in ("millstream", *(FORMATS[one] for one in case.by_hand), *whole)
    ]
    title = f"{TITLES[case.shape]}, {case.events:,} events, {case.keys:,} keys, {case.rows_per_batch:,} rows a batch, {case.state}"
    columns = ("variant", "seconds", "CPU s", "events/s", "batches", "spread")
    said = [f"{found['result_rows']:,} result rows, equal in all"]
    for one, name in zip(case.whole, whole, strict=True):
        stages, flow = found[FORMATS[one]], found[name]
        rate, cpu = (stages[of] / flow[of] for of in ("median_s", "cpu_seconds"))
        said.append(f"{name}: {rate:.2f} of the rate of its stages alone, by CPU {cpu:.2f}")
    show(title, (*columns, "millstream / it", "by CPU"), rows, "; ".join(said))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="4 M events, for a join 2 M")
    parser.add_argument("--events", type=int)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, help="the event time that the events span")
    parser.add_argument("--rows-per-batch", type=int)
    parser.add_argument("--entry", type=int, default=1_000, help="rows in one batch of the journal")
    parser.add_argument("--state", choices=sorted(PROVIDERS), default="memory")
    parser.add_argument("--shape", choices=sorted(RESULT), default="windows")
    parser.add_argument("--whole", default="", help=f"some of {', '.join(FORMATS)}, by comma")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    whole = tuple(one for one in args.whole.split(",") if one)
    if unknown := set(whole) - set(FORMATS):
        parser.error(f'--whole has "{unknown.pop()}", which is none of {", ".join(FORMATS)}')
    size = "full" if args.full else "small"
    usual = SIZES.get((args.shape, size), USUAL[size])
    count, minutes = args.events or usual.events, args.minutes or usual.minutes
    rows_per_batch = args.rows_per_batch or usual.rows_per_batch
    case = Case(
        *(count, args.keys, minutes, rows_per_batch, args.entry, args.state),
        *(args.shape, whole),
    )
    found = run(case, args.turns)
    report(case, found)
    settings = {name: getattr(case, name) for name in Case.__slots__} | {"turns": args.turns}
    kind = "" if case.shape == "windows" else f"-{case.shape}"
    save(f"windows{kind}-{size}-{case.state}", settings, found)


if __name__ == "__main__":
    main()
