"""A job of ours as a process of its own: one case over a stream of CSV files, its results as CSV files.

    python -m benchmarks.patterns_ours PARTS OUT CASE
    python -m benchmarks.patterns_ours PARTS OUT --check CASE ...

With --check: the cases over the files as a batch, into OUT/CASE-pattern, and their MATCH_RECOGNIZE
clauses, the text that Flink gets, into OUT/CASE-sql.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path

from benchmarks.patterns_cases import CASES, Case
from benchmarks.patterns_events import DDL, LANES, LAST, LATENESS_S
from pyspark.sql import DataFrame, SparkSession, functions

import millstream as ms
from millstream.spark.session.session import session

CLAUSES = 3
#: Nothing is quoted, which Flink is told too; and Spark's parser is quicker with a whole file than with its lines one by one.
READING = {"quote": "", "multiLine": True}


def stream(spark: SparkSession, case: Case, parts: Path, out: Path) -> None:
    frame = (
        spark.readStream.schema(DDL).options(**READING, maxFilesPerTrigger=LANES).csv(str(parts))
    )
    frame = frame.withWatermark("at", f"{LATENESS_S} seconds")
    # The event that ends the stream moves the watermark, below which Spark filters.
    frame = frame.where(f"({case.only}) OR kind = '{LAST}'") if case.only else frame
    found = ms.match(frame, case.what, key="key", emit=case.emit)
    writer = found.select(*case.columns).writeStream.format("csv").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(out.with_suffix(".checkpoint"))).start(str(out))
    query.awaitTermination()
    out.with_suffix(".json").write_text(
        json.dumps([dict(progress) for progress in query.recentProgress], default=str)
    )


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
    parts, out = Path(sys.argv[1]), Path(sys.argv[2])
    names = [name for name in sys.argv[3:] if name != "--check"]
    spark = session("benchmark", log=out.with_suffix(".log") / "spark.log")
    for name in names:
        (batch if "--check" in sys.argv else stream)(spark, CASES[name], parts, out)
    spark.stop()


if __name__ == "__main__":
    main()
