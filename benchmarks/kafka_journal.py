"""Journals in Kafka: the latency of an append, takeovers, and reading beside Spark's own Kafka source.

All on one broker that the benchmark starts. Two tasks read rows from a journal, as those of a flow do; two tasks
of Spark's source read the same rows as JSON from a topic of two partitions and parse them. Both sum a column.

Then a whole flow counts by key and minute over a journal of two partitions that has ended, and a streaming query does the same
over the topic with Spark's source and `from_json`; both with one batch for all rows, into Parquet, from an empty folder. The same two
sources are also read by queries that throw the rows away.
`--flow` does this alone.
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

import msgspec
import numpy as np
import pyarrow as pa
from benchmarks.common import folder, save, show

import millstream as ms
from millstream.brokers.connection import connection
from millstream.journal import Journal, Kind, journal_at
from millstream.journal.kinds.kafka import KafkaJournal
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.io.source import ReadSettings
from millstream.spark.session.session import session
from millstream.testing.jars import jars
from millstream.testing.kafka import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def make_json(servers: str, rows: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic("json", TASKS, 1)])["json"].result(30)
    produce_json(servers, "json", rows)


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


# a whole flow


def fill_for_flow(journal: Journal, rows: int) -> None:
    journal.create(SCHEMA, partitions=TASKS, time="at")
    for partition in range(TASKS):
        with journal.writer(partition) as writer:
            found = [
                writer.append_nowait("a", number * ROWS, batch)
                for number, batch in enumerate(batches(rows))
                if number % TASKS == partition
            ]
            for future in found:
                future.result()
            writer.instruct(Kind.END_OF_STREAM)


def through_flow(spark: SparkSession, servers: str, place: Path, rows: int) -> float:
    """Count by key and minute with a flow over the journal; return the seconds."""
    flow = ms.Flow("bench")
    events = flow.source(
        "events",
        ms.inbox("at timestamp, key string, value double"),
        time="at",
        lateness="10 s",
        partitions=TASKS,
        journal=f"kafka://{servers}/flow",
    )
    counts = events.window("counts", every="1 minute", by="key", n="count(*)", v="sum(value)")
    counts.sink("counts", ms.parquet(place / "out"))
    began = time.perf_counter()
    run = FlowRun(spark, flow, Options(place / "data", place, rows_per_batch=rows, hosting=False))
    try:
        run.start()
        run.wait()
    finally:
        run.stop()
    taken = time.perf_counter() - began
    counted = spark.read.parquet(str(place / "out")).agg({"n": "sum"}).collect()[0][0]
    assert counted == rows, counted
    return taken


def through_spark(spark: SparkSession, servers: str, place: Path) -> float:
    """Do the same with Spark's own source; return the seconds."""
    from pyspark.sql import functions

    began = time.perf_counter()
    counts = (
        json_rows(spark, servers)
        .withWatermark("at", "10 seconds")
        .groupBy(functions.window("at", "1 minute"), "key")
        .agg(functions.count("*").alias("n"), functions.sum("value").alias("v"))
    )
    query = (
        counts.writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "out"))
    )
    query.awaitTermination()
    return time.perf_counter() - began


def json_rows(spark: SparkSession, servers: str) -> DataFrame:
    """The rows of the topic, with Spark's own source."""
    from pyspark.sql import functions

    value = functions.col("value").cast("string")
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "json")
        .option("startingOffsets", "earliest")
        .load()
        .select(functions.from_json(value, "at timestamp, key string, value double").alias("r"))
        .select("r.*")
    )


def journal_rows(spark: SparkSession, journal: Path, rows: int) -> DataFrame:
    """The rows of the journal, as a group of a flow reads them."""
    from pyspark.sql.types import StructType

    columns = ("at", "key", "value")
    settings = ReadSettings(
        journal="flow",
        path=str(journal),
        columns=columns,
        schema=StructType.fromDDL("at timestamp, key string, value double").json(),
        time=None,
        lateness=0,
        grouped=False,
        limit=rows,
        tasks=TASKS,
    )
    option = msgspec.json.encode(settings).decode()
    return spark.readStream.format("millstream").option("settings", option).load()


