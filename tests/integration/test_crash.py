"""A flow that is killed again and again ends with the results of one that never was.

Eight programs run as one flow: pass-through, three for one, a running count, two groups in a chain, a merge,
another key, a join, a cycle. One test kills one process, and looks at the disk as kills at other points
would leave it. `make fuzz-crash N=3` kills real processes, with journals of all kinds, at
random moments and between every two writes; a seed plays the same kills again.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections import Counter
from pathlib import Path

import pytest

from support.crash import (
    POINTS,
    Programs,
    committed,
    die_at,
    die_at_work,
    finish,
    record,
)
from support.frozen import killed_at

pytestmark = pytest.mark.spark

#: The seeds of this run, from SEED on.
SEEDS = range(first := int(os.environ.get("SEED") or 1), first + int(os.environ.get("ROUNDS") or 1))


#: Integers for each key, where their number proves nothing.
COUNT = 1_500


@pytest.mark.long
def test_a_kill_between_any_two_writes_leaves_every_result_there_once(tmp_path: Path) -> None:
    Programs(tmp_path / "flow", COUNT).prepare()
    chance = random.Random(7)
    points = [(point, chance.randrange(1, 8)) for point in POINTS if point != "logged-decision"]
    end = killed_at(tmp_path / "flow", points[:-1], rows=1_500, killed=points[-1])
    programs = Programs(end, COUNT)
    assert committed(tmp_path / "4-published") > 0, "the kills came in the middle of the work"
    programs.check()


@pytest.fixture(params=["files", "served", pytest.param("kafka", marks=pytest.mark.kafka)])
def journals(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a run with journals of a kind."""
    if request.param == "kafka":
        servers = request.getfixturevalue("kafka")
        return {"MILLSTREAM_JOURNALS": f"kafka://{servers}/{uuid.uuid4().hex[:8]}"}
    return {"MILLSTREAM_SERVE": "always"} if request.param == "served" else {}


def prepared(root: Path) -> Programs:
    programs = Programs(root, 15_000)
    programs.prepare()
    return programs


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_three_kills_at_any_moment_leave_the_exact_sequences(
    seed: int, tmp_path: Path, journals: dict[str, str]
) -> None:
    chance, programs = random.Random(seed), prepared(tmp_path)
    for _ in range(3):
        after, seconds = chance.randrange(1, 10), chance.random()
        die_at_work(tmp_path, after, seconds, rows=5_000, **journals)
    finish(tmp_path, rows=5_000, **journals)
    programs.check()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_between_all_writes_leave_the_exact_sequences(
    seed: int, tmp_path: Path, journals: dict[str, str]
) -> None:
    chance, programs = random.Random(seed), prepared(tmp_path)
    for point in chance.sample(POINTS, len(POINTS)):
        die_at(tmp_path, point, chance.randrange(1, 10), rows=5_000, **journals)
    finish(tmp_path, rows=5_000, **journals)
    programs.check()


#: The same for a topic: the first record of a run that is produced is the sink's claim.
TOPIC_POINTS = {
    "logged": 1,
    "staged": 1,
    "decided": 1,
    "produced": 2,
    "committed": 1,
    "in": 1,
    "published": 1,
    "before-commit": 1,
}
TOPIC_FLOW = """
import millstream as ms

flow = ms.Flow("crash")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=3600),
    time="at",
    key="k",
    partitions=2,
)
minutes = events.window("minutes", every="10 minutes", by="k", n="count(*)", top="sum(v)")
minutes.sink("minutes", ms.kafka_topic({topic!r}, servers={servers!r}, key="k"))
"""


@pytest.mark.soak
@pytest.mark.kafka
def test_a_topic_has_every_result_once_after_a_kill_between_any_two_writes(
    tmp_path: Path, kafka: str
) -> None:
    from support.kafka import consume, new_topic

    topic = new_topic(kafka, 3)
    (tmp_path / "flow.py").write_text(TOPIC_FLOW.format(topic=topic, servers=kafka))
    rows = record(tmp_path, 6_000)
    for point, number in TOPIC_POINTS.items():
        die_at(tmp_path, point, number)
    assert len(consume(kafka, topic)) > 0, "the kills came in the middle of the work"
    finish(tmp_path)
    windows: Counter[tuple[str, str]] = Counter()
    totals: Counter[tuple[str, str]] = Counter()
    for row in rows:
        window = row["k"], f"{row['at']:%H:%M}"[:-1] + "0"
        windows[window] += 1
        totals[window] += row["v"]
    found = [json.loads(one.value() or b"") for one in consume(kafka, topic)]
    assert sorted((r["k"], r["window_start"][11:16], r["n"], r["top"]) for r in found) == sorted(
        (*window, n, totals[window]) for window, n in windows.items()
    )
