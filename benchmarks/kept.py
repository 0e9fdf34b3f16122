"""Figures beside those that were kept last: which are worse by more than the noise, and one page with all."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.common import RESULTS
from rich.console import Console

PAGE: Final = Path(__file__).with_name("FIGURES.md")
#: A change by less says nothing, whatever a few turns say about their noise.
LEAST_NOISE: Final = 0.10
#: What a figure is called tells whether more of it is better, or less; others are not compared.
MORE: Final = re.compile(
    r"(per_(cpu_)?s(econd)?|rows_s|rows per second|^times(_by_cpu)?|of_spark|of_limit)$"
)
LESS: Final = re.compile(r"(_s|_ms|_us|_mb|^us|seconds|per_event|per_run|per_batch|bytes_row)$")
#: Figures of other systems, and those that only lead to a figure.
PASSED_OVER: Final = {
    *("flink", "pyspark", "bobocep", "parquet", "json lines", "Spark, from_json"),
    *("runs", "durations_s", "points", "bobocep_events_per_s", "few_seconds", "load"),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, whether more of it is better, and by which part of it turns differed."""

    value: float
    more: bool
    noise: float


@dataclass(frozen=True, slots=True)
class Change:
    """A figure, and what it was."""

    name: str
    figure: Figure
    before: Figure | None

    @property
    def by(self) -> float | None:
        """By which part it has changed; above 0 is better."""
        if self.before is None or not self.before.value or not self.figure.value:
            return None
        times = self.figure.value / self.before.value
        return times - 1 if self.figure.more else 1 / times - 1

    @property
    def noise(self) -> float:
        before = self.before.noise if self.before else 0.0
        return max(LEAST_NOISE, self.figure.noise, before)

    @property
    def worse(self) -> bool:
        return self.by is not None and self.by < -self.noise

    @property
    def better(self) -> bool:
        return self.by is not None and self.by > self.noise


def figures(results: Any, name: str = "", noise: float = 0.0) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of a benchmark by their names in it."""
    if isinstance(results, Mapping):
        noise = max(noise, _noise(results))
        for key, value in results.items():
            if key not in PASSED_OVER:
                yield from figures(value, f"{name}.{key}" if name else str(key), noise)
    elif isinstance(results, list):
        for place, value in enumerate(results):
            if isinstance(value, Mapping):
                yield from figures(value, f"{name}.{place}", noise)
    elif isinstance(results, (int, float)) and not isinstance(results, bool):
        last = name.rpartition(".")[2]
        if MORE.search(last):
            yield name, Figure(float(results), True, noise)
        elif LESS.search(last):
            yield name, Figure(float(results), False, noise)


def _noise(results: Mapping[str, Any]) -> float:
    """Return by which part the turns of a measurement differed, as it says or as its turns show."""
    found = [float(results["spread"])] if isinstance(results.get("spread"), (int, float)) else []
    for key in ("seconds", "rates"):
        turns = results.get(key)
        if isinstance(turns, list) and len(turns) > 1 and min(turns) > 0:
            found.append((max(turns) - min(turns)) / sorted(turns)[len(turns) // 2])
    return max(found, default=0.0)


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[Change]:
    """Return the figures of a result with what they were; with other settings they were nothing."""
    same = before is not None and before["settings"] == after["settings"]
    kept = dict(figures(before["results"])) if before is not None and same else {}
    return [Change(name, one, kept.get(name)) for name, one in figures(after["results"])]


def last_kept(path: Path) -> dict[str, Any] | None:
    """Return a result as the last commit has it."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{path.name}"], cwd=path.parent, capture_output=True, check=False
    )
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def compare() -> int:
    """Show what has changed since the last commit, write the page, and return how many figures are worse."""
    console = Console(highlight=False)
    parts, marked = [], []
    for path in sorted(RESULTS.glob("*.json")):
        after, before = json.loads(path.read_text()), last_kept(path)
        found = changes(before, after)
        fresh = before is None or before["measured_at"] != after["measured_at"]
        parts += _part(after, found)
        if fresh and before is not None and before["settings"] != after["settings"]:
            console.print(f"{path.stem}: not compared, the kept result has other settings")
        for one in found if fresh else ():
            if one.worse or one.better:
                told = f"{path.stem}: {one.name} {_line(one)}"
                console.print(told, style="red" if one.worse else "green")
                marked += [f"- {told}"] if one.worse else []
    head = [
        "# Figures",
        "",
        "Written by `make bench` from `results/`; [what they mean](README.md).",
        "",
    ]
    worse = ["**Worse than the last kept ones by more than the noise:**", "", *marked, ""]
    PAGE.write_text("\n".join([*head, *(worse if marked else []), *parts]) + "\n")
    console.print(f"{len(marked)} figures are worse by more than the noise; all are in {PAGE.name}")
    return len(marked)


def _line(one: Change) -> str:
    before = "-" if one.before is None else _number(one.before.value)
    return f"{before} to {_number(one.figure.value)}, {one.by or 0:+.0%} (noise {one.noise:.0%})"


def _part(whole: Mapping[str, Any], found: list[Change]) -> list[str]:
    """Return a benchmark's part of the page."""
    machine = whole["machine"]
    ran = (
        f"{whole['measured_at'][:16]}, commit {whole.get('commit', 'unknown')}, {machine['cores']} cores of "
        f"{machine['cpu']}, {machine['memory_gb']} GB, load {machine['load_1min']}"
    )
    compared = any(one.by for one in found)
    columns = "| figure | value | before | change |" if compared else "| figure | value |"
    lines = [
        f"## {whole['benchmark']}",
        "",
        ran,
        "",
        columns,
        "| --- |" + " ---: |" * (columns.count("|") - 2),
    ]
    for one in found:
        cells = [one.name.replace("|", "\\|"), _number(one.figure.value)]
        if compared:
            change = "" if one.by is None else f"{one.by:+.0%}"
            mark = f"**{change} worse**" if one.worse else change
            cells += ["" if one.before is None else _number(one.before.value), mark]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
