"""Programs run as processes of their own, cold, with what they took: seconds, seconds of the processor, memory."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program took, with all processes that it started; `load` is the machine's when it ended."""

    seconds: float
    cpu_seconds: float
    peak_mb: int
    load: float


def cost_of(command: Sequence[str], *, log: Path, cwd: Path | None = None) -> Cost:
    """Run a program to its end and return what it took.

    Raises:
        SystemExit: It failed; the end of what it said is shown.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as answer, log.open("wb") as said:
        watch = [sys.executable, "-m", "benchmarks.processes", answer.name, *command]
        ended = subprocess.run(watch, stdout=said, stderr=said, cwd=cwd, check=False)
        if ended.returncode:
            tail = log.read_text(errors="replace")[-3000:]
            raise SystemExit(
                f"error: {' '.join(command[:3])} ... ended with {ended.returncode}\n{tail}"
            )
        return Cost(**json.loads(Path(answer.name).read_text()))


def watch(command: Sequence[str]) -> tuple[int, Cost]:
    """Run a program as the parent of all that it leaves behind, so that no process goes uncounted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak = _Peak()
    began = time.perf_counter()
    process = subprocess.Popen(command)
    peak.start()
    code = process.wait()
    seconds = time.perf_counter() - began
    peak.ended.set()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    return code, Cost(
        round(seconds, 2), round(cpu, 2), peak.megabytes, round(os.getloadavg()[0], 1)
    )


class _Peak(threading.Thread):
    """The most memory that the processes below this one had at once; what they share is counted once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.megabytes = 0

    def run(self) -> None:
        while not self.ended.wait(1):
            self.megabytes = max(self.megabytes, _memory() >> 20)


def _memory() -> int:
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


if __name__ == "__main__":
    status, cost = watch(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps({name: getattr(cost, name) for name in Cost.__slots__}))
    sys.exit(status)
