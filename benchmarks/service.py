"""An engine as a service: how soon results come, how soon they come again, and ten bad minutes under load.

    python -m benchmarks.service [--full]

- *first result*: from the command `deploy` to the first file of results, events being there: cold, and with a driver kept
  warm (`millstream engine --warm 1`);
- *after a kill*: from kill -9 of the driver to its next file of results, both ways;
- *idle*: memory of the engine process without jobs, and its processor time over half a minute;
- *load*: 50 producers in five processes send 20,000 events a second, steadily, and the driver is killed every minute
  (--full: for ten minutes; otherwise two). Every event must be counted once in the end. `back to
  normal` is how long after a kill more rows were waiting than twice the usual.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.common import folder, rounded, save, show

import millstream as ms
from millstream.cluster import Cluster

PRODUCERS, PROCESSES = 50, 5
KEYS = 100
FLOW = """
import millstream as ms

flow = ms.Flow("load")
events = flow.source(
    "events", ms.inbox("k string, n long, text string, at timestamp"), time="at", key="k", partitions=2,
    lateness="5 seconds", idle="2 seconds",
)
events.window("counted", every="1 second", by="k", rows="count(*)", total="sum(n)").sink("counted", ms.jsonl("out"))
"""
PRODUCE = """
import sys, threading, time
from datetime import UTC, datetime, timedelta
import millstream as ms

where, first, producers, rate, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])

def produce(number):
    size, sent, begin = max(1, rate // 10), 0, time.monotonic()
    with ms.connect(where, timeout=300) as client:
        while (now := time.monotonic() - begin) < seconds:
            at = datetime.now(UTC)
            rows = [dict(k=f"k{(number * 7 + i) % 100}", n=sent + i, text="x" * 60, at=at) for i in range(size)]
            client.send_nowait("load.events", rows)
            sent += size
            time.sleep(max(0.0, sent / rate - (time.monotonic() - begin)))
    sys.stdout.write(f"{number} {sent} {sum(range(sent))}\\n")

threads = [threading.Thread(target=produce, args=(first + i,)) for i in range(producers)]
[t.start() for t in threads]; [t.join() for t in threads]
"""


@contextmanager
def engine(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Cluster]]:
    """Run an engine in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "millstream",
        "engine",
        "--port",
        "0",
        "--data",
        "engine",
        *options,
    ]
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    url = next((word for word in said.split() if word.startswith("http")), None)
    if url is None:
        raise SystemExit(f"the engine did not start: {said}{process.stdout.read()}")
    threading.Thread(target=process.stdout.read, daemon=True).start()
    with Cluster([url], token=(place / "engine/token").read_text().strip()) as cluster:
        try:
            yield process, cluster
        finally:
            process.terminate()
            process.wait(120)


def results(place: Path) -> int:
    return len(list((place / "out").glob("*.jsonl")))


def wait_for(what: Any, limit_s: float = 180.0) -> float:
    began = time.perf_counter()
    while not what():
        if time.perf_counter() - began > limit_s:
            raise TimeoutError("it took too long")
        time.sleep(0.02)
    return time.perf_counter() - began


def warm_spare(engine_pid: int, busy: int | None = None) -> bool:
    """Tell whether a spare driver, not the one that runs the job, has started Spark and rests."""
    found = psutil.Process(engine_pid).children(recursive=True)
    return any(_rests(one) for one in found if one.pid != busy)


