"""The picture of the switch: when the results of each window were visible, and how long after its end, by system."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from millstream.web import plots

IMAGE: Final = Path(__file__).parents[1] / "docs" / "images" / "switch.svg"
NAMES: Final = {
    "millstream": "Millstream, switch",
    "pyspark": "PySpark, stop and restart",
    "flink": "Flink, savepoint and restart",
}
WIDTH, HEIGHT, HEAD = 720, 260, 44
COLOURS: Final = {
    1: "#0b69c7",
    2: "#d4700a",
    3: "#11936f",
    4: "#8250df",
    5: "#bf3989",
    6: "#9a6700",
}


def style(*, dots: bool) -> str:
    """Return the style of a picture with lines, with a dot at each point or without."""
    marked = "marker:url(#dot{number})" if dots else ""
    return (
        "text{font:12px system-ui,sans-serif;fill:#57606a}.name{fill:#1f2328}.end{text-anchor:end}.middle{text-anchor:middle}"
        ".grid line{stroke:#d8dee4}.mark line{stroke:#57606a;stroke-dasharray:3 3}.cross{display:none}.line{fill:none;stroke-width:2}"
        + "".join(
            f".line.c{number}{{stroke:{colour};{marked.format(number=number)}}}circle.c{number}{{fill:{colour}}}"
            for number, colour in COLOURS.items()
        )
    )


def draw(results: dict[str, Any], window_s: int, path: Path = IMAGE) -> None:
    """Write the picture of the windows around the command."""
    around = (-4.5 * window_s, 5.5 * window_s)
    series = [
        plots.Series(
            NAMES[name],
            [(at, delay) for at, delay in one["points"] if around[0] <= at <= around[1]],
            place,
        )
        for place, (name, one) in enumerate(results.items(), 1)
    ]
    plot = plots.lines(
        series,
        marks=[plots.Mark(0.0, "the command")],
        width=WIDTH,
        height=HEIGHT,
        label="seconds from the end of a window to its results, by when they were visible",
    )
    inside = plot.svg.partition(">")[2].removesuffix("</svg>")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {HEIGHT + HEAD + 18}">',
        f"<style>{style(dots=True)}</style><defs>{''.join(_dot(number) for number in COLOURS)}</defs>",
        '<text class="name" x="8" y="16">seconds from the end of a window until its results were visible</text>',
        *(legend(place, one.name, one.colour) for place, one in enumerate(series)),
        f'<g transform="translate(0 {HEAD})">{inside}</g>',
        f'<text class="end" x="{WIDTH - 14}" y="{HEIGHT + HEAD + 10}">seconds after the command</text>',
        "</svg>\n",
    ]
    path.write_text("".join(parts))


def _dot(number: int) -> str:
    """Return the mark of a window on a line."""
    return f'<marker id="dot{number}" viewBox="-4 -4 8 8" markerWidth="4" markerHeight="4"><circle class="c{number}" r="3.5"/></marker>'


def legend(place: int, name: str, colour: int, pitch: int = 215) -> str:
    """Return the name of a line beside its colour, in a row of such names."""
    x = 14 + place * pitch
    return f'<circle class="c{colour}" cx="{x}" cy="34" r="5"/><text class="name" x="{x + 11}" y="38">{name}</text>'
