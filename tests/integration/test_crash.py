"""A flow that is killed again and again ends with the results of one that never was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parent
START = datetime(2020, 1, 1, tzinfo=UTC)
POINTS = {"logged": 4, "staged": 2, "decided": 2, "published": 2, "before-commit": 3}
"""Where to die, and at which time that a run gets there: of four logged batches of two groups, two are committed."""

pytestmark = pytest.mark.spark


def record(root: Path, events: int) -> list[dict[str, Any]]:
    """Write the recording: a thousand events an hour, five keys."""
    chance = random.Random(5)
    rows = [
        {
            "k": f"k{chance.randrange(5)}",
            "v": chance.randrange(10),
            "at": START + timedelta(seconds=3.6 * i),
        }
        for i in range(events)
    ]
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    pq.write_table(pa.Table.from_pylist(rows, schema), root / "events.parquet")
    return rows


def expected(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    totals: dict[str, int] = defaultdict(int)
    windows: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        totals[row["k"]] += row["v"]
        minute = row["at"].minute // 10 * 10
        window = windows[row["k"], row["at"].replace(minute=minute, second=0, microsecond=0)]
        window[0] += 1
        window[1] = totals[row["k"]]
    return sorted((k, f"{at:%H:%M}", n, top) for (k, at), (n, top) in windows.items())


def start(root: Path, fail_at: str | None = None) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "MILLSTREAM_FAIL_AT"}
    if fail_at:
        environment["MILLSTREAM_FAIL_AT"] = fail_at
    command = [
        sys.executable,
        "-m",
        "millstream",
        "run",
        "flow.py",
        "--until-end",
        "--rows-per-batch",
        "500",
        "--json",
    ]
    with (root / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def committed(root: Path) -> int:
    """Return how many batches all groups have committed."""
    return sum(
        1 for path in root.glob(".millstream/crash/groups/*/*/commits/*") if path.name.isdigit()
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def results(root: Path) -> tuple[list[tuple[str, str, int, int]], list[tuple[str, str, int, int]]]:
    table = pa.concat_tables([pq.read_table(path) for path in (root / "minutes").glob("*.parquet")])
    parquet = [(r["k"], f"{r['window_start']:%H:%M}", r["n"], r["top"]) for r in table.to_pylist()]
    lines = [
        json.loads(line)
        for path in (root / "lines").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    jsonl = [(r["k"], r["window_start"][11:16], r["n"], r["top"]) for r in lines]
    return sorted(parquet), sorted(jsonl)


@pytest.mark.timeout(3000)
def test_a_kill_between_any_two_writes_leaves_every_result_there_once(tmp_path: Path) -> None:
    rows = prepared(tmp_path, 4_000)
    for point, number in POINTS.items():
        die_at(tmp_path, point, number)
    the_rest_is_right(tmp_path, rows)


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.timeout(1200)
def test_journals_in_kafka_give_the_same_results_after_kills(
    tmp_path: Path, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_JOURNALS", f"kafka://{kafka}/{uuid.uuid4().hex[:8]}")
    rows = prepared(tmp_path, 3_000)
    for point in ("decided", "before-commit"):
        die_at(tmp_path, point, POINTS[point])
    the_rest_is_right(tmp_path, rows, least=1)
    journals = tmp_path / ".millstream" / "crash" / "journals"
    for name in ("events", "running"):
        assert (journals / name / "kafka.json").exists()


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
@pytest.mark.timeout(1200)
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
    last = start(tmp_path)
    assert last.wait(450) == 0, (tmp_path / "output.txt").read_text()[-3000:]
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


@pytest.mark.soak
def test_ten_kills_at_any_moment_leave_every_result_there_once(tmp_path: Path) -> None:
    chance = random.Random(2020)
    rows = prepared(tmp_path, 6_000)
    for number in range(10):
        # Half die between two writes, by name; half in the middle of the work, when the dice say
        # so.
        if number % 2:
            die_at(tmp_path, [*POINTS][number // 2], chance.randrange(1, 4))
        else:
            die_at_work(tmp_path, chance)
    the_rest_is_right(tmp_path, rows)


def prepared(root: Path, events: int) -> list[dict[str, Any]]:
    (root / "flow.py").write_text((HERE / "crash_flow.py").read_text())
    return record(root, events)


def die_at(root: Path, point: str, number: int) -> None:
    process = start(root, f"{point}:{number}")
    assert process.wait(450) == 137, (root / "output.txt").read_text()[-3000:]
    _sweep(process)


def die_at_work(root: Path, chance: random.Random) -> None:
    before = committed(root)
    process = start(root)
    deadline = time.monotonic() + 240
    while committed(root) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(3 * chance.random())
    kill(process)


def the_rest_is_right(tmp_path: Path, rows: list[dict[str, Any]], least: int = 3) -> None:
    assert committed(tmp_path) >= least, "the kills came in the middle of the work"
    last = start(tmp_path)
    assert last.wait(450) == 0, (tmp_path / "output.txt").read_text()[-3000:]
    parquet, jsonl = results(tmp_path)
    assert parquet == expected(rows)
    assert jsonl == expected(rows)
    files = list(tmp_path.glob(".millstream/crash/groups/*/*/keys/totals/*/*.arrow"))
    assert files, "its state was in files"


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Kill what a process that died by itself has left: its Java."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
