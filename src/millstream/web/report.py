"""A report: one HTML file with numbers, checks, the flow's graph and plots."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Final, Literal

from millstream.web.plots import Plot

Width = Literal["full", "half", "third"]
_MOST_IN_A_ROW: Final = 6


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and a note on what it means."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and what was found."""

    promise: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its title and a description."""

    title: str
    plot: Plot
    text: str = ""
    width: Width = "full"


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together."""

    title: str
    text: str = ""
    figures: Sequence[Figure] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A report from top to bottom; `graph` is an SVG picture, `facts` are in the footer."""

    title: str
    text: str
    made_at: datetime
    numbers: Sequence[Number] = ()
    checks: Sequence[Check] = ()
    graph: str | None = None
    sections: Sequence[Section] = ()
    facts: Sequence[tuple[str, str]] = ()

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return all(check.ok for check in self.checks)


def html(report: Report) -> str:
    """Return the report as a page."""
    return "\n".join(_page(report))


def write(report: Report, path: Path) -> None:
    """Write the page; a reader finds the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(html(report), encoding="utf-8")
    temporary.replace(path)


def _page(report: Report) -> Iterator[str]:
    yield f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<link rel="icon" href="data:,">
<style>
{_asset("report.css")}</style>
</head>
<body>
<main>"""
    yield from _header(report)
    yield from _numbers(report.numbers)
    yield from _checks(report.checks)
    yield from _graph(report.graph)
    for section in report.sections:
        yield from _section(section)
    yield from _footer(report)
    yield f"""</main>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _header(report: Report) -> Iterator[str]:
    yield "<header>"
    if report.checks:
        kept = sum(check.ok for check in report.checks)
        kind, sign = ("good", "✓") if report.ok else ("bad", "✗")
        yield f'<p class="verdict {kind}"><b>{sign}</b> {kept} of {len(report.checks)} promises kept</p>'
    yield f"<h1>{escape(report.title)}</h1>"
    yield f'<p class="lead">{escape(report.text)}</p>'
    yield "</header>"


def _numbers(numbers: Sequence[Number]) -> Iterator[str]:
    if not numbers:
        return
    # None stands alone in a second row.
    row = len(numbers) if len(numbers) <= _MOST_IN_A_ROW else ceil(len(numbers) / 2)
    yield f'<dl class="numbers" style="--row: {row}">'
    for one in numbers:
        note = f"<dd>{escape(one.note)}</dd>" if one.note else ""
        yield f'<div><dt>{escape(one.label)}</dt><dd class="value">{escape(one.value)}</dd>{note}</div>'
    yield "</dl>"


def _checks(checks: Sequence[Check]) -> Iterator[str]:
    if not checks:
        return
    yield '<section><h2>Promises</h2><table class="checks"><tbody>'
    for check in checks:
        kind, sign, verdict = ("good", "✓", "kept") if check.ok else ("bad", "✗", "broken")
        yield (
            f'<tr><td class="{kind}" title="{verdict}" aria-label="{verdict}">{sign}</td>'
            f"<th>{escape(check.promise)}</th><td>{escape(check.found)}</td></tr>"
        )
    yield "</tbody></table></section>"


def _graph(svg: str | None) -> Iterator[str]:
    if svg is None:
        return
    # As an image, so that its styles do not mix with those of the page.
    data = base64.b64encode(svg.encode()).decode()
    yield '<section><h2>The flow</h2><div class="graph">'
    yield f'<img alt="the flow\'s graph" src="data:image/svg+xml;base64,{data}">'
    yield "</div></section>"


def _section(section: Section) -> Iterator[str]:
    yield f"<section><h2>{escape(section.title)}</h2>"
    if section.text:
        yield f"<p>{escape(section.text)}</p>"
    yield '<div class="figures">'
    for figure in section.figures:
        yield f'<figure class="{figure.width}"><figcaption><h3>{escape(figure.title)}</h3>'
        if figure.text:
            yield f"<p>{escape(figure.text)}</p>"
        yield "</figcaption>"
        yield from _legend(figure.plot.legend)
        yield f"{figure.plot.svg}</figure>"
    yield "</div></section>"


def _legend(legend: Sequence[tuple[str, int]]) -> Iterator[str]:
    if legend:
        keys = "".join(
            f'<li><i class="c{colour}"></i>{escape(name)}</li>' for name, colour in legend
        )
        yield f'<ul class="legend">{keys}</ul>'


def _footer(report: Report) -> Iterator[str]:
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in report.facts
    )
    made = report.made_at.strftime("%Y-%m-%d %H:%M %Z").strip()
    yield f"<footer><dl>{facts}<div><dt>made</dt><dd>{made}</dd></div></dl></footer>"


def _asset(name: str) -> str:
    return (files("millstream.web") / name).read_text(encoding="utf-8")
