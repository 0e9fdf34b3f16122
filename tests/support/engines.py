"""What the tests of engines share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from millstream.engine.driver import process as drivers
from millstream.engine.engine import Engine
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import JobStatus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOW = """
import millstream as ms

flow = ms.Flow("{name}")
events = flow.source("events", ms.inbox("k string, n long, at timestamp"), time="at", key="k", partitions={partitions})
events.sink("rows", ms.jsonl("rows"))
"""


def flow_file(folder: Path, name: str = "counts", partitions: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "flow.py"
    file.write_text(FLOW.format(name=name, partitions=partitions))
    return file


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drivers run no Spark."""
    monkeypatch.setattr(drivers, "PROGRAM", (str(Path(__file__).parent / "sparkless_driver.py"),))


def rows(begin: int, end: int) -> list[dict[str, object]]:
    return [
        {"k": f"k{n % 5}", "n": n, "at": NOON + timedelta(milliseconds=n)}
        for n in range(begin, end)
    ]


def until(engine: Engine, job: str, *states: JobState, limit_s: float = 240.0) -> JobStatus:
    """Wait until a job is in one of these states."""
    end = time.monotonic() + limit_s
    while (status := engine.status(job)).state not in states:
        assert time.monotonic() < end, f"the job is {status.state}: {status.reason}\n" + "\n".join(
            engine.logs(job, 30)
        )
        time.sleep(0.02)
    return status


def wait_until(true: Callable[[], object], *, limit_s: float = 240.0, what: str = "it") -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen in time"
        time.sleep(0.05)


def drivers_of(data: Path) -> list[psutil.Process]:
    """All processes that drivers of an engine are, or have started."""
    return list(drivers.marked("MILLSTREAM_ENGINE", str(data.resolve())))


def open_files() -> list[str]:
    """What this process has open."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(file.readlink()))
        except OSError:
            continue
    return sorted(found)