def _rests(driver: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it is starting: a process of its launcher has ended
        tree = [driver, *driver.children(recursive=True)]
        if "--warm" in driver.cmdline() and any("java" in one.name() for one in tree):
            before = _cpu(tree)
            time.sleep(1.0)  # what a process uses is measured over a time
            return _cpu(tree) - before < 0.05
    return False


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def feed(where: str, stop: threading.Event) -> None:
    """Send a few events all the time: there is always a result that could come."""
    with ms.connect(where) as client:
        number = 0
        while not stop.wait(0.1):
            rows = [
                {"k": f"k{i}", "n": number + i, "text": "x", "at": time_now()} for i in range(10)
            ]
            client.send_nowait("load.events", rows)
            number += 10


def time_now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def answering(place: Path, *, warm: bool) -> dict[str, float]:
    """Return the seconds from deploy, and from a kill, to a file of results."""
    (place / "flow.py").write_text(FLOW.replace('"5 seconds"', '"0 seconds"'))
    with engine(place, *(["--warm", "1"] if warm else [])) as (process, cluster):
        if warm:
            wait_for(lambda: warm_spare(process.pid))
        began = time.perf_counter()
        cluster.deploy(place / "flow.py")
        inbox = cluster.status("load").inboxes[0].address
        stop = threading.Event()
        feeder = threading.Thread(target=feed, args=(inbox, stop))
        feeder.start()
        wait_for(lambda: results(place) > 0)
        first = time.perf_counter() - began
        if warm:
            wait_for(lambda: warm_spare(process.pid, cluster.status("load").pid))
        wait_for(lambda: results(place) > 3)  # it runs steadily
        before, killed_at = results(place), time.perf_counter()
        os.kill(cluster.status("load").pid or 0, signal.SIGKILL)
        wait_for(lambda: cluster.status("load").restarts > 0)
        wait_for(lambda: results(place) > before)
        again = time.perf_counter() - killed_at
        stop.set()
        feeder.join()
        cluster.undeploy("load", force=True)
    return {"first result": first, "after a kill": again}


def idle(place: Path) -> dict[str, float]:
    with engine(place) as (process, _):
        watched = psutil.Process(process.pid)
        wait_for(lambda: watched.cpu_percent(interval=1.0) < 10)  # it has started
        before = watched.cpu_times()
        time.sleep(30)
        after = watched.cpu_times()
        busy = after.user + after.system - before.user - before.system
        return {"memory_mb": watched.memory_info().rss / 2**20, "cpu_percent": busy / 30 * 100}


def load(
    place: Path, *, minutes: float, rate: int, kill_every_s: float, warm: bool
) -> dict[str, Any]:
    """Send steadily, kill the driver every minute, and count."""
    (place / "flow.py").write_text(FLOW)
    with engine(place, *(["--warm", "1"] if warm else [])) as (_, cluster):
        cluster.deploy(place / "flow.py")
        wait_for(lambda: cluster.status("load").state == "running")
        where = cluster.status("load").inboxes[0].address
        each, many = rate // PRODUCERS, PRODUCERS // PROCESSES
        producers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    PRODUCE,
                    where,
                    str(i * many),
                    str(many),
                    str(each),
                    str(minutes * 60),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(PROCESSES)
        ]
        watched = _watch(cluster, producers, kill_every_s, minutes * 60)
        said = [
            line.split()
            for producer in producers
            for line in producer.communicate()[0].splitlines()
        ]
        sent, total = sum(int(one[1]) for one in said), sum(int(one[2]) for one in said)
        cluster.drain("load", flush=True)
        done = cluster.wait("load", 600)
        lines = [
            json.loads(line)
            for file in (place / "out").glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        counted, summed = sum(line["rows"] for line in lines), sum(line["total"] for line in lines)
        cluster.undeploy("load")
    return {
        "producers": len(said),
        "sent": sent,
        "counted": counted,
        "late": done.late,
        "lost": sent - counted - done.late,
        "sums equal": done.late > 0 or total == summed,
        "twice": len(lines) - len({(line["k"], line["window_start"]) for line in lines}),
        "rows per second": sent / (minutes * 60),
        **watched,
    }


def _watch(
    cluster: Cluster, producers: list[Any], kill_every_s: float, seconds: float
) -> dict[str, Any]:
    began = time.monotonic()
    kill_at, usual = began + kill_every_s, []
    kills, backs, most = 0, [], 0
    killed_at: float | None = None
    restarts = 0
    while (
        any(producer.poll() is None for producer in producers)
        and time.monotonic() - began < seconds + 300
    ):
        time.sleep(0.5)
        status, now = cluster.status("load"), time.monotonic()
        most = max(most, status.unprocessed)
        if killed_at is None:
            usual.append(status.unprocessed)
        elif (
            status.restarts > restarts
            and status.state == "running"
            and status.unprocessed <= 2 * statistics.median(usual)
        ):
            backs.append(now - killed_at)
            killed_at = None
        if now >= kill_at and killed_at is None and status.pid and now - began < seconds - 20:
            os.kill(status.pid, signal.SIGKILL)
            kills, killed_at, kill_at, restarts = (
                kills + 1,
                now,
                now + kill_every_s,
                status.restarts,
            )
    return {
        "kills": kills,
        "back to normal, s": rounded(backs),
        "usually waiting": statistics.median(usual),
        "most waiting": most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="ten minutes of load instead of two")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--only", choices=["answering", "idle", "load"])
    given = parser.parse_args()
    minutes = given.minutes or (10.0 if given.full else 2.0)
    found: dict[str, Any] = {}
    with folder("service") as place:
        for name in ("cold", "warm", "idle", "load"):
            (place / name).mkdir()
        if given.only in (None, "answering"):
            found["cold"] = answering(place / "cold", warm=False)
            found["warm"] = answering(place / "warm", warm=True)
            rows = [(what, found["cold"][what], found["warm"][what]) for what in found["cold"]]
            show("seconds to a result", ["", "cold", "warm"], rows)
        if given.only in (None, "idle"):
            found["idle"] = idle(place / "idle")
            show("an idle engine", ["", ""], list(found["idle"].items()))
        if given.only in (None, "load"):
            found["load"] = load(
                place / "load", minutes=minutes, rate=given.rate, kill_every_s=60.0, warm=True
            )
            show(
                f"{minutes:g} minutes of load, the driver killed every minute",
                ["", ""],
                list(found["load"].items()),
            )
    settings = {"minutes": minutes, "rate": given.rate, "producers": PRODUCERS}
    if given.only is None:
        save("service-full" if given.full else "service", settings, found)
    if "load" in found and (
        found["load"]["lost"] or found["load"]["twice"] or not found["load"]["sums equal"]
    ):
        raise SystemExit("events were lost or counted twice")


if __name__ == "__main__":
    main()
