"""Journals in Kafka: the latency of an append, takeovers, and reading beside Spark's own Kafka source.

All on one broker that the benchmark starts. Two tasks read rows from a journal, as those of a flow do; two tasks
of Spark's source read the same rows as JSON from a topic of two partitions and parse them. Both sum a column.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from benchmarks.common import folder, save, show

from millstream.brokers.connection import connection
from millstream.journal import Journal, journal_at
from millstream.journal.kinds.kafka import KafkaJournal
from millstream.testing.jars import jars
from millstream.testing.kafka import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000
TASKS = 2
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.float64())]
)
#: Spark's connector is not built for every version: a mixed set works.
SPARK_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def batches(rows: int, size: int = ROWS) -> Iterator[pa.RecordBatch]:
    chance = np.random.default_rng(1)
    keys = pa.array([f"key{n % 997:05d}" for n in range(size)])
    for begin in range(0, rows, size):
        times = pa.array(1_700_000_000_000_000 + (begin + np.arange(size)) * 1_000)
        values = pa.array(np.round(chance.random(size) * 100, 2))
        yield pa.record_batch([times.cast(SCHEMA.field("at").type), keys, values], schema=SCHEMA)


# appending


def latency(journal: Journal, appends: int) -> dict[str, float]:
    """Append batches of 100 rows one after the other, and return how long one takes (ms)."""
    journal.create(SCHEMA, time="at")
    found = []
    with journal.writer(0) as writer:
        for number, batch in enumerate(batches(100 * (appends + 50), 100)):
            began = time.perf_counter()
            writer.append("a", number * 100, batch)
            found.append((time.perf_counter() - began) * 1_000)
    found = found[50:]
    hundredths = statistics.quantiles(found, n=100)
    return {"p50_ms": round(hundredths[49], 2), "p99_ms": round(hundredths[98], 2)}


def fill(journal: Journal, rows: int, senders: int, size: int) -> float:
    """Append rows of many senders, many at once, and return how many a second."""
    journal.create(SCHEMA, time="at")
    began = time.perf_counter()
    with journal.writer(0) as writer:
        waiting = []
        for number, batch in enumerate(batches(rows, size)):
            sender, turn = number % senders, number // senders
            waiting.append(writer.append_nowait(f"sender-{sender}", turn * size, batch))
        for future in waiting:
            future.result()
    return rows / (time.perf_counter() - began)


def takeover(journal: Journal) -> float:
    began = time.perf_counter()
    assert journal.exists()
    journal.writer(0).close()
    return round(time.perf_counter() - began, 2)


# reading


def spark_session(place: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = ",".join(str(path) for path in jars("spark-kafka", SPARK_JARS, alone=True).iterdir())
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
        .config("spark.jars", found)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(place))
        .getOrCreate()
    )


def read_json(spark: SparkSession, servers: str, topic: str) -> tuple[float, float]:
    """Sum a column with Spark's own source and `from_json`; return the seconds and the sum."""
    from pyspark.sql import functions

    began = time.perf_counter()
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .load()
    )
    parsed = raw.select(
        functions.from_json(
            functions.col("value").cast("string"), "at timestamp, key string, value double"
        ).alias("row")
    )
    total = parsed.agg(functions.sum("row.value"), functions.max("row.at")).collect()[0][0]
    return time.perf_counter() - began, float(total)


def read_journal(spark: SparkSession, journal: Path, tasks: int) -> tuple[float, float]:
    """Sum the column as tasks of a flow read it: each a range of positions, in Arrow batches."""
    from pyspark.sql import functions

    began = time.perf_counter()
    end = journal_at(journal).reader().partition(0).end
    step = -(-end // tasks)
    ranges = spark.createDataFrame(
        [(begin, min(begin + step, end)) for begin in range(0, end, step)], "a long, b long"
    )

    def read(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for one in part.to_pylist():
                view = journal_at(journal).cached_reader().partition(0)
                for found in view.read(one["a"], one["b"], ["at", "value"]):
                    if found.batch is not None:
                        yield found.batch

    rows = ranges.repartition(tasks).mapInArrow(read, "at timestamp, value double")
    total = rows.agg(functions.sum("value"), functions.max("at")).collect()[0][0]
    return time.perf_counter() - began, float(total)


def produce_json(servers: str, topic: str, rows: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4"})
    for batch in batches(rows):
        for row in batch.to_pylist():
            text = json.dumps(
                {"at": row["at"].isoformat(), "key": row["key"], "value": row["value"]}
            )
            while True:
                try:
                    producer.produce(topic, text.encode())
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    producer.flush()


def size_of(place: Path, topic: str) -> int:
    """Return the bytes of a topic on the broker's disk."""
    folders = [one for one in (place / "kafka").rglob(f"{topic}-*") if one.is_dir()]
    return sum(file.stat().st_size for one in folders for file in one.glob("*.log"))


def reading(place: Path, servers: str, rows: int, turns: int) -> dict[str, Any]:
    journal = KafkaJournal(place / "read", connection(servers), "read")
    fill(journal, rows, 1, ROWS)
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic("json", TASKS, 1)])["json"].result(30)
    produce_json(servers, "json", rows)
    spark = spark_session(place)
    ours, theirs = [], []
    try:
        for _ in range(turns + 1):
            mine, total = read_journal(spark, journal.path, TASKS)
            other, same = read_json(spark, servers, "json")
            assert abs(total - same) < 1e-3 * rows, (total, same)
            ours.append(mine)
            theirs.append(other)
    finally:
        spark.stop()
    mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
    stored = size_of(place, "read") + size_of(place, "read.index")
    return {
        "rows": rows,
        "journal_rows_s": round(rows / mine),
        "spark_json_rows_s": round(rows / other),
        "times": round(other / mine, 2),
        "journal_bytes_row": round(stored / rows, 1),
        "json_bytes_row": round(size_of(place, "json") / rows, 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--full", action="store_true", help="the sizes of the kept results")
    given = arguments.parse_args()
    appends, taken, read = (
        (2_000, 50_000_000, 1_000_000) if given.full else (300, 2_000_000, 200_000)
    )
    size = 5_000 if given.full else 200
    with folder("kafka-journal") as place, broker(place / "kafka") as running:
        reach = connection(running.servers)
        appending = {
            "kafka": latency(KafkaJournal(place / "append", reach, "append"), appends),
            "files": latency(journal_at(place / "files"), appends),
        }
        there = KafkaJournal(place / "there", reach, "there")
        rate = fill(there, taken, 10_000, size)
        elsewhere = KafkaJournal(place / "elsewhere", reach, "there")
        taking = {
            "rows": taken,
            "append_rows_s": round(rate),
            "same_folder_s": takeover(there),
            "empty_folder_s": takeover(elsewhere),
            "again_s": takeover(there),
        }
        found = reading(place, running.servers, read, 3)
    results = {"append": appending, "takeover": taking, "read": found}
    save("kafka_journal", {"full": given.full, "senders": 10_000}, results)
    show(
        "an acknowledged append",
        ["journal", "p50 ms", "p99 ms"],
        [[name, one["p50_ms"], one["p99_ms"]] for name, one in appending.items()],
    )
    show("takeover, 10,000 senders", ["what", "figure"], [[k, v] for k, v in taking.items()])
    show("reading", ["what", "figure"], [[k, v] for k, v in found.items()])


if __name__ == "__main__":
    main()
