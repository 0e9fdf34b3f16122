"""Two versions of a flow write one topic: readers of committed records get what the plan says, each once."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import SwitchImpossible
from millstream.journal import Kind
from millstream.spark.flow_run import FlowRun
from millstream.switch.request import SwitchRequest
from support.kafka import consume, new_topic
from support.lives import LIMIT_S, Life, Switches, compare, options, until
from support.recording import DDL, END, SECOND, START, Recorded, Recording, perform
from support.shared import KEYS, MARKED, Shares, owners, start_us
from support.switched import begun
from support.undisturbed import Results, chained_results, rising_results

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


@dataclass(frozen=True)
class Topics:
    """A flow whose versions write two topics, and mark what they write."""

    servers: str
    names: dict[str, str] = field(default_factory=dict)

    def build(self, version: str) -> ms.Flow:
        flow, events = begun()
        rows = events.sql("some", f"SELECT *, '{version}' AS made FROM events")
        rows.sink("rows", self.topic("rows"))
        rows.window("sliding", every="5 s", size="15 s", **MARKED).sink(
            "sliding", self.topic("sliding")
        )
        return flow

    def topic(self, sink: str) -> Any:
        if sink not in self.names:
            self.names[sink] = new_topic(self.servers, 2)
        return ms.kafka_topic(self.names[sink], servers=self.servers, key="k")

    def records(self, sink: str) -> list[Message]:
        return consume(self.servers, self.names[sink])


def row_of(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message.value() or b"")
    return found


def sender_of(message: Message) -> str:
    return (dict(message.headers() or [])["millstream-sender"] or b"").decode()


def check(topics: Topics, run: FlowRun, right: Results) -> dict[str, list[dict[str, Any]]]:
    """Look for each result once, with a sender for each version; return them."""
    found = {sink: [row_of(one) for one in topics.records(sink)] for sink in topics.names}
    lines = {
        sink: Counter(json.dumps({**row, "made": None}, sort_keys=True) for row in rows)
        for sink, rows in found.items()
    }
    wanted = {sink: Counter(marked(right[sink])) for sink in found}
    compare(run, lines, wanted)
    for sink in topics.names:
        senders: dict[str, set[str]] = defaultdict(set)
        for one in topics.records(sink):
            senders[row_of(one)["made"]].add(sender_of(one))
        assert {made: len(some) for made, some in senders.items()} == {"1": 1, "2": 1}
        assert senders["1"] != senders["2"]
    return found


def marked(lines: Counter[str]) -> Counter[str]:
    return Counter(
        {
            json.dumps({**json.loads(one), "made": None}, sort_keys=True): n
            for one, n in lines.items()
        }
    )


def results(life: Life) -> Results:
    return {
        "rows": chained_results(life.recording, life.turns)["rows"],
        "sliding": rising_results(life.recording, life.turns)["sliding"],
    }


@pytest.mark.soak
def test_a_switch_leaves_every_result_in_the_topic_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topics = Topics(kafka)
    life = Life(tmp_path, topics.build, Recording(5))
    run = life.lived(spark, Switches((1,)))
    assert run.version == "2"
    found = check(topics, run, results(life))
    for rows in found.values():
        old, new = ({start_us(row) for row in rows if row["made"] == made} for made in "12")
        assert max(old) < min(new), "the cut parts them"


@pytest.mark.soak
def test_two_versions_that_share_the_keys_write_one_topic(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topics, wishes = Topics(kafka), Shares((0.3, 1.0))
    life = Life(tmp_path, topics.build, Recording(3, KEYS))
    run = life.lived(spark, wishes)
    assert run.version == "2"
    found, known = check(topics, run, results(life)), owners(run)
    for rows in found.values():
        for row in rows:
            assert row["made"] == known.owner(start_us(row), row["k"]), (row, known)
        shared = {
            row["made"]
            for row in rows
            if known.stretches[0].from_us <= start_us(row) < known.stretches[1].from_us
        }
        assert shared == {"1", "2"}, "both write meanwhile"


# A version that processes again

BEGAN = datetime.fromtimestamp(START / SECOND, UTC)
#: A row each second, and where it is processed again from: in the middle of a step of the cut.
ROWS, SINCE, CUT = 60, BEGAN + timedelta(seconds=33), 30


def again(topic: str, servers: str) -> Callable[[str], ms.Flow]:
    def built(version: str) -> ms.Flow:
        factor = 1 if version == "1" else 10
        flow = ms.Flow("again", window="10 s")
        events = flow.source(
            "events", ms.inbox(DDL), time="at", lateness="1 s", key="k", partitions=3, idle="1 day"
        )
        rows = events.sql("some", f"SELECT k, v * {factor} AS v, at FROM events")
        rows.sink("rows", ms.kafka_topic(topic, servers=servers))
        return flow

    return built


def script() -> Recorded:
    rows = [("k", n, START + n * SECOND) for n in range(ROWS)]
    idle = (Kind.IDLE, START + ROWS * SECOND)
    return [("events", 0, rows), ("events", 1, idle), ("events", 2, idle)]


def test_what_is_processed_again_comes_a_second_time_from_another_sender(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 2)
    built = again(topic, kafka)
    run = FlowRun(spark, built("1"), options(tmp_path), versions=built, version="1")
    run.start()
    try:
        perform(run, script(), 0)
        agreed = SwitchRequest(since=SINCE, consent=("rows",))
        until(run, lambda: run.caught_up() and not run.plan_switch(built("2"), agreed).obstacles)
        with pytest.raises(
            SwitchImpossible, match=r'what "rows" has got since .* would come again'
        ):
            run.switch(built("2"), "2", SwitchRequest(since=SINCE))
        said = run.plan_switch(built("2"), agreed).notes
        assert any(f'readers of topic "{topic}" get them a second time' in one for one in said)
        run.switch(built("2"), "2", agreed)
        until(run, lambda: run.switching() is None)
        perform(run, END, 1)
        assert run.wait(timeout=LIMIT_S), run.history()
    finally:
        run.stop()
    found: dict[str, list[int]] = defaultdict(list)
    for one in consume(kafka, topic):
        found[sender_of(one)].append(row_of(one)["v"])
    first, second = sorted(map(sorted, found.values()))
    assert first == list(range(ROWS)), "nothing is taken back"
    assert second == [10 * n for n in range(CUT, ROWS)], "and what starts at the cut comes again"
