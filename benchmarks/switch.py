"""A changed version under load: a switch beside stop and restart of PySpark, and of Flink with a savepoint.

    python -m benchmarks.switch                    shorter, and the results are not kept
    python -m benchmarks.switch --full             seven minutes; writes the results, the picture and the table in README.md
    python -m benchmarks.switch --only millstream  one of millstream, pyspark, flink

20,000 events a second come in, from a process of its own, each with the moment at which it was made
as its event time. Rows and sums per key are counted in windows of 10 s, with a lateness of 2 s. The
command that brings in a version with another sum is given a second before results are due: a pause
shows in full there, and a restart in a lucky moment would hide it between two windows. What a
reader sees is looked at every 20 ms:

- *gap*: the longest time between the results of two windows, around the command, and in the steady state before it;
- *delay*: from the end of a window until all its results are visible, before, during and after;
- *new*: seconds from the command to the first window that is wholly the new version's;
- *cost*: seconds of the processor and memory, of all processes, beside those of as many seconds before.

Every window is compared with what the load's log says: all its events counted once, and its sum
that of the old version or that of the new one. A window whose sum is neither was begun by one and
ended by the other.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
from benchmarks import peers, switch_load
from benchmarks.common import folder, save, show
from benchmarks.switch_plot import NAMES, draw
from benchmarks.switch_systems import Flink, Ours, PySpark, Row, System

SYSTEMS: Final = {"millstream": Ours, "pyspark": PySpark, "flink": Flink}
WINDOW_S, LATENESS_S = 10, 2
README: Final = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- figures of switch.py -->", "<!-- end -->"
#: Windows until everything is warm, which do not count.
COLD: Final = 1.5


@dataclass(frozen=True)
class Settings:
    """How much, and how long."""

    rate: int
    before: int
    after: int
    window_s: int = WINDOW_S
    lateness_s: int = LATENESS_S


@dataclass
class Seen:
    """What was seen of a system from outside; moments are seconds since 1970."""

    first: dict[str, float] = field(default_factory=dict)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)


class Eyes(threading.Thread):
    """Looks at results all the time, and at the processes every second."""

    def __init__(self, system: System) -> None:
        super().__init__(daemon=True)
        self.seen = Seen()
        self._system = system
        self._ended = threading.Event()
        self._processes: dict[tuple[int, float], float] = {}

    def run(self) -> None:
        look_at = 0.0
        while not self._ended.wait(0.02):
            now = time.time()
            for name in self._system.visible():
                self.seen.first.setdefault(name, now)
            if now >= look_at:
                look_at = now + 1.0
                self._measure(now)

    def _measure(self, now: float) -> None:
        memory = 0
        for process in self._alive():
            with contextlib.suppress(psutil.Error, OSError):
                times = process.cpu_times()
                # One that has ended keeps what it had when it was last seen.
                self._processes[process.pid, process.create_time()] = times.user + times.system
                memory += shared_memory(process.pid)
        self.seen.cpu.append((now, sum(self._processes.values())))
        self.seen.memory.append((now, memory / 2**20))

    def _alive(self) -> list[psutil.Process]:
        found = []
        for pid in self._system.roots():
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                found += [root, *root.children(recursive=True)]
        return found

    def end(self) -> Seen:
        self._ended.set()
        if self.is_alive():
            self.join()
        return self.seen


def shared_memory(pid: int) -> int:
    """Return the memory of a process; what it shares with others is counted in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


# One system


def measure(name: str, place: Path, settings: Settings) -> dict[str, Any]:
    """Run a system under load, switch it, and return what was seen."""
    system: System = SYSTEMS[name](place, settings.window_s, settings.lateness_s)
    eyes, load = Eyes(system), Load(place / "load.log", settings)
    try:
        told = system.start()
        eyes.start()
        load.start(told)
        began = time.time()
        _sleep_until(_due(began, settings) + settings.before * settings.window_s - 1.0)
        asked = time.time()
        said = system.switch()
        done = time.time()
        # A moment more than the last window needs to be due.
        _sleep_until(_due(done, settings) + settings.after * settings.window_s + 1.0)
        ended = load.end()
        _await_last(system, eyes, ended, settings)
        seen = eyes.end()
        rows = {unit: system.rows(unit) for unit in seen.first}
    finally:
        load.end()
        eyes.end()
        system.close()
    wanted = switch_load.expected(place / "load.log", settings.rate, settings.window_s)
    return {
        **_judged(seen, rows, wanted, (began, asked, done, ended), settings),
        **said,
        "load": os.getloadavg()[0],
    }


