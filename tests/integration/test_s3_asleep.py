"""A driver sleeps longer than any lease while another host takes the job; then it wakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from integration.test_s3_checkpoints import start
from support.crash import record
from support.s3 import Server, s3a_jars

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.kafka]

_FLOW = """
import millstream as ms


def counted(state, row):
    total = state + row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


flow = ms.Flow("asleep")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=900),
    time="at",
    key="k",
    partitions=2,
)
events.fold("totals", counted, initial=0, output="k string, at timestamp, total long").sink(
    "lines", ms.jsonl("../lines")
)
"""


def host(tmp_path: Path, name: str, events: int) -> tuple[Path, list[dict[str, Any]]]:
    """Prepare a host: it has a folder of its own, and both write to one that they share."""
    root = tmp_path / name
    root.mkdir()
    (root / "flow.py").write_text(_FLOW)
    return root, record(root, events)


def published(tmp_path: Path) -> list[tuple[str, int]]:
    files = sorted((tmp_path / "lines").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((row["k"], row["total"]) for row in rows)


def expected(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    totals: dict[str, int] = {}
    found = []
    for row in rows:
        totals[row["k"]] = totals.get(row["k"], 0) + row["v"]
        found.append((row["k"], totals[row["k"]]))
    return sorted(found)


def kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_driver_that_slept_through_a_takeover_publishes_nothing(
    tmp_path: Path, s3: Server, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Positions in a checkpoint are those of one journal: both hosts reach it.
    monkeypatch.setenv("MILLSTREAM_JOURNALS", f"kafka://{kafka}/{uuid.uuid4().hex[:8]}")
    jars, storage = s3a_jars(tmp_path / "jars"), s3.new_address()
    here, rows = host(tmp_path, "here", 5_000)
    there, _ = host(tmp_path, "there", 5_000)
    sleeper = start(here, storage, jars)
    other: subprocess.Popen[bytes] | None = None
    try:
        deadline = time.monotonic() + 120
        while not published(tmp_path):
            assert sleeper.poll() is None, (here / "output.txt").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(sleeper.pid, signal.SIGSTOP)
        assert len(published(tmp_path)) < len(rows), "it is asleep in the middle"
        other = start(there, storage, jars)
        assert other.wait(300) == 0, (there / "output.txt").read_text()[-3000:]
        before = published(tmp_path)
        assert before == expected(rows), "each once, whoever has published it"
        os.killpg(sleeper.pid, signal.SIGCONT)
        assert sleeper.wait(120) != 0
        assert "another driver" in (said := (here / "output.txt").read_text()) or (
            "has taken over the job" in said
        )
        assert published(tmp_path) == before
    finally:
        kill(sleeper)
        kill(other)
