"""The example that reads a topic and writes a topic, against a real broker."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from millstream import load
from millstream.spark.flow_run import FlowRun, Options
from support.kafka import consume, new_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FLOW = Path(__file__).parents[2] / "examples" / "kafka" / "flow.py"


def test_large_orders_go_from_one_topic_to_the_other_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    source, sink = new_topic(kafka, 2), f"alerts-{tmp_path.name}-{time.time_ns()}"
    text = FLOW.read_text().replace("127.0.0.1:9092", kafka)
    text = text.replace('ms.kafka("orders"', f'ms.kafka("{source}"')
    file = tmp_path / "flow.py"
    file.write_text(text.replace('ms.kafka_topic("alerts"', f'ms.kafka_topic("{sink}"'))
    orders = [{"id": n, "shop": f"s{n % 3}", "amount": 500.0 * n} for n in range(10)]
    # Twice: the second run goes on where the first has stopped.
    for begin, done in ((0, 8), (8, 10)):
        for partition in range(2):
            some = [one for one in orders[begin:done] if one["id"] % 2 == partition]
            produce(kafka, source, [json.dumps(one).encode() for one in some], partition=partition)
        running = FlowRun(spark, load(file), Options(tmp_path / "data", tmp_path))
        running.start()
        try:
            found = waited(kafka, sink, done - 3)
        finally:
            running.stop()
    assert sorted(found, key=lambda one: int(str(one["id"]))) == orders[3:]


def waited(kafka: str, topic: str, count: int) -> list[dict[str, object]]:
    until = time.monotonic() + 120
    while True:
        try:
            messages = consume(kafka, topic)
        except (KafkaException, KeyError):
            messages = []
        if len(messages) >= count:
            return [json.loads(one.value() or b"") for one in messages]
        assert time.monotonic() < until, f"{len(messages)} of {count}"
        time.sleep(0.2)
