"""Rows a second from a topic of JSON: into a journal, through a flow, and with Spark's own source.

    python -m benchmarks.kafka_source [--rows 1000000] [--partitions 4] [--turns 3]

All read the same topic of one broker in one run: `topic -> journal` is the ingest alone, `topic ->
flow` a flow that counts by key and ends, `Spark` its Kafka source with from_json, the same counts,
and a trigger that ends where the topic does. Spark's session is started before the clock is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.common import save, show
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import millstream as ms
from millstream import ingest
from millstream.flow.stages import Source
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session
from millstream.testing.jars import jars
from millstream.testing.kafka import broker

DDL = "k string, v double, at timestamp"
JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
START = datetime(2024, 1, 1, tzinfo=UTC)


def fill(servers: str, rows: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("events", partitions, 1)])["events"].result(30)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for n in range(rows):
        at = (START + timedelta(milliseconds=n)).isoformat()
        value = json.dumps({"k": f"key {n % 1000}", "v": n / 7, "at": at}).encode()
        while True:
            try:
                producer.produce("events", value, partition=n % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def flow_of(servers: str, partitions: int, out: Path | None) -> ms.Flow:
    flow = ms.Flow("bench")
    spec = ms.kafka("events", DDL, servers=servers, stop="latest")
    events = flow.source("events", spec, time="at", lateness="10 s", partitions=partitions)
    if out is not None:
        counts = events.window("counts", every="1 minute", by="k", n="count(*)", v="sum(v)")
        counts.sink("counts", ms.parquet(out))
    return flow


def to_journal(servers: str, partitions: int, folder: Path) -> float:
    stage = flow_of(servers, partitions, None).stages["events"]
    assert isinstance(stage, Source)
    began = time.monotonic()
    with ingest.open(stage, folder / "journals" / "events") as found:
        found.wait()
    found.check()
    return time.monotonic() - began


def through_flow(servers: str, partitions: int, folder: Path, spark: Any) -> float:
    flow = flow_of(servers, partitions, folder / "out")
    began = time.monotonic()
    running = FlowRun(spark, flow, Options(folder / "data", folder))
    try:
        running.start()
        running.wait()
    finally:
        running.stop()
    return time.monotonic() - began


def with_spark(servers: str, folder: Path, spark: Any) -> float:
    from pyspark.sql import functions

    began = time.monotonic()
    read = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .load()
        .select(functions.from_json(functions.col("value").cast("string"), DDL).alias("r"))
        .select("r.*")
        .withWatermark("at", "10 seconds")
        .groupBy(functions.window("at", "1 minute"), "k")
        .agg(functions.count("*").alias("n"), functions.sum("v").alias("v"))
    )
    query = (
        read.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return time.monotonic() - began


def measured(turns: int, run: Callable[[Path], float]) -> list[float]:
    seconds = []
    for _ in range(turns):
        folder = Path(tempfile.mkdtemp())
        try:
            seconds.append(run(folder))
        finally:
            shutil.rmtree(folder)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    found = ",".join(str(jar) for jar in jars("spark-kafka-4.2.0", JARS, alone=True).iterdir())
    try:
        with broker(place / "kafka") as running:
            fill(running.servers, given.rows, given.partitions)
            conf = {"spark.jars": found, "spark.sql.shuffle.partitions": "2"}
            spark = session("kafka_source", log=place / "spark.log", conf=conf)
            at, parts = running.servers, given.partitions
            ways: dict[str, Callable[[Path], float]] = {
                "topic -> journal, 1 partition": lambda folder: to_journal(at, 1, folder),
                f"topic -> journal, {parts} partitions": lambda folder: to_journal(
                    at, parts, folder
                ),
                "topic -> flow": lambda folder: through_flow(at, parts, folder, spark),
                "Spark, from_json": lambda folder: with_spark(at, folder, spark),
            }
            measured(1, ways["Spark, from_json"])  # both have warmed up
            measured(1, ways["topic -> flow"])
            rates = {
                name: given.rows / statistics.median(measured(given.turns, way))
                for name, way in ways.items()
            }
            spark.stop()
    finally:
        shutil.rmtree(place)
    base = rates["Spark, from_json"]
    table = [(name, f"{rate:,.0f}", rate / base) for name, rate in rates.items()]
    show(f"{given.rows:,} JSON records", ["way", "rows/s", "to Spark's"], table)
    save("kafka_source", vars(given), {name: round(rate) for name, rate in rates.items()})


if __name__ == "__main__":
    main()
