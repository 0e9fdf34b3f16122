"""Rows a second into a topic: exactly once, at least once, and with Spark's own sink, at least once.

    python -m benchmarks.kafka_sink [--rows 500000] [--partitions 4] [--turns 3]

All write the same rows as JSON with a key to one broker in one run, an epoch at a time. The rows are
in Spark's memory before the clock starts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.common import save, show
from confluent_kafka.admin import AdminClient, NewTopic

import millstream as ms
from millstream.connectors.kafka.topic import Guarantee
from millstream.spark.io.targets import Epoch, SinkContext, open_target
from millstream.spark.session.session import session
from millstream.testing.jars import jars
from millstream.testing.kafka import broker

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
EPOCHS = 5


def new_topic(servers: str, partitions: int) -> str:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def ours(servers: str, topic: str, frame: Any, guarantee: Guarantee) -> float:
    place = Path(tempfile.mkdtemp())
    spec = ms.kafka_topic(topic, servers=servers, key="k", guarantee=guarantee)
    target = open_target(spec, SinkContext("bench", topic, place, place / "group"))
    target.prepare(frame.schema)
    target.recover()
    target.write(frame.limit(1), Epoch("bench", "group", "c", 0, None))
    began = time.monotonic()
    for batch in range(1, EPOCHS + 1):
        target.write(frame, Epoch("bench", "group", "c", batch, None))
    seconds = time.monotonic() - began
    target.close()
    return seconds


def with_spark(servers: str, topic: str, frame: Any) -> float:
    from pyspark.sql import functions

    value = functions.to_json(functions.struct(*frame.columns)).alias("value")
    rows = frame.select(functions.col("k").alias("key"), value)

    def written(some: Any) -> None:
        writer = some.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).save()

    written(rows.limit(1))
    began = time.monotonic()
    for _ in range(EPOCHS):
        written(rows)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    found = ",".join(str(jar) for jar in jars("spark-kafka-4.2.0", JARS, alone=True).iterdir())
    with broker(place / "kafka") as running:
        spark = session("kafka_sink", log=place / "spark.log", conf={"spark.jars": found})
        each = given.rows // EPOCHS
        columns = ("concat('key ', id % 1000) AS k", "id / 7 AS v", "timestamp_millis(id) AS at")
        frame = spark.range(0, each, 1, 2).selectExpr(*columns).cache()
        assert frame.count() == each
        ways = {
            "millstream, exactly once": lambda topic: ours(
                running.servers, topic, frame, "exactly-once"
            ),
            "millstream, at least once": lambda topic: ours(
                running.servers, topic, frame, "at-least-once"
            ),
            "Spark's sink, at least once": lambda topic: with_spark(running.servers, topic, frame),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.turns):
            for name, way in ways.items():
                seconds[name].append(way(new_topic(running.servers, given.partitions)))
        spark.stop()
    rates = {name: round(each * EPOCHS / statistics.median(one)) for name, one in seconds.items()}
    own, other = rates["millstream, exactly once"], rates["Spark's sink, at least once"]
    note = f"exactly once: {own / other:.2f} times Spark's at least once"
    show("into a topic", ["sink", "rows/s"], [[name, f"{n:,}"] for name, n in rates.items()], note)
    save("kafka_sink", vars(given), {"rows_per_s": rates, "of_spark": round(own / other, 2)})


if __name__ == "__main__":
    main()
