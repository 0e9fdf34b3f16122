"""Watchers: one event at a time in one process without Spark, beside BoboCEP in the same run.

    python -m benchmarks.watchers

The pattern is a, followed by b, followed by c. As many runs as wanted wait for c while events come
that meet b; a c at the end completes them all. Both get the same events, one by one, and must find
the same. Ours is measured as the matcher alone, and as a whole watcher, in memory and on disk (each
event synced, and 100 at a time). Also: from the command to the first complex event, and the memory
of an idle watcher.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import Timing, save, show

import millstream as ms
from millstream.patterns.edge import EdgePattern
from millstream.watch.device import Device
from millstream.watch.status import memory_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.bobocep import builder, decider

PATTERN = ms.Pattern("abc").begin("a", "x = 1").followed_by("b", "x = 2").followed_by("c", "x = 3")
SCHEMA = "x bigint, at timestamp"
Fed = tuple[float, int]


def opening(runs: int) -> list[int]:
    """Return the events that open runs, which then wait for c."""
    return [1] * runs + [2]


def stream(count: int) -> list[int]:
    """Return events that no run waits for, and at the end what completes every run."""
    return [2] * (count - 1) + [3]


def timed(feed: Callable[[list[int]], int], runs: int, count: int) -> Fed:
    """Return the seconds for `count` events with `runs` live, and the number of matches."""
    feed(opening(runs))
    values = stream(count)
    began = time.perf_counter()
    found = feed(values)
    return time.perf_counter() - began, found


def matcher(runs: int, count: int) -> Fed:
    """The device alone: rows in, matches out."""
    from datetime import UTC, datetime

    from millstream.flow.schema import Schema

    pattern = EdgePattern.of(PATTERN, schema=Schema.parse(SCHEMA), time="at", key=())
    device = Device([pattern], "A", "1", durable=False)
    number = 0
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def feed(values: list[int]) -> int:
        nonlocal number
        found = 0
        for value in values:
            number += 1
            found += len(device.event(("s", number), number, {"x": value, "at": at}))
        return found

    return timed(feed, runs, count)


def watcher(runs: int, count: int, *, data: Path | None = None, at_once: int = 1) -> Fed:
    """The whole watcher: rows are checked, stamped, matched, and on disk if it has one."""
    with ms.Watcher(PATTERN, schema="x bigint", data=data) as one:

        def feed(values: list[int]) -> int:
            rows = [{"x": value} for value in values]
            parts = (rows[first : first + at_once] for first in range(0, len(rows), at_once))
            return sum(len(one.send(part)) for part in parts)

        return timed(feed, runs, count)


def on_disk(at_once: int) -> Callable[[int, int], Fed]:
    def measured(runs: int, count: int) -> Fed:
        with tempfile.TemporaryDirectory() as folder:
            return watcher(runs, count, data=Path(folder), at_once=at_once)

    return measured


def bobocep(runs: int, count: int) -> Fed:
    from bobocep.cep.event import BoboEventSimple

    engine, heard = decider(builder(PATTERN, lambda text, x, _history: x == int(text[4:])))
    number = 0

    def feed(values: list[int]) -> int:
        nonlocal number
        before = len(heard.completed)
        for value in values:
            number += 1
            engine.on_receiver_update(BoboEventSimple(str(number), number, value))
            engine.update()
        return len(heard.completed) - before

    return timed(feed, runs, count)


def compared(runs: int, count: int, their_count: int, turns: int) -> dict[str, Any]:
    """Return events per second of each way with `runs` live, in turn."""
    ways: dict[str, tuple[Callable[[int, int], Fed], int]] = {
        "bobocep": (bobocep, their_count),
        "matcher": (matcher, count),
        "watcher": (watcher, count),
        "on disk, one by one": (on_disk(1), min(count, 500)),
        "on disk, 100 at once": (on_disk(100), min(count, 20_000)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, (way, events) in ways.items():
            took, found = way(runs, events)
            if found != runs:
                raise SystemExit(f"error: {name} found {found} matches of {runs}")
            seconds[name].append(took)
    rates = {
        name: round(ways[name][1] / Timing(tuple(some)).median) for name, some in seconds.items()
    }
    ratios = {name: round(rate / rates["bobocep"], 1) for name, rate in rates.items()}
    return {"runs": runs, "events_per_s": rates, "times_bobocep": ratios}


START = """
import millstream as ms
rising = ms.Pattern().begin("a", "x > 0").followed_by("b", "x > a.x").within("1 hour")
"""


def started(turns: int) -> dict[str, Any]:
    """Return the seconds from the command to the first complex event, and the idle memory."""
    seconds, idle = [], 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "patterns.py").write_text(START)
        for turn in range(turns):
            began = time.perf_counter()
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "millstream",
                    "watch",
                    "patterns.py",
                    "--device",
                    f"d{turn}",
                ],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b'{"x": 1}\n{"x": 2}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["b"]["x"] == 2
            seconds.append(time.perf_counter() - began)
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            idle = pages * 4096
            process.communicate()
    return {
        "first_complex_event_s": Timing(tuple(seconds)).plain(),
        "idle_mb": round(idle / 1e6, 1),
    }


def per_run(runs: int) -> dict[str, Any]:
    """Return the memory that each live run takes."""
    with ms.Watcher(PATTERN, schema="x bigint, k bigint", key="k") as one:
        one.send([{"x": 0, "k": 0}])
        before = memory_bytes()
        for first in range(0, runs, 1000):
            one.send([{"x": 1, "k": key} for key in range(first, first + 1000)])
        return {"runs": runs, "bytes_per_run": round((memory_bytes() - before) / runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    results = [
        compared(runs, options.events, their_count, options.turns)
        for runs, their_count in ((1, 50_000), (100, 5_000), (1_000, 500))
    ]
    result = {"live_runs": results, "start": started(options.turns), "memory": per_run(100_000)}
    ways = list(results[0]["events_per_s"])
    show(
        "events/s, and times BoboCEP's",
        ["live runs", *ways],
        [
            (
                one["runs"],
                *(f"{one['events_per_s'][w]:,} ({one['times_bobocep'][w]})" for w in ways),
            )
            for one in results
        ],
    )
    first = result["start"]["first_complex_event_s"]["median_s"]
    print(
        f"first complex event {first:.2f} s after the start, idle {result['start']['idle_mb']} MB"
    )
    print(f"{result['memory']['bytes_per_run']} bytes per live run")
    save("watchers", {"turns": options.turns, "events": options.events}, result)


if __name__ == "__main__":
    main()
