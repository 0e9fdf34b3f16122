"""A job of ours as a process of its own: one case over a stream of files or a journal.

    python -m benchmarks.patterns_ours EVENTS OUT CASE --from csv|parquet|journal|flow
    python -m benchmarks.patterns_ours EVENTS OUT --check CASE ...

Over files it is `ms.match` with results as CSV files, over a journal a flow with results as Parquet
files; with `flow` that flow reads CSV files into its journal first. With --check: the cases over the files as a batch, into OUT/CASE-pattern, and their MATCH_RECOGNIZE
clauses, the text that Flink gets, into OUT/CASE-sql.
"""

from __future__ import annotations

import argparse
import json
from functools import reduce
from pathlib import Path

from benchmarks.patterns_cases import CASES, Case
from benchmarks.patterns_events import DDL, FORMS, LANES, LAST, LATENESS_S
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session

CLAUSES = 3
#: Nothing is quoted, which Flink is told too; and Spark's parser is quicker with a whole file than with its lines one by one.
READING = {"quote": "", "multiLine": True}


def stream(spark: SparkSession, case: Case, form: str, events: Path, out: Path) -> StreamingQuery:
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", LANES)
    reader = reader.options(**READING) if form == "csv" else reader
    frame = reader.format(form).load(str(events)).withWatermark("at", f"{LATENESS_S} seconds")
    # The event that ends the stream moves the watermark, below which Spark filters.
    frame = frame.where(f"({case.only}) OR kind = '{LAST}'") if case.only else frame
    found = ms.match(frame, case.what, key="key", emit=case.emit)
    writer = found.select(*case.columns).writeStream.format("csv").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(out.with_suffix(".checkpoint"))).start(str(out))
    query.awaitTermination()
    return query


def in_flow(
    spark: SparkSession, case: Case, form: str, rows_per_batch: int, events: Path, out: Path
) -> StreamingQuery:
    """Run a flow over CSV files, or over a journal that is there: a link stands for it among those of the flow."""
    flow, filled = ms.Flow("bench"), form == "journal"
    source = ms.inbox(DDL) if filled else ms.files(str(events), DDL, format="csv", header=False)
    rows = flow.source("events", source, time="at", lateness=f"{LATENESS_S} seconds")
    rows = rows.sql("chosen", f"SELECT * FROM events WHERE {case.only}") if case.only else rows
    rows.match("found", case.what, by="key", emit=case.emit).sink("out", ms.parquet(str(out)))
    data = out.with_suffix(".checkpoint")
    if filled:
        (data / "bench" / "journals").mkdir(parents=True)
        (data / "bench" / "journals" / "events").symlink_to(events)
    run = FlowRun(spark, flow, Options(data, out.parent, rows_per_batch))
    try:
        run.start()
        run.wait()
        (query,) = [one.query for one in run.queries.values() if one.query is not None]
        return query
    finally:
        run.stop()


def batch(spark: SparkSession, case: Case, parts: Path, out: Path) -> None:
    frame = spark.read.schema(DDL).options(**READING).csv(str(parts))
    frame.createOrReplaceTempView("all_events")
    chosen = frame.where(case.only) if case.only else frame
    found = ms.match(chosen, case.what, key="key", time="at", emit=case.emit)
    found.select(*case.columns).write.csv(str(out / f"{case.name}-pattern"))
    # Ours is one clause a query: the first few will do where there are many.
    clauses = [recognized(spark, case, number) for number in range(min(CLAUSES, len(case.clauses)))]
    reduce(DataFrame.unionByName, clauses).select(*case.columns).write.csv(
        str(out / f"{case.name}-sql")
    )


def recognized(spark: SparkSession, case: Case, number: int) -> DataFrame:
    """Return what a clause of the case finds; the query within it becomes a view, as ours read tables."""
    inner, clause = case.clauses[number].split(") MATCH_RECOGNIZE", maxsplit=1)
    chosen = inner.strip().removeprefix("(").replace("FROM events", "FROM all_events")
    spark.sql(chosen).createOrReplaceTempView(f"events_{number}")
    found = ms.sql(spark, f"SELECT * FROM events_{number} MATCH_RECOGNIZE{clause}")
    return found.withColumn("pattern", functions.lit(case.patterns[number].name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("case", nargs="+")
    parser.add_argument("--from", dest="form", choices=FORMS, default="csv")
    parser.add_argument("--rows-per-batch", type=int, default=2_000_000)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    out: Path = given.out
    spark = session("benchmark", log=out.with_suffix(".log") / "spark.log")
    for name in given.case:
        if given.check:
            batch(spark, CASES[name], given.events, out)
            continue
        if given.form in ("journal", "flow"):
            what = CASES[name], given.form, given.rows_per_batch, given.events
            query = in_flow(spark, *what, out)
        else:
            query = stream(spark, CASES[name], given.form, given.events, out)
        progress = [dict(one) for one in query.recentProgress]
        out.with_suffix(".json").write_text(json.dumps(progress, default=str))
    spark.stop()


if __name__ == "__main__":
    main()
