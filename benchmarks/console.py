"""The console: its weight, its first paint with 50 jobs, what open pages cost an engine, and a browser's memory.

    PYTHONPATH=.:tests python -m benchmarks.console [--pages 20] [--seconds 60] [--minutes 60]

The engine is that of the tests, without Spark: it serves 50 jobs whose numbers change twice a second, as
its stream then does. It is in a process of its own, whose CPU is measured without a page, with one and with
`--pages`. A page is a reader of the stream for that; Chromium has one page of a job open for `--minutes`,
and its memory is that of JavaScript after a collection.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil
from benchmarks.common import Timing, save, show
from playwright.sync_api import Browser

from millstream.engine.jobs.status import GroupStatus
from support.browser import chromium
from support.served import serving

JOBS: Final = 50
TICK_S: Final = 0.5
TURNS: Final = 7


def serve(folder: Path) -> None:
    """Be the engine: print its address, then change all numbers until stdin closes."""
    with serving(folder) as served:
        served.server.api.live._tick_s = TICK_S
        for number in range(JOBS):
            served.deploy(name=f"job-{number:02}")
        print(served.server.url, flush=True)
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        batch = 0
        while not ended.wait(TICK_S):
            batch += 1
            served.engine.groups = tuple(
                GroupStatus(
                    name=f"group-{n}",
                    batch=batch,
                    rows_in=1000 * batch,
                    rows_out=100 * batch,
                    batch_seconds=0.4,
                    watermark_ms=int(time.time() * 1000) - 5000,
                    lag_rows=batch % 300,
                    state_rows=1000 + batch,
                    spent={"running": 0.2 * batch, "commit": 0.05 * batch},
                )
                for n in range(3)
            )


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


def memory(browser: Browser, url: str, minutes: float) -> dict[str, Any]:
    """Return the memory of a page of a job over some minutes, and how fast it grows in the second half."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(f"{url}/jobs/job-07")
    page.locator("h1").wait_for()
    points: list[tuple[float, float, float]] = []
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < minutes * 60:
        session.send("HeapProfiler.collectGarbage")
        found = session.send("Performance.getMetrics")["metrics"]
        metrics = {one["name"]: one["value"] for one in found}
        points.append((passed, metrics["JSHeapUsedSize"] / 1e6, metrics["Nodes"]))
        page.wait_for_timeout(min(15_000, minutes * 60_000 / 8))
    context.close()
    late = np.array(points[len(points) // 2 :])
    slope = np.polyfit(late[:, 0], late[:, 1], 1)[0] * 3600 if len(late) > 1 else 0.0
    return {
        "minutes": minutes,
        "first_mb": round(points[0][1], 2),
        "median_mb": round(statistics.median(one[1] for one in points), 2),
        "last_mb": round(points[-1][1], 2),
        "slope_mb_per_hour": round(float(slope), 2),
        "nodes": [points[0][2], points[-1][2]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--serve", type=Path)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return
    with ExitStack() as stack:
        process, url = stack.enter_context(engine())
        parts = weight(url)
        loads = {n: load(process, url, n, given.seconds) for n in (0, 1, given.pages)}
        browser = stack.enter_context(chromium())
        painted, whole = first_paint(browser, url)
        kept = memory(browser, url, given.minutes)
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
            ("JavaScript's memory", f"{kept['last_mb']} MB, {kept['slope_mb_per_hour']} MB/h"),
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
            "browser": kept,
        },
    )


if __name__ == "__main__":
    main()
