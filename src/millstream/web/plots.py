"""Plots as inline SVG: lines, bars and heat maps, with the colours of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from millstream.web import scale
from millstream.web.scale import AxisKind, Tick

Point = tuple[float, float | None]
FULL, HALF, THIRD = 1040, 506, 328
_TOP, _BOTTOM, _RIGHT = 14.0, 26.0, 14.0
#: The steps of a heat map's colours.
SHADES = 8


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its points in the order of x; y is None at a gap."""

    name: str
    points: Sequence[Point]
    colour: int = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment to point out, or, with `until`, an interval."""

    x: float
    label: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and the meaning of its colours."""

    svg: str
    legend: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Frame:
    """The mapping from data to pixels."""

    width: int
    height: int
    left: float
    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, x: float) -> float:
        low, high = self.x
        return self.left + (x - low) / ((high - low) or 1.0) * (self.width - self.left - _RIGHT)

    def py(self, y: float) -> float:
        low, high = self.y
        return (
            self.height
            - _BOTTOM
            - (y - low) / ((high - low) or 1.0) * (self.height - _TOP - _BOTTOM)
        )


def lines(
    series: Sequence[Series],
    *,
    x: AxisKind = "number",
    unit: str = "",
    marks: Sequence[Mark] = (),
    width: int = FULL,
    height: int = 250,
    filled: bool = False,
    label: str = "",
) -> Plot:
    """Draw lines over one x axis; y starts at 0, or below if the data does.

    Args:
        series: The lines.
        x: What x is: "date" (seconds since 1970), "elapsed" (seconds), "hour" (of the day) or
            "number".
        unit: Of y, for the tooltips.
        marks: Moments to point out.
        width: Of the picture, in pixels; it shrinks to fit.
        height: The same.
        filled: Fill the space below a line.
        label: A description for screen readers.
    """
    frame = _frame(series, marks, width, height)
    parts = [
        *_grid(frame, x),
        *(_mark(frame, mark) for mark in marks),
        *(_line(frame, one, filled=filled) for one in series),
        f'<line class="cross" y1="{_TOP:.0f}" y2="{height - _BOTTOM:.0f}"/>',
    ]
    hover = escape(json.dumps(_hover(frame, series, x, unit), separators=(",", ":")), quote=True)
    legend = tuple((one.name, one.colour) for one in series) if len(series) > 1 else ()
    return Plot(
        _svg(width, height, "".join(parts), label, f' class="plot lines" data-hover="{hover}"'),
        legend,
    )


def _frame(series: Sequence[Series], marks: Sequence[Mark], width: int, height: int) -> _Frame:
    xs = [x for one in series for x, _ in one.points] + [mark.x for mark in marks]
    ys = [y for one in series for _, y in one.points if y is not None]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    top = scale.rounded_up(high)
    bottom = 0.0 if low >= 0 else -scale.rounded_up(-low)
    longest = max(len(tick.label) for tick in scale.ticks("number", bottom, top, 5))
    left = 14.0 + 6.4 * longest
    return _Frame(width, height, left, (min(xs, default=0.0), max(xs, default=1.0)), (bottom, top))


