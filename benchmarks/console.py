"""The console: its weight, its first paint with 50 jobs, what open pages cost an engine, and a browser's memory.

    PYTHONPATH=.:tests python -m benchmarks.console [--pages 20] [--seconds 60] [--minutes 60] [--only memory]

The engine is that of the tests, without Spark: it serves 50 jobs whose numbers change twice a second, as
its stream then does, and it already has the hour of points that plots show. It is in a process of its own,
whose CPU is measured without a page, with one and with `--pages`. A page is a reader of the stream for that.

For memory, Chromium has the overview and a job with its plots open for `--minutes`. Measured after a
collection: the heap of JavaScript, nodes and listeners of the documents; and the memory and CPU of all of
Chromium's processes. A page grows if the line through the last two thirds of its points rises by more than
2 % of the median in an hour, and by more than twice the line's standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil
from benchmarks.common import Timing, save, show
from playwright.sync_api import Browser

from millstream.engine.jobs.pulse import EVERY_S, POINTS, Pulses
from millstream.engine.jobs.status import GroupStatus
from support.browser import chromium
from support.engine import PeerEngine
from support.served import serving

JOBS: Final = 50
TICK_S: Final = 0.5
TURNS: Final = 7
#: How many batches the groups have done when the pages are opened: as many as in an hour.
BATCHES: Final = 7_200


def groups(batch: int, now: float) -> tuple[GroupStatus, ...]:
    return tuple(
        GroupStatus(
            name=f"group-{n}",
            batch=batch,
            rows_in=1000 * batch,
            rows_out=100 * batch,
            batch_seconds=0.4,
            watermark_ms=int(now * 1000) - 5000,
            lag_rows=batch % 300,
            state_rows=1000 + batch % 300,
            state_bytes=4_000_000 + batch % 300,
            spent={"running": 0.2 * batch, "commit": 0.05 * batch},
        )
        for n in range(3)
    )


def serve(folder: Path) -> None:
    """Be the engine: print its address, then change all numbers until stdin closes."""
    with serving(folder) as served:
        live = served.server.api.live
        live._tick_s = TICK_S
        for number in range(JOBS):
            served.deploy(name=f"job-{number:02}")
        live._pulses = an_hour_of(served.engine)
        print(served.server.url, flush=True)
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        batch = BATCHES
        while not ended.wait(TICK_S):
            batch += 1
            served.engine.groups = groups(batch, time.time())


def an_hour_of(engine: PeerEngine) -> Pulses:
    """Return the pulse of an engine that has run for an hour: plots that fill up are no leak."""
    pulses, now = Pulses(), time.time()
    for point in range(POINTS):
        at = now - (POINTS - point) * EVERY_S
        engine.groups = groups(BATCHES * point // POINTS, at)
        pulses.take(engine.jobs(), {}, at)
    return pulses


@contextmanager
def engine() -> Iterator[tuple[psutil.Process, str]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.console", "--serve", folder]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield psutil.Process(process.pid), process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(60)


def weight(url: str) -> dict[str, int]:
    """Return the bytes over the wire of each part of the page."""
    found: dict[str, int] = {}

    def take(path: str) -> str:
        html = {"Accept": "text/html", "Accept-Encoding": "gzip"}
        with httpx.stream("GET", url + path, headers=html) as answer:
            raw = b"".join(answer.iter_raw())
        found[path.rpartition("/")[2].partition("-")[0] + Path(path).suffix or "/"] = len(raw)
        return httpx.get(url + path, headers=html).text

    text = take("/")
    for part in sorted({one for one in text.split('"') if one.startswith("/page/")}):
        take(part)
    return found


def first_paint(browser: Browser, url: str) -> tuple[Timing, Timing]:
    """Return the time to the first paint, and to all jobs on the page, each in a fresh browser context."""
    painted, whole = [], []
    for _ in range(TURNS):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(url)
        rows = f"document.querySelectorAll('table.jobs tbody tr').length === {JOBS}"
        shown = page.wait_for_function(f"() => {rows} && performance.now()", polling="raf")
        whole.append(shown.json_value() / 1000)
        entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        painted.append(page.evaluate(entry) / 1000)
        context.close()
    return Timing(tuple(painted)), Timing(tuple(whole))


def load(process: psutil.Process, url: str, pages: int, seconds: float) -> dict[str, float]:
    """Return what an engine costs with so many open pages."""
    received = [0] * pages
    leaving = threading.Event()

    def read(number: int) -> None:
        with httpx.stream("GET", f"{url}/live", timeout=30) as answer:
            for part in answer.iter_raw():
                received[number] += len(part)
                if leaving.is_set():
                    return

    readers = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(pages)]
    for one in readers:
        one.start()
    time.sleep(3)
    before, begun, bytes_before = _cpu(process), time.monotonic(), sum(received)
    time.sleep(seconds)
    passed = time.monotonic() - begun
    found = {
        "cpu_percent": round((_cpu(process) - before) / passed * 100, 2),
        "memory_mb": round(process.memory_info().rss / 1e6, 1),
        "kb_per_second_and_page": round((sum(received) - bytes_before) / passed / 1e3 / pages, 1)
        if pages
        else 0.0,
    }
    leaving.set()
    for one in readers:
        one.join(30)
    return found


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Processes:
    """Chromium's processes, which come and go."""

    def __init__(self) -> None:
        self._spent: dict[int, float] = {}

    def memory(self) -> int:
        """Look at all of them, and return the memory that they have together."""
        found = 0
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "chrom" in one.name():
                    found += one.memory_info().rss
                    self._spent[one.pid] = _cpu(one)
        return found

    @property
    def cpu(self) -> float:
        """The seconds of CPU that they had used when they were last looked at."""
        return sum(self._spent.values())


