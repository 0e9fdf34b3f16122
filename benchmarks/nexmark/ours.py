"""A query as a Millstream flow, over files or over a journal that is filled, as an inbox has received it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.nexmark.generator import DDL, Config
from benchmarks.nexmark.queries import flow_of
from pyspark.sql import SparkSession

import millstream as ms
from millstream.spark.flow_run import FlowRun, Options


def run(
    spark: SparkSession,
    query: str,
    config: Config,
    side_input: Path,
    place: Path,
    rows_per_batch: int = 500_000,
    *,
    journal: Path | None = None,
    files: Path | None = None,
) -> list[dict[str, Any]]:
    """Run a query to the end of its events, with its results in `place/out`; return Spark's progress."""
    source = ms.files(f"{files}/*.parquet", DDL) if files else ms.inbox(DDL)
    flow = flow_of(query, config, source, str(side_input), ms.parquet(str(place / "out")))
    if journal:
        # A link stands for the journal, so that every run starts from a fresh checkpoint.
        journals = place / "data" / flow.name / "journals"
        journals.mkdir(parents=True)
        (journals / "events").symlink_to(journal)
    run = FlowRun(spark, flow, Options(place / "data", place, rows_per_batch))
    try:
        run.start()
        run.wait()
        return [
            dict(progress)
            for one in run.queries.values()
            if one.query
            for progress in one.query.recentProgress
        ]
    finally:
        run.stop()
