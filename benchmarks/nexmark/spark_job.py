"""Queries on Spark, as flows or by hand: each line on standard input asks for one, each answer is a line.

python -m benchmarks.nexmark.spark_job millstream|pyspark LOG
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.nexmark import by_hand, ours
from benchmarks.nexmark.generator import Config
from pyspark.sql import SparkSession

from millstream.spark.session.session import IN_MEMORY, ROCKSDB, session

#: What somebody sets who knows Spark: no more tasks than cores, no planning again.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "5g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}


def plain_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("nexmark")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def millstream(spark: SparkSession, ask: dict[str, Any]) -> list[dict[str, Any]]:
    config, place = Config(**ask["config"]), Path(ask["place"])
    events = {name: Path(ask[name]) for name in ("journal", "files") if name in ask}
    return ours.run(
        spark, ask["query"], config, Path(ask["side_input"]), place, ask["rows_per_batch"], **events
    )


def pyspark(spark: SparkSession, ask: dict[str, Any]) -> list[dict[str, Any]]:
    # The default keeps state in memory, which some kinds of state do not allow.
    store = ROCKSDB if ask["query"] in by_hand.ON_DISK else IN_MEMORY
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    events = by_hand.Events(spark, ask["files"], 2, Config(**ask["config"]), ask["side_input"])
    writer = by_hand.QUERIES[ask["query"]](events).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{ask['place']}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{ask['place']}/out")
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]


def main() -> None:
    system, log = sys.argv[1], Path(sys.argv[2])
    spark = plain_session() if system == "pyspark" else session("benchmark", log=log)
    run = pyspark if system == "pyspark" else millstream
    say({"ready": True})
    for line in sys.stdin:
        ask = json.loads(line)
        shutil.rmtree(ask["place"], ignore_errors=True)
        Path(ask["place"]).mkdir(parents=True)
        began = time.perf_counter()
        try:
            progress = run(spark, ask)
        except Exception as error:  # noqa: BLE001 - the asker hears of all
            say({"error": str(error)})
        else:
            say({"seconds": time.perf_counter() - began, "progress": progress})
    spark.stop()


def say(what: object) -> None:
    print("@" + json.dumps(what, default=str), flush=True)


if __name__ == "__main__":
    main()
