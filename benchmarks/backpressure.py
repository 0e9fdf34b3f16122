"""A producer that is ten times as fast as Spark: memory, disk, and what a limit does.

    python -m benchmarks.backpressure [--minutes 10] [--times 10]

First Spark's own pace is measured: how many rows a second of a full journal it counts. Then a
producer in a process of its own sends ten times as many, for as long as you say, once without and
once with `--most-unread`. Every second the memory of the engine and of the driver with its Python
workers, the bytes of the journal, and the rows that wait are noted:

- *flat*: the median of memory over the last third, beside that over the second third: what grows
  with the backlog shows there;
- *disk*: bytes on disk for each row that was sent, beside those of a row alone;
- *slowed*: the pace that the producer gets, beside what it wants.

Every row that was acknowledged must be in the journal and, where there is a limit, be counted once
in the end; without one, Spark would need ten times as long for what is waiting.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from benchmarks.common import folder, save, show
from benchmarks.service import engine, wait_for

from millstream.cluster import Cluster

FLOW: Final = """
import millstream as ms

flow = ms.Flow("load")
schema = "k string, n long, text string, at timestamp"
events = flow.source("events", ms.inbox(schema), time="at", key="k", lateness="5 seconds", idle="2 seconds")
# Work that makes Spark slow, so that a producer of one core is ten times as fast.
slow = events.sql("slow", "SELECT k, n, at, sha2(repeat(text, 2000), 512) AS hash FROM events")
slow.window("counted", every="1 second", by="k", rows="count(*)", hashes="max(hash)").sink("counted", ms.jsonl("out"))
"""
PRODUCE: Final = """
import sys, time
from datetime import UTC, datetime
import pyarrow as pa
import millstream as ms

where, rate, seconds, rows = sys.argv[1], *map(float, sys.argv[2:])
size, sent = max(1, int(rate / 20)), 0
keys = pa.array([f"k{i % 100}" for i in range(size)])
text = pa.array(["x" * 100] * size)
with ms.connect(where, timeout=600) as client:
    begin = time.monotonic()
    while sent < rows and time.monotonic() - begin < seconds:
        at = pa.array([datetime.now(UTC)] * size, pa.timestamp("us", "UTC"))
        n = pa.array(range(sent, sent + size))
        client.send("load.events", pa.record_batch([keys, n, text, at], names=["k", "n", "text", "at"]))
        sent += size
        time.sleep(max(0.0, sent / rate - (time.monotonic() - begin)))
print(sent, time.monotonic() - begin)
"""
#: How many rows measure Spark's own pace, and how many a batch has at most.
PACE_ROWS: Final = 60_000
BATCH: Final = 20_000
#: How many rows make Spark warm.
WARM: Final = 2_000


@dataclass
class Noted:
    """What was seen every second."""

    engine_mb: list[float] = field(default_factory=list)
    driver_mb: list[float] = field(default_factory=list)
    disk_mb: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def memory_mb(pid: int, *, whole: bool) -> float:
    """Return the memory of a process, or of it and all that it has started."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *(root.children(recursive=True) if whole else ())]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total / 2**20


def disk_mb(place: Path) -> float:
    sizes = 0
    for file in place.glob("engine/**/journals/events/**/*"):
        with contextlib.suppress(OSError):
            sizes += file.stat().st_size
    return sizes / 2**20