def read_alone(frame: DataFrame, place: Path, rows: int) -> float:
    """Read with a streaming query that throws the rows away; return the seconds."""
    began = time.perf_counter()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(place)).start()
    query.processAllAvailable()
    taken = time.perf_counter() - began
    found = sum(int(one["numInputRows"]) for one in query.recentProgress)
    query.stop()
    assert found == rows, found
    return taken


def flowing(place: Path, servers: str, rows: int, turns: int) -> dict[str, Any]:
    fill_for_flow(KafkaJournal(place / "flow", connection(servers), "flow"), rows)
    found = ",".join(str(path) for path in jars("spark-kafka", SPARK_JARS, alone=True).iterdir())
    conf = {"spark.jars": found, "spark.sql.shuffle.partitions": str(TASKS)}
    spark = session("kafka_journal", log=place / "spark.log", conf=conf)
    taken: dict[str, list[float]] = {"flow": [], "spark": [], "read": [], "spark_read": []}
    loads = []
    try:
        for turn in range(turns + 1):
            taken["flow"].append(through_flow(spark, servers, place / f"flow{turn}", rows))
            taken["spark"].append(through_spark(spark, servers, place / f"spark{turn}"))
            alone = journal_rows(spark, place / "flow", rows)
            taken["read"].append(read_alone(alone, place / f"read{turn}", rows))
            alone = json_rows(spark, servers)
            taken["spark_read"].append(read_alone(alone, place / f"json{turn}", rows))
            loads.append(os.getloadavg()[0])
    finally:
        spark.stop()
    median = {name: statistics.median(some[1:]) for name, some in taken.items()}
    return {
        "rows": rows,
        "flow_rows_s": round(rows / median["flow"]),
        "spark_json_rows_s": round(rows / median["spark"]),
        "times": round(median["spark"] / median["flow"], 2),
        "read_rows_s": round(rows / median["read"]),
        "spark_read_rows_s": round(rows / median["spark_read"]),
        "read_times": round(median["spark_read"] / median["read"], 2),
        "load": f"{min(loads):.1f} to {max(loads):.1f}",
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--full", action="store_true", help="the sizes of the kept results")
    arguments.add_argument("--flow", action="store_true", help="measure the whole flow alone")
    arguments.add_argument("--rows", type=int, help="of the whole flow, with --flow")
    given = arguments.parse_args()
    appends, taken, read = (
        (2_000, 50_000_000, 1_000_000) if given.full else (300, 2_000_000, 200_000)
    )
    size = 5_000 if given.full else 200
    if given.flow:
        with folder("kafka-journal") as place, broker(place / "kafka") as running:
            make_json(running.servers, given.rows or read)
            flow = flowing(place, running.servers, given.rows or read, 3)
        show("a whole flow", ["what", "figure"], [[k, v] for k, v in flow.items()])
        return
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
        make_json(running.servers, read)
        found = reading(place, running.servers, read, 3)
        flow = flowing(place, running.servers, read, 3)
    results = {"append": appending, "takeover": taking, "read": found, "flow": flow}
    save("kafka_journal", {"full": given.full, "senders": 10_000}, results)
    show(
        "an acknowledged append",
        ["journal", "p50 ms", "p99 ms"],
        [[name, one["p50_ms"], one["p99_ms"]] for name, one in appending.items()],
    )
    show("takeover, 10,000 senders", ["what", "figure"], [[k, v] for k, v in taking.items()])
    show("reading", ["what", "figure"], [[k, v] for k, v in found.items()])
    show("a whole flow", ["what", "figure"], [[k, v] for k, v in flow.items()])


if __name__ == "__main__":
    main()
