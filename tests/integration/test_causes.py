"""What the time of batches goes into, as tasks on Spark report it, and the programs that they keep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

import millstream as ms
from millstream.spark.batch_clock import CAUSES
from millstream.spark.session.session import cores
from millstream.testing import flow_test
from support.actions import PYTHON, SDK

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 3, 8, 14, tzinfo=UTC)
ECHO = f"""#!{PYTHON} -S
import json, sys
sys.path.insert(0, {str(SDK / "python")!r})
import millstream_action as action
while (m := action.read_message()) is not None:
    print("saw one", file=sys.stderr, flush=True)
    action.write_message(json.dumps({{"said": json.loads(m)["n"]}}).encode())
"""


def step(seen: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    time.sleep(0.002)  # a step takes no less
    return seen + 1, {"k": row["k"], "at": row["at"], "seen": seen + 1}


slow = udf(lambda n: time.sleep(0.002) or n, LongType())


def slowly(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for one in batches:
        time.sleep(0.002 * len(one))
        yield one


def flow(program: Path) -> ms.Flow:
    made = ms.Flow("causes")
    rows = made.source(
        "rows", ms.inbox("k string, n bigint, at timestamp"), time="at", key="k", lateness="1 s"
    )
    counted = rows.fold(
        "counted", by="k", step=step, initial=0, output="k string, at timestamp, seen bigint"
    )
    counted.sink("counts", ms.memory())
    rising = ms.Pattern("rising").begin("low", "n < 5").followed_by("high", "n > 90")
    matched = rows.match(
        "found", rising.within("1 minute"), emit="k, low.at AS low, high.at AS high"
    )
    matched.journal("matches")
    made.stream("matches").sink("matched", ms.memory())
    rows.action("echo", [str(program)], input="n", output="said bigint").sink("said", ms.memory())
    by_row = rows.apply("by_row", lambda frame: frame.withColumn("m", slow(frame.n)))
    by_row.sink("rows_one_by_one", ms.memory())
    in_bulk = rows.apply("in_bulk", lambda frame: frame.mapInPandas(slowly, frame.schema))
    in_bulk.sink("rows_in_bulk", ms.memory())
    return made


@pytest.mark.long
def test_tasks_report_what_their_time_goes_into_and_the_programs_that_they_keep(
    tmp_path: Path, spark: SparkSession
) -> None:
    program = tmp_path / "echo"
    program.write_text(ECHO)
    program.chmod(0o755)
    with flow_test(flow(program)) as t:
        t.send(
            "rows",
            [
                {"k": f"k{n % 4}", "n": n % 100, "at": BEGIN + timedelta(seconds=n)}
                for n in range(400)
            ],
        )
        t.end()
        assert t.wait()
        groups = {one.name: one for one in t._run.statistics().groups}
    assert all(set(one.spent) <= set(CAUSES) for one in groups.values())
    # 400 calls of 2 ms, by as many tasks as run at once
    for name in ("counts", "rows_one_by_one", "rows_in_bulk"):
        assert groups[name].spent["python"] >= 0.79 / cores(spark), name
    assert groups["matches"].spent["matching"] > 0
    assert groups["matches"].spent["staging"] > 0
    assert groups["said"].spent["programs"] > 0
    (*programs,) = groups["said"].programs
    assert sum(one.rows for one in programs) == 400
    assert {(one.stage, one.failed) for one in programs} == {("echo", 0)}