class Watched:
    """A page that is open, and what it holds from time to time."""

    def __init__(self, browser: Browser, name: str, url: str) -> None:
        self.name, self.points = name, list[dict[str, float]]()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        self.page = context.new_page()
        self._session = context.new_cdp_session(self.page)
        self._session.send("Performance.enable")
        self.page.goto(url)
        self.page.locator("h1").wait_for()

    def look(self, minute: float) -> None:
        self._session.send("HeapProfiler.collectGarbage")
        found = self._session.send("Performance.getMetrics")["metrics"]
        metrics = {one["name"]: one["value"] for one in found}
        point = {
            "minute": round(minute, 2),
            "heap_mb": metrics["JSHeapUsedSize"] / 1e6,
            "nodes": metrics["Nodes"],
            "listeners": metrics["JSEventListeners"],
        }
        self.points.append(point)
        shown = ", ".join(f"{name} {value:.2f}" for name, value in point.items())
        print(f"{self.name}: {shown}", flush=True)

    def found(self) -> dict[str, Any]:
        minutes = [one["minute"] for one in self.points]
        return {
            number: growth(minutes, [one[number] for one in self.points])
            for number in ("heap_mb", "nodes", "listeners")
        }


def growth(minutes: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    """Return how values go on: the line through the last two thirds of them, in an hour."""
    late = len(values) // 3
    hours, kept = np.array(minutes[late:]) / 60, np.array(values[late:])
    slope = error = 0.0
    if len(kept) > 2:
        (slope, _), residuals, *_ = np.polyfit(hours, kept, 1, full=True)
        left = float(residuals.sum()) / (len(kept) - 2)
        error = float(np.sqrt(left / ((hours - hours.mean()) ** 2).sum()))
    median = float(np.median(kept))
    return {
        "first": round(float(values[0]), 2),
        "median": round(median, 2),
        "last": round(float(values[-1]), 2),
        "highest": round(float(max(values)), 2),
        "slope_per_hour": round(float(slope), 3),
        "slope_error": round(error, 3),
        "grows": bool(slope > 0.02 * median and slope > 2 * error),
    }


def memory(browser: Browser, url: str, minutes: float) -> dict[str, Any]:
    """Return what two pages that stay open hold over some minutes, and whether it grows."""
    pages = [
        Watched(browser, "overview", url),
        Watched(browser, "job", f"{url}/jobs/job-07"),
    ]
    processes = Processes()
    pause = min(30_000, minutes * 60_000 / 12)
    begun, whole = time.monotonic(), list[tuple[float, float]]()
    processes.memory()
    cpu = processes.cpu
    while (passed := (time.monotonic() - begun) / 60) < minutes:
        for one in pages:
            one.look(passed)
        whole.append((passed, processes.memory() / 1e6))
        pages[0].page.wait_for_timeout(pause)
    spent = (processes.cpu - cpu) / (time.monotonic() - begun)
    return {
        "minutes": minutes,
        "chromium_cpu_percent": round(spent * 100, 1),
        "chromium_mb": growth([one[0] for one in whole], [one[1] for one in whole]),
        **{one.name: one.found() for one in pages},
    }


def show_memory(found: dict[str, Any]) -> None:
    def line(what: str, unit: str, one: dict[str, Any]) -> tuple[str, str, str]:
        slope = f"{one['slope_per_hour']:+} ± {one['slope_error']}{unit} an hour"
        return what, f"{one['last']}{unit}", f"{slope}: {'GROWS' if one['grows'] else 'level'}"

    show(
        f"the console open for {found['minutes']:g} minutes, "
        f"{found['chromium_cpu_percent']} % of a core for the browser",
        ("what", "at the end", "last two thirds"),
        [
            *(
                line(f"{page}: {what}", unit, found[page][number])
                for page in ("overview", "job")
                for what, unit, number in (
                    ("JavaScript's memory", " MB", "heap_mb"),
                    ("nodes", "", "nodes"),
                    ("listeners", "", "listeners"),
                )
            ),
            line("memory of all of Chromium", " MB", found["chromium_mb"]),
        ],
    )


def show_costs(process: psutil.Process, url: str, browser: Browser, given: Any) -> None:
    """Measure and show everything but memory."""
    parts = weight(url)
    loads = {n: load(process, url, n, given.seconds) for n in (0, 1, given.pages)}
    painted, whole = first_paint(browser, url)
    total = sum(parts.values())
    show(
        "the console, 50 jobs",
        ("what", "found"),
        [
            ("page, compressed", f"{total / 1000:.1f} kB"),
            ("first paint", f"{painted.median * 1000:.0f} ms"),
            ("all jobs on the page", f"{whole.median * 1000:.0f} ms"),
            *(
                (f"engine with {n} pages", f"{one['cpu_percent']} % CPU, {one['memory_mb']} MB")
                for n, one in loads.items()
            ),
        ],
    )
    save(
        "console",
        {"jobs": JOBS, "updates_per_second": 1 / TICK_S, "seconds": given.seconds},
        {
            "weight_bytes": {**parts, "all": total},
            "first_paint": painted.plain(),
            "all_jobs": whole.plain(),
            "engine": {str(n): one for n, one in loads.items()},
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--only", choices=("costs", "memory"))
    parser.add_argument("--serve", type=Path)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return
    with ExitStack() as stack:
        process, url = stack.enter_context(engine())
        browser = stack.enter_context(chromium())
        if given.only != "memory":
            show_costs(process, url, browser, given)
        if given.only != "costs":
            found = memory(browser, url, given.minutes)
            show_memory(found)
            settings = {"jobs": JOBS, "updates_per_second": 1 / TICK_S, "minutes": given.minutes}
            save("console_memory", settings, found)


if __name__ == "__main__":
    main()