def produce(
    where: str, rate: float, *, seconds: float = math.inf, rows: float = math.inf
) -> subprocess.Popen[str]:
    """Start a process that sends so many rows a second, for so long or until it has sent `rows`."""
    command = [sys.executable, "-c", PRODUCE, where, *map(str, (rate, seconds, rows))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def pace(place: Path) -> float:
    """Return how many rows a second Spark counts of a journal that is full."""
    (place / "flow.py").write_text(FLOW)
    with engine(place) as (_, cluster):
        where = _deployed(cluster, place)
        before = _read(cluster)
        produce(where, PACE_ROWS, rows=PACE_ROWS).wait()
        # From the end of one batch to the end of the last.
        wait_for(lambda: _read(cluster) > before, 600)
        began, first = time.monotonic(), _read(cluster)
        wait_for(lambda: not cluster.status("load").unprocessed, 600)
        found = (_read(cluster) - first) / (time.monotonic() - began)
        cluster.undeploy("load", force=True)
    return found


def _read(cluster: Cluster) -> int:
    return max((group.rows_in for group in cluster.status("load").groups), default=0)


def pressed(place: Path, rate: float, seconds: float, most: int | None) -> dict[str, Any]:
    """Return what was seen while a producer sends `rate` rows a second."""
    (place / "flow.py").write_text(FLOW)
    noted = Noted()
    with engine(place) as (process, cluster):
        where = _deployed(cluster, place, **({} if most is None else {"most_unread": most}))
        producer = produce(where, rate, seconds=seconds)
        while producer.poll() is None:
            _note(noted, process.pid, cluster, place)
            time.sleep(1.0)
        assert producer.stdout is not None
        sent, took = producer.stdout.read().split()
        stored = sum(one.rows for one in cluster.status("load").inboxes)
        if most is not None:
            cluster.drain("load", flush=True)
            done = cluster.wait("load", 3600)
            stored = min(stored, _counted(place) + done.late)
        cluster.undeploy("load", force=True)
    return _figures(noted, int(sent), float(took), stored)


def _deployed(cluster: Cluster, place: Path, **options: int) -> str:
    """Deploy the flow, let Spark get warm, and return where rows are sent to."""
    cluster.deploy(place / "flow.py", options={"rows_per_batch": BATCH, **options})
    wait_for(lambda: cluster.status("load").pid)
    where = str(cluster.status("load").inboxes[0].address)
    produce(where, WARM, rows=WARM).wait()
    wait_for(lambda: _read(cluster) >= WARM and not cluster.status("load").unprocessed, 600)
    return where


def _counted(place: Path) -> int:
    files = [file.read_text().splitlines() for file in (place / "out").glob("*.jsonl")]
    return sum(json.loads(line)["rows"] for lines in files for line in lines)


def _note(noted: Noted, engine_pid: int, cluster: Cluster, place: Path) -> None:
    status = cluster.status("load")
    noted.engine_mb.append(memory_mb(engine_pid, whole=False))
    if status.pid is not None:
        noted.driver_mb.append(memory_mb(status.pid, whole=True))
    noted.disk_mb.append(disk_mb(place))
    noted.waiting.append(status.unprocessed)


def _figures(noted: Noted, sent: int, took: float, found: int) -> dict[str, Any]:
    return {
        "rows sent": sent,
        "rows per second": sent / took,
        "most rows waiting": max(noted.waiting, default=0),
        "engine, MB": _thirds(noted.engine_mb),
        "driver, MB": _thirds(noted.driver_mb),
        "disk, bytes a row": max(noted.disk_mb, default=0.0) * 2**20 / sent,
        "lost": WARM + sent - found,
    }


def _thirds(numbers: Sequence[float]) -> str:
    """Return the medians of the second and of the last third: alike if nothing grows."""
    third = max(1, len(numbers) // 3)
    middle, last = numbers[third : 2 * third] or numbers, numbers[2 * third :] or numbers
    return f"{statistics.median(middle):,.0f} -> {statistics.median(last):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--times", type=float, default=10.0, help="how much faster than Spark")
    parser.add_argument("--full", action="store_true", help="ten minutes; the results are kept")
    given = parser.parse_args()
    minutes = 10.0 if given.full else given.minutes
    with folder("backpressure") as place:
        for name in ("pace", "free", "limited"):
            (place / name).mkdir()
        own = pace(place / "pace")
        most = round(own * 10)
        free = pressed(place / "free", given.times * own, minutes * 60, None)
        limited = pressed(place / "limited", given.times * own, minutes * 60, most)
    show(
        f"{given.times:g} times Spark's {own:,.0f} rows a second, for {minutes:g} minutes",
        ["", "no limit", f"--most-unread {most:,}"],
        [(what, free[what], limited[what]) for what in free],
    )
    if given.full:
        settings = {"minutes": minutes, "times": given.times, "most_unread": most}
        save("backpressure", settings, {"spark": own, "free": free, "limited": limited})
    if free["lost"] or limited["lost"]:
        raise SystemExit("rows were lost or counted twice")


if __name__ == "__main__":
    main()
