"""What the benchmarks share: where they ran, how results are kept and shown."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("millstream", "pyspark", "pyarrow", "numpy", "pandas")


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """How far the slowest lies above the fastest, as a part of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    def plain(self) -> dict[str, Any]:
        return {
            "median_s": round(self.median, 3),
            "spread": round(self.spread, 3),
            "seconds": rounded(self.seconds),
        }


def rounded(numbers: Sequence[float]) -> list[float]:
    return [round(number, 3) for number in numbers]


def cpu_seconds(whole: psutil.Process) -> float:
    """Return the seconds of the processor of a process and all below it, also of those that have ended."""
    total = 0.0
    for process in [whole, *whole.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def machine() -> dict[str, Any]:
    """Describe what the benchmark ran on, and how busy that was."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "load_1min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    said = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()
    found = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "java": said[0] if said else "none", **found}


def commit() -> str:
    """Return the commit that is measured, with a word if the sources have changed since."""
    name, changed = (
        subprocess.run(
            ["git", *words], cwd=RESULTS.parents[1], capture_output=True, text=True, check=False
        ).stdout.strip()
        for words in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "src"))
    )
    return f"{name or 'unknown'}{' and changes' if changed else ''}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )


def save(name: str, settings: dict[str, Any], results: dict[str, Any]) -> Path:
    """Write results with what is needed to judge them; the last ones of a name are kept."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    whole = {
        "benchmark": name,
        "commit": commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "settings": settings,
        "results": results,
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
    """Print a small table."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    console = Console(width=120)
    console.print(table)
    if note:
        console.print(note, style="dim", highlight=False)
    console.print()


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """Give a temporary folder that is removed afterwards; MILLSTREAM_BENCH_DIR says where."""
    path = Path(
        tempfile.mkdtemp(prefix=f"millstream-{prefix}-", dir=os.environ.get("MILLSTREAM_BENCH_DIR"))
    )
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
