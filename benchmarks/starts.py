"""How soon drivers give results, and what memory they have, from outside, with whole processes.

    python -m benchmarks.starts [--turns 1] [--only run cold warm idle switch] [--java "-XX:..."]

- *run*: from the command `millstream run` to the first file of results;
- *cold*, *warm*: from `deploy` to the first file of results, without and with a spare driver, and from
  kill -9 of the driver to the next one;
- *idle*: the memory of a driver whose job has had some events and has none any more, and of a spare one,
  a minute later;
- *switch*: 20,000 events a second come in while another version replaces the running one: from the
  command to the cut, from which on the new version reads, and the memory of one version and of two.

Each figure comes with what happened until then, and with the seconds of CPU of all processes, which say
more than the clock where others use the machine. `--java` adds options for Spark's Java, so that two
settings can be compared; `--turns` repeats everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from benchmarks import startup, switch
from benchmarks.common import Timing, folder, save, show
from benchmarks.service import FLOW, engine, feed, results, wait_for

from millstream.cluster import Cluster
from millstream.spark.session.session import JAVA_OPTIONS

PARTS: Final = ("run", "cold", "warm", "idle", "switch")
IDLE_S: Final = 60.0
#: What is seen of a job's start in its folder.
MARKS: Final = {
    "first batch logged": "engine/jobs/*/*/groups/*/*/offsets/0",
    "first batch committed": "engine/jobs/*/*/groups/*/*/commits/0",
}
Figures = dict[str, float]


def processes(pid: int) -> list[psutil.Process]:
    """Return a process and all below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def cpu(pid: int) -> float:
    """Return the seconds of CPU of a process and all below it, those that have ended included."""
    used = 0.0
    for one in processes(pid):
        with contextlib.suppress(psutil.Error):
            used += sum(one.cpu_times()[:4])
    return used


def memory(pid: int) -> dict[str, float]:
    """Return the megabytes of a process and all below it; what they share is counted in parts."""
    found = {"Java": 0.0, "Python": 0.0}
    for one in processes(pid):
        with contextlib.suppress(psutil.Error, OSError):
            kind = "Java" if one.name() == "java" else "Python"
            found[kind] += one.memory_full_info().pss / 2**20
    return {"all": sum(found.values()), **found}


@contextmanager
def fed(cluster: Cluster) -> Iterator[None]:
    """Send a few events all the time."""
    stop = threading.Event()
    where = cluster.status("load").inboxes[0].address
    feeder = threading.Thread(target=feed, args=(where, stop))
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


class Phases:
    """What has happened since now: seconds, and seconds of CPU of the engine's processes."""

    def __init__(self, pid: int) -> None:
        self._pid, self._cpu, self._began = pid, cpu(pid), time.perf_counter()
        self.found: Figures = {}

    def mark(self, what: str) -> None:
        self.found[what] = time.perf_counter() - self._began
        self.found[f"{what}, CPU"] = cpu(self._pid) - self._cpu

    def until(self, wanted: dict[str, Callable[[], bool]]) -> None:
        """Mark each of these when it is true first; return when all are."""

        def look() -> bool:
            for what, true in wanted.items():
                if what not in self.found and true():
                    self.mark(what)
            return wanted.keys() <= self.found.keys()

        wait_for(look)


def _there(place: Path, pattern: str) -> Callable[[], bool]:
    return lambda: next(place.glob(pattern), None) is not None


def run(place: Path) -> Figures:
    """Run a flow with `millstream run`; see `startup`."""
    return startup.start(place / "flow", dict(os.environ))


