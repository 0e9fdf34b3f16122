"""The picture of a run under load: lag, memory by process and disk over time, with kills and switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import switch_plot

from millstream.web import plots

IMAGE: Final = switch_plot.IMAGE.with_name("load.svg")
WIDTH, HEIGHT, HEAD = 720, 190, 44
#: A letter at the top of a line says what happened.
LETTERS: Final = {"driver": "D", "engine": "E", "producer": "P"}
NEAR_S: Final = 30.0
NOTE: Final = "killed with -9: D the driver, E the engine, P a producer; S: a switch begins"
PANELS: Final = (
    ("rows that wait", "lag, rows", ("",)),
    (
        "memory by process, MB",
        "memory, MB: ",
        ("Java", "driver", "workers", "engine", "producers", "spare"),
    ),
    ("disk without results, MB", "disk, MB: ", ("journals", "checkpoints", "other")),
)


def draw(found: Mapping[str, Any], path: Path = IMAGE) -> None:
    """Write the picture of a run."""
    happened = [(one["at"], LETTERS[one["victim"]]) for one in found["kills"]]
    happened += [(one["at"], "S") for one in found["switches"]]
    marks = _marks(sorted(happened))
    parts = [_panel(found["points"], marks, at, *panel) for at, panel in enumerate(PANELS)]
    height = len(PANELS) * (HEIGHT + HEAD) + 24
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{switch_plot.style(dots=False)}</style>",
        *parts,
        f'<text x="8" y="{height - 8}">{NOTE}</text>',
        f'<text class="end" x="{WIDTH - 14}" y="{height - 8}">minutes</text>',
        "</svg>\n",
    ]
    path.write_text("".join(svg))


def _marks(happened: Sequence[tuple[float, str]]) -> list[plots.Mark]:
    """Return what happened as marks, one for what happened at nearly the same time."""
    found: list[tuple[float, str]] = []
    for at, letter in happened:
        if found and at - found[-1][0] < NEAR_S:
            found[-1] = found[-1][0], f"{found[-1][1]}, {letter}"
        else:
            found.append((at, letter))
    return [plots.Mark(at / 60, letters) for at, letters in found]


def _panel(
    points: Mapping[str, Sequence[tuple[float, float]]],
    marks: Sequence[plots.Mark],
    place: int,
    title: str,
    begin: str,
    names: Sequence[str],
) -> str:
    series = [
        plots.Series(name, [(at / 60, value) for at, value in points[f"{begin}{name}"]], colour)
        for colour, name in enumerate(names, 1)
        if any(value for _, value in points.get(f"{begin}{name}", ()))
    ]
    plot = plots.lines(series, marks=marks, width=WIDTH, height=HEIGHT, label=title)
    inside = plot.svg.partition(">")[2].removesuffix("</svg>")
    top = place * (HEIGHT + HEAD)
    legend = [
        switch_plot.legend(at, one.name, one.colour, pitch=105) for at, one in enumerate(series)
    ]
    return (
        f'<g transform="translate(0 {top})"><text class="name" x="8" y="16">{title}</text>'
        f"{''.join(legend) if len(series) > 1 else ''}"
        f'<g transform="translate(0 {HEAD})">{inside}</g></g>'
    )