def _due(now: float, settings: Settings) -> float:
    """Return the next moment at which results are due."""
    window = settings.window_s
    return (now - settings.lateness_s) // window * window + window + settings.lateness_s


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _await_last(system: System, eyes: Eyes, ended: float, settings: Settings) -> None:
    """Wait until the last window that is due is visible."""
    wanted = (
        ended - settings.lateness_s - 0.5
    ) // settings.window_s * settings.window_s - settings.window_s
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(1.0)
        newest = sorted(eyes.seen.first, key=eyes.seen.first.__getitem__)[-6:]
        if any(row[1] >= wanted for unit in newest for row in system.rows(unit)):
            return


class Load:
    """The process that sends."""

    def __init__(self, log: Path, settings: Settings) -> None:
        self._log, self._rate = log, settings.rate
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = 0.0

    def start(self, told: Sequence[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.switch_load",
            *told,
            str(self._log),
            str(self._rate),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )

    def end(self) -> float:
        """Have it send what it has, and end; return when that was."""
        if self._process is not None and self._process.poll() is None:
            self._ended = time.time()
            self._process.communicate()
        return self._ended


# What it comes to


def _judged(
    seen: Seen,
    rows: dict[str, list[Row]],
    wanted: dict[tuple[str, int], switch_load.Sums],
    moments: tuple[float, float, float, float],
    settings: Settings,
) -> dict[str, Any]:
    began, asked, done, ended = moments
    visible = _visible(seen, rows)
    owners = _owners(rows, wanted)
    ends = sorted(
        start + settings.window_s for start in visible if start + settings.window_s <= ended
    )
    cold = began + COLD * settings.window_s
    points = sorted((visible[end - settings.window_s], end) for end in ends)
    # A window that ended before the command may be due after it: it is the first that a pause would
    # delay.
    phases: dict[str, list[float]] = defaultdict(list)
    for at, end in points:
        if end > cold:
            phases["before" if at < asked else "during" if end <= done else "after"].append(
                at - end
            )
    gaps = [(at, at - last) for (last, end), (at, _) in pairwise(points) if end > cold]
    steady = [gap for at, gap in gaps if at < asked]
    around = [gap for at, gap in gaps if at >= asked]
    new = [
        visible[start]
        for start, found in owners.items()
        if set(found) == {"new"} and start in visible
    ]
    last = max(visible)
    return {
        "gap_steady_s": _rounded(max(steady, default=0.0)),
        "gap_around_s": _rounded(max(around, default=0.0)),
        "delay_s": {phase: _percentiles(delays) for phase, delays in phases.items()},
        "command_to_done_s": _rounded(done - asked),
        "command_to_new_s": _rounded(min(new, default=float("nan")) - asked),
        **_cost(seen, asked, max(done, min(new, default=done)), cold),
        **_counted(rows, {key: sums for key, sums in wanted.items() if key[1] <= last}),
        "windows": dict(
            Counter("mixed" if len(found) > 1 else next(iter(found)) for found in owners.values())
        ),
        "points": [(_rounded(at - asked), _rounded(at - end)) for at, end in points],
        "done_at": _rounded(done - asked),
    }


def _visible(seen: Seen, rows: dict[str, list[Row]]) -> dict[int, float]:
    """Return when the last result of each window was visible."""
    found: dict[int, float] = {}
    shown: set[tuple[str, int]] = set()
    for name in sorted(seen.first, key=seen.first.__getitem__):
        for key, start, _, _ in rows[name]:
            if (key, start) not in shown:
                shown.add((key, start))
                found[start] = seen.first[name]
    return found


def _owners(
    rows: dict[str, list[Row]], wanted: dict[tuple[str, int], switch_load.Sums]
) -> dict[int, Counter[str]]:
    """Return whose the results of each window are, by their sums."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for key, start, _, total in {row for some in rows.values() for row in some}:
        if (key, start) in wanted:
            _, old, new = wanted[key, start]
            found[start]["old" if total == old else "new" if total == new else "mixed"] += 1
    return dict(sorted(found.items()))


def _counted(
    rows: dict[str, list[Row]], wanted: dict[tuple[str, int], switch_load.Sums]
) -> dict[str, Any]:
    """Return how many events were counted of those that were sent, in the windows that have come out."""
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, start, count, _ in {row for some in rows.values() for row in some}:
        counts[key, start].append(count)
    lost = sum(max(0, sums[0] - sum(counts.get(key, []))) for key, sums in wanted.items())
    extra = sum(max(0, sum(counts.get(key, [])) - sums[0]) for key, sums in wanted.items())
    sent = sum(sums[0] for sums in wanted.values())
    return {"events": sent, "lost": lost, "twice": extra}


def _cost(seen: Seen, asked: float, until: float, cold: float) -> dict[str, Any]:
    seconds = until - asked
    since = max(cold, asked - seconds)
    rate = (_at(seen.cpu, asked) - _at(seen.cpu, since)) / (asked - since)
    spent = _at(seen.cpu, until) - _at(seen.cpu, asked)
    before = [size for at, size in seen.memory if cold <= at < asked]
    during = [size for at, size in seen.memory if asked <= at <= until]
    return {
        "cpu_steady": _rounded(rate),
        "cpu_during": _rounded(spent / seconds),
        "cpu_extra_s": _rounded(spent - rate * seconds),
        "memory_steady_mb": round(max(before, default=0.0)),
        "memory_during_mb": round(max(during, default=0.0)),
    }


def _at(samples: list[tuple[float, float]], moment: float) -> float:
    place = bisect.bisect_right(samples, (moment, float("inf")))
    return samples[max(0, place - 1)][1] if samples else 0.0


def _percentiles(delays: list[float]) -> dict[str, Any]:
    ordered = sorted(delays)
    high = ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1) + 0.4999))]
    return {
        "windows": len(ordered),
        "median": _rounded(statistics.median(ordered)),
        "p90": _rounded(high),
        "most": _rounded(ordered[-1]),
    }


def _rounded(number: float) -> float:
    return round(number, 2)


# Showing


LINES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "longest time between two windows, steady, s": lambda one: f"{one['gap_steady_s']:.1f}",
    "the same around the command, s": lambda one: f"{one['gap_around_s']:.1f}",
    "delay before: median, most, s": lambda one: _delay(one, "before"),
    "delay during, s": lambda one: _delay(one, "during"),
    "delay after, s": lambda one: _delay(one, "after"),
    "command to the first window of the new version, s": lambda one: (
        f"{one['command_to_new_s']:.1f}"
    ),
    "cores in use, steady and during": lambda one: (
        f"{one['cpu_steady']:.2f}, {one['cpu_during']:.2f}"
    ),
    "CPU seconds more than steady": lambda one: f"{one['cpu_extra_s']:.1f}",
    "memory, steady and during, MB": lambda one: (
        f"{one['memory_steady_mb']:,}, {one['memory_during_mb']:,}"
    ),
    "events; lost; counted twice": lambda one: (
        f"{one['events']:,}; {one['lost']:,}; {one['twice']:,}"
    ),
    "windows with sums of the old version, the new one, neither": lambda one: ", ".join(
        str(one["windows"].get(kind, 0)) for kind in ("old", "new", "mixed")
    ),
    "load of the machine": lambda one: f"{one['load']:.1f}",
}


def tell(results: dict[str, Any]) -> None:
    rows = [[what, *(of(one) for one in results.values())] for what, of in LINES.items()]
    show("another version under load", ["", *results], rows)
    for name, one in results.items():
        print(f"{name}: " + "; ".join(f"{at:.1f} s {text}" for at, text in one["steps"]))


def into_readme(results: dict[str, Any], path: Path = README) -> None:
    """Put the figures where people read them."""
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    lines = ["![Delay of results around the command](../docs/images/switch.svg)", ""]
    lines += [
        f"| | {' | '.join(NAMES[name] for name in results)} |",
        f"| --- |{' ---: |' * len(results)}",
    ]
    lines += [
        f"| {what} | {' | '.join(of(one) for one in results.values())} |"
        for what, of in LINES.items()
    ]
    path.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")


def _delay(one: dict[str, Any], phase: str) -> str:
    found = one["delay_s"].get(phase)
    return "-" if found is None else f"{found['median']:.1f}, {found['most']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="as long as for the results that are kept"
    )
    parser.add_argument(
        "--only", choices=sorted(SYSTEMS), action="append", help="some of the systems"
    )
    parser.add_argument(
        "--alone", action="store_true", help="without Flink, which is large to install"
    )
    parser.add_argument("--rate", type=int, default=20_000)
    given = parser.parse_args()
    names = given.only or [name for name in SYSTEMS if name != "flink" or not given.alone]
    settings = Settings(given.rate, *((6, 2) if given.full else (4, 1)))
    results = {}
    for name in names:
        with folder(f"switch-{name}") as place:
            results[name] = measure(name, place, settings)
    tell(results)
    if given.full and len(names) == len(SYSTEMS):
        draw(results, settings.window_s)
        into_readme(results)
        save(
            "switch",
            {
                "rate": given.rate,
                "window_s": WINDOW_S,
                "lateness_s": LATENESS_S,
                "flink": peers.FLINK,
            },
            results,
        )
    if "millstream" in results and (
        results["millstream"]["lost"] or results["millstream"]["twice"]
    ):
        raise SystemExit("events were lost or counted twice")


if __name__ == "__main__":
    main()
