"""What was found about Nexmark as tables and as a picture, from the results that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks import common
from benchmarks.nexmark.workers import SYSTEMS

README: Final = Path(__file__).parents[1] / "README.md"
IMAGE: Final = Path(__file__).parents[2] / "docs" / "images" / "nexmark.svg"
BEGIN, END = "<!-- figures of nexmark -->", "<!-- end of nexmark -->"
COLOURS: Final = {  # light, dark
    "millstream": ("#0b69c7", "#58a6ff"),
    "files": ("#8250df", "#b083f0"),
    "pyspark": ("#d4700a", "#f0973c"),
    "flink": ("#11936f", "#2fbf94"),
}


def show(found: dict[str, Any]) -> None:
    """Print the figures."""
    systems = list(found["start_s"])
    rows = [
        (
            *(query, SYSTEMS[system], _rate(one), one["seconds"], one["spread"]),
            *(one["few_seconds"], one["cores"], one["peak_mb"]),
        )
        for query, by_system in found["queries"].items()
        for system, one in by_system.items()
    ]
    columns = ("query", "system", "events/s", "seconds", "spread", "of few", "cores", "peak MB")
    common.show("Nexmark", columns, rows, f"start of the process, s: {found['start_s']}")
    if len(systems) > 1:
        common.show(
            "Millstream's rate, as a multiple of that of", ["query", *systems[1:]], _ratios(found)
        )


def _ratios(found: dict[str, Any]) -> list[list[str]]:
    """Return Millstream's rate as a multiple of the others'."""
    first, *others = found["start_s"]
    return [
        [query, *(_ratio(one, first, other) for other in others)]
        for query, one in found["queries"].items()
    ]


def _ratio(one: dict[str, Any], first: str, other: str) -> str:
    rates = [one.get(system, {}).get("events_per_s") for system in (first, other)]
    return f"{rates[0] / rates[1]:.2f}" if all(rates) else "-"


def _rate(one: dict[str, Any]) -> str:
    return "-" if one["events_per_s"] is None else f"{one['events_per_s']:,}"


def write() -> None:
    """Write the table into the README, and the picture, from the results that are kept."""
    whole = json.loads((common.RESULTS / "nexmark.json").read_text())
    before, _, rest = README.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text("\n".join([before + BEGIN, *_tables(whole), END]) + after)
    IMAGE.write_text(picture(whole["results"]["queries"]))


def _tables(whole: dict[str, Any]) -> list[str]:
    found, settings, machine = whole["results"], whole["settings"], whole["machine"]
    systems = list(found["start_s"])
    titles = [SYSTEMS[system] for system in systems]
    lines = [
        f"{settings['events']:,} events, turns: {settings['turns']}, {machine['cores']} cores, load "
        f"{found['load']['least']} to {found['load']['most']} with the benchmark's own; {whole['measured_at'][:10]}, "
        f"commit {whole['commit'].split()[0]}. "
        "For each system: thousand events/s at steady state, seconds of the whole query from its start, cores in use, "
        "memory of the process in MB.",
        "",
        "![Events a second of each query by system](../docs/images/nexmark.svg)",
        "",
        f"| query | {' | '.join(titles)} | times PySpark | times Flink |",
        f"| --- |{' ---: |' * (len(titles) + 2)}",
    ]
    for query, one in found["queries"].items():
        cells = [_cell(one[system]) if system in one else "-" for system in systems]
        ratios = [_ratio(one, systems[0], other) for other in ("pyspark", "flink")]
        lines.append(f"| {query} | {' | '.join([*cells, *ratios])} |")
    starts = (f"{SYSTEMS[name]} {took:.1f} s" for name, took in found["start_s"].items())
    lines += ["", f"The processes were up after: {', '.join(starts)}.", ""]
    if found["cold"]:
        lines += [
            f"| one query, a process of its own: seconds, MB | {' | '.join(titles)} |",
            f"| --- |{' ---: |' * len(titles)}",
        ]
        for query, one in found["cold"].items():
            cells = [
                f"{one[s]['seconds']:.1f}, {one[s]['peak_mb']:,}" if s in one else "-"
                for s in systems
            ]
            lines.append(f"| {query} | {' | '.join(cells)} |")
    return lines


def _cell(one: dict[str, Any]) -> str:
    rate = "-" if one["events_per_s"] is None else f"{one['events_per_s'] / 1000:,.0f}"
    return f"**{rate}**, {one['seconds']:.1f} s, {one['cores']:.1f}, {one['peak_mb']:,}"


# The picture

WIDTH, LEFT, BAR, GAP, HEAD = 760, 44, 9, 9, 52


def picture(queries: dict[str, Any]) -> str:
    """Return bars of events a second, by query and system, for light and dark pages."""
    systems = [name for name in SYSTEMS if any(name in one for one in queries.values())]
    rates = [one["events_per_s"] or 0 for by in queries.values() for one in by.values()]
    most = max(*rates, 1)
    room = WIDTH - LEFT - 66
    parts, y = [], HEAD
    for query, by_system in queries.items():
        tall = BAR * len(systems)
        parts.append(
            f'<text class="name end" x="{LEFT - 8}" y="{y + tall / 2 + 4:.0f}">{query}</text>'
        )
        for place, system in enumerate(systems):
            top = y + place * BAR
            rate = by_system.get(system, {}).get("events_per_s")
            long = 0 if rate is None else rate / most * room
            told = "too quick to tell" if system in by_system else "cannot"
            told = told if rate is None else f"{rate / 1000:,.0f}"
            parts.append(
                f'<rect class="{system}" x="{LEFT}" y="{top}" width="{long:.1f}" height="{BAR - 1}" rx="1.5"/>'
                f'<text class="small" x="{LEFT + long + 5:.1f}" y="{top + 7.5}">{told}</text>'
            )
        y += tall + GAP
    legend = [
        f'<rect class="{system}" x="{LEFT + place * 170}" y="28" width="11" height="11" rx="2"/>'
        f'<text class="name" x="{LEFT + 17 + place * 170}" y="38">{SYSTEMS[system]}</text>'
        for place, system in enumerate(systems)
    ]
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {y}" role="img" ',
            f'aria-label="events a second of each query by system"><style>{_style()}</style>',
            f'<rect class="page" width="{WIDTH}" height="{y}" rx="6"/>',
            '<text class="name" x="8" y="17">thousand events a second, once everything runs</text>',
            *legend,
            *parts,
            "</svg>\n",
        ]
    )


def _style() -> str:
    light, dark = (
        "".join(f"rect.{name}{{fill:{pair[shade]}}}" for name, pair in COLOURS.items())
        for shade in (0, 1)
    )
    return (
        "text{font:12px system-ui,sans-serif;fill:#59636e}.name{fill:#1f2328}.small{font-size:9px}"
        f".end{{text-anchor:end}}.page{{fill:#ffffff}}{light}@media (prefers-color-scheme:dark){{"
        f"text{{fill:#9198a1}}.name{{fill:#f0f6fc}}.page{{fill:#0d1117}}{dark}}}"
    )
