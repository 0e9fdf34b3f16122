"""A broker that is killed with -9 and started again: how long a running flow needs until it goes on.

Three flows run at once on one broker: one reads a topic, one writes a topic, one has its journal in Kafka. A row is handed to
each, and the time is taken until it is among the results. First undisturbed; then after the broker was killed, from the moment
at which it answers again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import folder, save, show

import millstream as ms
from millstream.flow.flow import Flow
from millstream.links.client import connect
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session
from millstream.testing.kafka import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = "n long"
_LIMIT_S = 120.0


def flows(servers: str, place: Path) -> dict[str, Flow]:
    """Return a flow for each way to use Kafka."""
    source, sink, journal = Flow("source"), Flow("sink"), Flow("journal")
    read = source.source("rows", ms.kafka("in", _COLUMNS, servers=servers))
    read.sink("from_topic", ms.jsonl(place / "source"))
    sent = sink.source("rows", ms.inbox(_COLUMNS))
    sent.sink("to_topic", ms.kafka_topic("out", servers=servers))
    kept = journal.source("rows", ms.inbox(_COLUMNS), journal=f"kafka://{servers}/kept")
    kept.sink("from_journal", ms.jsonl(place / "journal"))
    return {"source": source, "sink": sink, "journal": journal}


def make_topics(servers: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("in", "out")]).values():
        future.result(30)


class Ways:
    """Hands rows to the flows, and looks for them among their results."""

    def __init__(self, servers: str, place: Path) -> None:
        self._servers, self._place = servers, place
        self._clients = {name: connect(place / "data") for name in ("sink", "journal")}
        self._seen: set[int] = set()

    def hand(self, way: str, n: int) -> None:
        if way != "source":
            self._clients[way].send(f"{way}.rows", {"n": n})
            return
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        producer.produce("in", json.dumps({"n": n}).encode())
        assert producer.flush(_LIMIT_S) == 0

    def arrived(self, way: str) -> Callable[[int], bool]:
        """Return what tells whether a row is among the results."""
        return self._in_topic() if way == "sink" else lambda n: self._in_files(way, n)

    def _in_files(self, way: str, n: int) -> bool:
        text = json.dumps({"n": n}, separators=(",", ":"))
        files = sorted((self._place / way).glob("*.jsonl"), reverse=True)[:5]
        return any(text in file.read_text() for file in files)

    def _in_topic(self) -> Callable[[int], bool]:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self._servers, "group.id": "bench"}
        settings |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
        consumer.assign([TopicPartition("out", 0, 0)])

        def found(n: int) -> bool:
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                return False
            if json.loads(message.value() or b"{}").get("n") != n:
                return found(n)
            consumer.close()
            return True

        return found

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def passing(ways: Ways, way: str, n: int, taken: dict[str, float]) -> None:
    """Hand a row over, and note how long it takes until it is among the results."""
    began, arrived = time.perf_counter(), ways.arrived(way)
    ways.hand(way, n)
    while not arrived(n):
        assert time.perf_counter() - began < _LIMIT_S, f"{way}: row {n} does not arrive"
        time.sleep(0.005)
    taken[way] = time.perf_counter() - began


def round_of(ways: Ways, names: list[str], n: int) -> dict[str, float]:
    """Hand a row to all flows at once."""
    taken: dict[str, float] = {}
    threads = [threading.Thread(target=passing, args=(ways, name, n, taken)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(names), taken
    return taken


def measured(spark: SparkSession, place: Path, turns: int) -> dict[str, Any]:
    with broker(place / "kafka") as running:
        make_topics(running.servers)
        found = flows(running.servers, place)
        options = Options(place / "data", place)
        runs = [FlowRun(spark, flow, options) for flow in found.values()]
        stopping = threading.Event()
        threads = [threading.Thread(target=_keep_going, args=(run, stopping)) for run in runs]
        try:
            for run, thread in zip(runs, threads, strict=True):
                run.start()
                thread.start()
            ways = Ways(running.servers, place)
            round_of(ways, [*found], 0)
            quiet = [round_of(ways, [*found], 1 + turn) for turn in range(turns)]
            after = []
            for turn in range(turns):
                running.kill()
                running.start()
                after.append(round_of(ways, [*found], 1_000 + turn))
            ways.close()
        finally:
            stopping.set()
            for run, thread in zip(runs, threads, strict=True):
                if thread.ident is not None:
                    thread.join()
                run.stop()
    return {
        name: {
            "undisturbed_s": round(statistics.median(one[name] for one in quiet), 2),
            "restarted_s": round(statistics.median(one[name] for one in after), 2),
            "longest_s": round(max(one[name] for one in after), 2),
        }
        for name in found
    }


def _keep_going(run: FlowRun, stopping: threading.Event) -> None:
    while not stopping.wait(0.1):
        run.poll()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--turns", type=int, default=3)
    given = arguments.parse_args()
    with folder("kafka-restart") as place:
        spark = session("kafka_restart", log=place / "spark.log")
        try:
            found = measured(spark, place, given.turns)
        finally:
            spark.stop()
    load = f"{os.getloadavg()[0]:.1f}"
    save("kafka_restart", {"turns": given.turns, "load": load}, found)
    show(
        f"seconds until a row is among the results, after kill -9 of the broker (load {load})",
        ["flow", "undisturbed", "from the broker's answer", "longest"],
        [[name, *one.values()] for name, one in found.items()],
    )


if __name__ == "__main__":
    main()
