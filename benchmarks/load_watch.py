"""What a run under load is watched by: lag, memory, files and threads of each process, and the disk."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil
from benchmarks.flat import Limit, Verdict, verdict
from benchmarks.switch import shared_memory

from millstream.engine.driver.process import marked
from millstream.engine.jobs.status import JobStatus

#: The growth of a series that is not worth a word, by how its name begins.
LIMITS: Final = {
    "lag, rows": Limit(40_000, 0.25),
    "lag, s": Limit(2.0, 0.25),
    "memory, MB: Java": Limit(150, 0.10),
    "memory, MB": Limit(20, 0.10),
    "files": Limit(10),
    "threads": Limit(10),
    "processes": Limit(0.5),
    "disk, MB: journals": Limit(32, 0.10),
    "disk, MB": Limit(16, 0.10),
    "disk, files": Limit(100),
}
#: What a sink writes is the user's, and grows.
RESULTS: Final = "disk, MB: results"
#: The disk, and processes that nobody knows of, are looked at less often.
DISK_S: Final = 10.0


class Watch:
    """Series by their names: seconds since the start, and what was seen."""

    def __init__(self, place: Path) -> None:
        self.series: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.place = place
        self._began = time.monotonic()
        self._disk_at = 0.0
        self._driver: int | None = None

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def look(self, engine: int, producers: list[int], status: JobStatus | None) -> None:
        """Note what there is to see now; without a status the engine does not answer."""
        if status is not None:
            self._driver = status.pid
            self._note("lag, rows", status.unprocessed)
            self._note("lag, s", max((one.lag_seconds for one in status.groups), default=0.0))
        found = dict(_roles(engine, self._driver, producers))
        for role, processes in found.items():
            self._processes(role, processes)
        if self.now >= self._disk_at:
            self._disk_at = self.now + DISK_S
            self._disk()
            known = {one.pid for processes in found.values() for one in processes}
            mine = str((self.place / "engine").resolve())
            strays = [one for one in marked("MILLSTREAM_ENGINE", mine) if one.pid not in known]
            # One may have been started or have ended since its parent was asked for its children.
            self._note("processes of nobody", sum(_lonely(one) for one in strays))

    def _processes(self, role: str, processes: list[psutil.Process]) -> None:
        memory = files = threads = 0
        for one in processes:
            with contextlib.suppress(psutil.Error, OSError, StopIteration):
                memory += shared_memory(one.pid)
                files += one.num_fds()
                threads += one.num_threads()
        self._note(f"memory, MB: {role}", memory / 2**20)
        self._note(f"files: {role}", files)
        self._note(f"threads: {role}", threads)
        self._note(f"processes: {role}", len(processes))

    def _disk(self) -> None:
        sizes: dict[str, int] = dict.fromkeys(("journals", "checkpoints", "other", "results"), 0)
        files = 0
        for part, path in _files(self.place):
            with contextlib.suppress(OSError):  # it has gone
                sizes[part] += path.stat().st_blocks * 512
                files += part != "results"
        for part, size in sizes.items():
            self._note(f"disk, MB: {part}", size / 2**20)
        self._note("disk, files", files)

    def _note(self, name: str, value: float) -> None:
        self.series[name].append((round(self.now, 1), round(float(value), 2)))

    def verdicts(self, since: float = 0.0, until: float = float("inf")) -> dict[str, Verdict]:
        """Return which series are flat; without what a sink has written, which is to grow."""
        return {
            name: verdict([one for one in points if since <= one[0] <= until], limit_of(name))
            for name, points in sorted(self.series.items())
            if name != RESULTS
        }


def limit_of(name: str) -> Limit:
    """Return the growth of a series that is not worth a word: that of its longest beginning."""
    fitting = [begin for begin in LIMITS if name.startswith(begin)]
    return LIMITS[max(fitting, key=len)]


def thinned(
    series: Mapping[str, list[tuple[float, float]]], most: int = 360
) -> dict[str, list[tuple[float, float]]]:
    """Return at most so many points of each series, peaks included: the highest of each few."""
    found = {}
    for name, points in series.items():
        step = -(-len(points) // most) or 1
        found[name] = [
            max(points[at : at + step], key=lambda one: one[1])
            for at in range(0, len(points), step)
        ]
    return found


def _roles(
    engine: int, driver: int | None, producers: list[int]
) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Yield the processes by what they do; a driver has Spark's Java, and Python workers."""
    yield "producers", [one for pid in producers for one in _with_children(pid)[:1]]
    tree = _with_children(engine)
    yield "engine", tree[:1]
    busy = _with_children(driver) if driver is not None else []
    known = {one.pid for one in busy}
    java = [one for one in busy if _java(one)]
    yield "driver", busy[:1]
    yield "Java", java
    yield "workers", [one for one in busy[1:] if one not in java]
    yield "spare", [one for one in tree[1:] if one.pid not in known]


def _with_children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _java(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "java"
    return False


def _lonely(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.ppid() == 1 and process.status() != psutil.STATUS_ZOMBIE
    return False


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    for path in place.rglob("*"):
        parts = path.relative_to(place).parts
        if parts[0] == "out":
            yield "results", path
        elif parts[0] in ("engine", "tmp"):
            kind = next((one for one in ("journals", "checkpoints") if one in parts), "other")
            yield kind, path