def job(place: Path, *, warm: bool) -> Figures:
    """Return the seconds from deploy, and from a kill, to a file of results, by phase."""
    (place / "flow.py").write_text(FLOW.replace('"5 seconds"', '"0 seconds"'))
    with engine(place, *(["--warm", "1"] if warm else [])) as (process, cluster):
        if warm:
            wait_for(lambda: cluster.engines()[0].warm > 0)
        first = Phases(process.pid)
        cluster.deploy(place / "flow.py")
        first.mark("deployed")
        with fed(cluster):
            marks = {what: _there(place, pattern) for what, pattern in MARKS.items()}
            first.until(
                {
                    "running": lambda: cluster.status("load").state == "running",
                    **marks,
                    "first result": lambda: results(place) > 0,
                }
            )
            if warm:
                wait_for(lambda: cluster.engines()[0].warm > 0)
            wait_for(lambda: results(place) > 3)  # it runs steadily
            before, again = results(place), Phases(process.pid)
            os.kill(cluster.status("load").pid or 0, signal.SIGKILL)
            again.until({"restarting": lambda: cluster.status("load").restarts > 0})
            again.until(
                {
                    "running": lambda: cluster.status("load").state == "running",
                    "next result": lambda: results(place) > before,
                }
            )
        cluster.undeploy("load", force=True)
    return {
        **{f"deploy: {what}": value for what, value in first.found.items()},
        **{f"kill: {what}": value for what, value in again.found.items()},
    }


def idle(place: Path) -> Figures:
    """Return the memory of a driver whose job has nothing to do, and of a spare one."""
    (place / "flow.py").write_text(FLOW.replace('"5 seconds"', '"0 seconds"'))
    with engine(place, "--warm", "1") as (process, cluster):
        cluster.deploy(place / "flow.py")
        with fed(cluster):
            wait_for(lambda: results(place) > 10)
        wait_for(lambda: cluster.engines()[0].warm > 0)
        time.sleep(IDLE_S)
        driver = cluster.status("load").pid or 0
        spare = next(
            one.pid
            for one in psutil.Process(process.pid).children()
            if one.pid != driver and "--warm" in one.cmdline()
        )
        before = cpu(driver)
        found = {
            **{f"driver, MB, {kind}": size for kind, size in memory(driver).items()},
            **{f"spare, MB, {kind}": size for kind, size in memory(spare).items()},
        }
        time.sleep(10)
        found["driver, CPU %"] = (cpu(driver) - before) * 10
        cluster.undeploy("load", force=True)
    return found


def switched(place: Path) -> Figures:
    """Return how soon a new version reads under load, and the memory of one and of two versions."""
    seen = switch.measure("millstream", place, switch.Settings(20_000, 3, 1))
    if seen["lost"] or seen["twice"]:
        raise SystemExit("events were lost or counted twice")
    steps: dict[str, float] = {}
    for at, text in seen["steps"]:
        steps.setdefault(text, at)
    return {
        **steps,
        "new version reads": steps["overlapping"],
        "CPU steady": seen["cpu_steady"],
        "CPU during": seen["cpu_during"],
        "one version, MB": seen["memory_steady_mb"],
        "two versions, MB": seen["memory_during_mb"],
        "two versions, times": seen["memory_during_mb"] / max(1, seen["memory_steady_mb"]),
        "delay before": seen["delay_s"].get("before", {}).get("median", float("nan")),
    }


def measure(part: str, place: Path) -> Figures:
    """Measure one part in a folder of its own."""
    place.mkdir(parents=True)
    match part:
        case "run":
            return run(place)
        case "idle":
            return idle(place)
        case "switch":
            return switched(place)
    return job(place, warm=part == "warm")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--java", default="", help="options that are added for Spark's Java")
    given = parser.parse_args()
    if given.java:
        os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} {given.java}".strip()
    startup.adopt()
    found: dict[str, list[Figures]] = {}
    with folder("starts") as place:
        for turn in range(given.turns):
            for part in given.only:
                found.setdefault(part, []).append(measure(part, place / f"{part}{turn}"))
                print(part, json.dumps(found[part][-1]), flush=True)
    medians = {
        part: {what: Timing(tuple(one[what] for one in turns)).median for what in turns[0]}
        for part, turns in found.items()
    }
    for part, figures in medians.items():
        show(part, ["", f"median of {given.turns}"], list(figures.items()))
    if tuple(given.only) == PARTS:
        save("starts", {"turns": given.turns, "java": given.java}, medians)


if __name__ == "__main__":
    main()