def _grid(frame: _Frame, kind: AxisKind) -> list[str]:
    parts = []
    for tick in scale.ticks("number", *frame.y, about=5):
        y = frame.py(tick.at)
        zero = ' class="zero"' if tick.at == 0 else ""
        parts.append(
            f'<line{zero} x1="{frame.left:.1f}" x2="{frame.width - _RIGHT:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="end" x="{frame.left - 8:.1f}" y="{y + 4:.1f}">{tick.label}</text>'
        )
    parts += [
        _below(frame, tick) for tick in scale.ticks(kind, *frame.x, about=max(3, frame.width // 85))
    ]
    return ['<g class="grid">', *parts, "</g>"]


def _below(frame: _Frame, tick: Tick) -> str:
    x = frame.px(tick.at)
    return f'<text class="middle" x="{x:.1f}" y="{frame.height - 8}">{escape(tick.label)}</text>'


def _line(frame: _Frame, series: Series, *, filled: bool) -> str:
    path, areas = [], []
    for run in _runs(series.points):
        places = [f"{frame.px(x):.1f} {frame.py(y):.1f}" for x, y in run]
        path.append("M" + "L".join(places) + ("h.1" if len(run) == 1 else ""))
        first, last, ground = (
            frame.px(run[0][0]),
            frame.px(run[-1][0]),
            frame.py(max(0.0, frame.y[0])),
        )
        areas.append(
            f"M{first:.1f} {ground:.1f}L" + "L".join(places) + f"L{last:.1f} {ground:.1f}Z"
        )
    area = f'<path class="area c{series.colour}" d="{"".join(areas)}"/>' if filled else ""
    return f'{area}<path class="line c{series.colour}" d="{"".join(path)}"/>'


def _runs(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Return the parts of a line between gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None:
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _mark(frame: _Frame, mark: Mark) -> str:
    x, top, ground = frame.px(mark.x), _TOP, frame.height - _BOTTOM
    band = ""
    if mark.until is not None:
        wide = max(0.0, frame.px(mark.until) - x)
        band = f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{ground - top:.1f}"/>'
    # The label is on the side that has space for it.
    side = "end" if x > frame.width * 0.6 else "start"
    place = x - 6 if side == "end" else x + 6
    text = f'<text class="{side}" x="{place:.1f}" y="{top + 11}">{escape(mark.label)}</text>'
    return f'<g class="mark">{band}<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{ground}"/>{text}</g>'


def _hover(frame: _Frame, series: Sequence[Series], kind: AxisKind, unit: str) -> dict[str, object]:
    xs = sorted({x for one in series for x, _ in one.points})
    found = []
    for one in series:
        known = {x: y for x, y in one.points if y is not None}
        values = [known.get(x) for x in xs]
        places = [None if value is None else round(frame.py(value), 1) for value in values]
        texts = [
            None if value is None else f"{_precise(value)}{f' {unit}' if unit else ''}"
            for value in values
        ]
        found.append({"name": one.name, "colour": one.colour, "y": places, "text": texts})
    return {
        "x": [round(frame.px(x), 1) for x in xs],
        "at": [scale.written(kind, x) for x in xs],
        "series": found,
    }


def _precise(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


def bars(
    values: Sequence[tuple[str, float, str]],
    *,
    unit: str = "",
    width: int = HALF,
    colour: int = 1,
    label: str = "",
) -> Plot:
    """Draw horizontal bars from (name, value, note); the note is after the value."""
    pitch, thick = 34, 16
    left = 14.0 + 6.6 * max((len(name) for name, _, _ in values), default=0)
    # Space for the text after the longest bar.
    behind = 20.0 + 6.4 * max(
        (len(_behind(value, unit, note)) for _, value, note in values), default=0
    )
    most = max((value for _, value, _ in values), default=1.0) or 1.0
    parts = []
    for row, (name, value, note) in enumerate(values):
        y = 6 + row * pitch
        long = max(2.0, value / most * (width - left - behind))
        parts.append(
            f'<text class="end name" x="{left - 8:.1f}" y="{y + thick - 3}">{escape(name)}</text>'
        )
        parts.append(f'<path class="bar c{colour}" d="{_rounded(left, y, long, thick)}"/>')
        parts.append(
            f'<text x="{left + long + 8:.1f}" y="{y + thick - 3}"><tspan class="name">{_precise(value)}'
            f"{f' {escape(unit)}' if unit else ''}</tspan> {escape(note)}</text>"
        )
    return Plot(_svg(width, len(values) * pitch + 2, "".join(parts), label, ' class="plot"'))


def _behind(value: float, unit: str, note: str) -> str:
    return f"{_precise(value)} {unit} {note}"


def _rounded(x: float, y: float, long: float, thick: float) -> str:
    """Return a bar with a square start and a round end."""
    r = min(4.0, long)
    return (
        f"M{x:.1f} {y}h{long - r:.1f}q{r} 0 {r} {r}v{thick - 2 * r}q0 {r} -{r} {r}h-{long - r:.1f}z"
    )


def heat(
    cells: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    low: float,
    high: float,
    said: Callable[[int, int, float], str],
    width: int = THIRD,
    label: str = "",
) -> Plot:
    """Draw a grid of shades between `low` and `high`; several with the same bounds can be compared.

    Args:
        cells: Rows of values; None is left blank.
        rows: Their names.
        columns: Names of the columns; those that fit are shown.
        low: The value of the first shade, and everything below.
        high: The value of the last shade, and everything above.
        said: The tooltip of a cell, by row, column and value.
        width: Of the picture; a few columns do not fill it.
        label: A description for screen readers.
    """
    left, pitch = 34.0, 17.0
    wide = min(19.0, (width - left - 2) / max(1, len(columns)))
    parts = [
        f'<text class="end" x="{left - 6}" y="{2 + r * pitch + 12:.1f}">{escape(name)}</text>'
        for r, name in enumerate(rows)
    ]
    for r, values in enumerate(cells):
        for c, value in enumerate(values):
            if value is not None:
                place = f'x="{left + c * wide:.1f}" y="{2 + r * pitch:.1f}" width="{wide - 1:.1f}" height="{pitch - 1:.1f}"'
                title = f"<title>{escape(said(r, c, value))}</title>"
                parts.append(
                    f'<rect class="cell h{_shade(value, low, high)}" {place}>{title}</rect>'
                )
    ground = 2 + len(cells) * pitch + 14
    for c in _with_room(columns, wide):
        x = left + (c + 0.5) * wide
        parts.append(
            f'<text class="middle" x="{x:.1f}" y="{ground:.1f}">{escape(columns[c])}</text>'
        )
    return Plot(_svg(width, int(ground + 6), "".join(parts), label, ' class="plot"'))


def _with_room(names: Sequence[str], wide: float) -> list[int]:
    """Return the columns whose names fit beside each other."""
    found: list[int] = []
    for place, name in enumerate(names):
        if name and (
            not found or (place - found[-1]) * wide >= 7 * max(len(name), len(names[found[-1]])) + 4
        ):
            found.append(place)
    return found


def _shade(value: float, low: float, high: float) -> int:
    share = (value - low) / ((high - low) or 1.0)
    return max(0, min(SHADES - 1, int(share * SHADES)))


def _svg(width: int, height: int, inner: str, label: str, extra: str) -> str:
    said = f' aria-label="{escape(label, quote=True)}"' if label else ""
    return f'<svg viewBox="0 0 {width} {height}" role="img"{said}{extra}>{inner}</svg>'
