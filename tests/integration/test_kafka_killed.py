"""A flow over a topic that is killed while it reads has every record once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream import load
from millstream.journal import journal_at
from millstream.spark.flow_run import FlowRun, Options
from support.kafka import new_topic, produce
from support.kafka_source import event, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

FLOW = """
import millstream as ms

flow = ms.Flow("shop")
events = flow.source(
    "events",
    ms.kafka({topic!r}, "n long, at timestamp", servers={servers!r}, stop="latest"),
    time="at", lateness="1 minute", partitions=2,
)
events.sink("rows", ms.jsonl("out"))
"""
ROWS = 60_000


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--until-end"]
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )


def rows_in(folder: Path) -> int:
    (journal,) = [*folder.glob("**/journals/events")] or [folder / "none"]
    if not journal_at(journal).exists():
        return 0
    reader = journal_at(journal).reader()
    parts = [reader.partition(number) for number in range(2)]
    return sum(part.rows(part.begin, part.end) for part in parts)


def test_a_flow_that_is_killed_in_the_middle_publishes_every_record_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 4)
    for number in range(4):
        values = [event(n, n / 1000) for n in range(number, ROWS, 4)]
        produce(kafka, topic, values, partition=number)
    (tmp_path / "flow.py").write_text(textwrap.dedent(FLOW.format(topic=topic, servers=kafka)))
    process = start(tmp_path)
    until(lambda: rows_in(tmp_path) > 0, "rows are read", 120)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    running = FlowRun(
        spark, load(tmp_path / "flow.py"), Options(tmp_path / ".millstream", tmp_path)
    )
    running.start()
    try:
        assert running.wait(timeout=240)
    finally:
        running.stop()
    lines = [
        json.loads(line)["n"]
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found = Counter(lines)
    assert sum(found.values()) == len(found) == ROWS
