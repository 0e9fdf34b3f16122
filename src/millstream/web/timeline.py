"""A timeline of spans and events in lanes: one self-contained SVG, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from millstream.graph.style import FONT, sheet
from millstream.web import scale
from millstream.web.picture import Picture
from millstream.web.plots import FULL

_MARGIN, _AXIS, _PITCH, _PAD = 24.0, 30.0, 20.0, 7.0
_RADIUS, _THICK = 4.5, 6.0
#: The number of colours of events; a seventh name has the first again.
COLOURS = 6
_LONGEST = 24
_RULES = (
    (".page", "fill:#ffffff", "fill:#0d1117"),
    (".band", "fill:#f6f8fa", "fill:#151b23"),
    (".tick", "stroke:#eaeef2", "stroke:#232a33"),
    (".span", "fill:#c8d1da", "fill:#3d444d"),
    (".open", "fill:none;stroke:#afb8c1;stroke-dasharray:3 3", "stroke:#656c76"),
    (".dot", "stroke:#ffffff;stroke-width:1.2", "stroke:#0d1117"),
    (".c1", "fill:#0b69c7", "fill:#58a6ff"),
    (".c2", "fill:#d4700a", "fill:#f0973c"),
    (".c3", "fill:#11936f", "fill:#2fbf94"),
    (".c4", "fill:#8250df", "fill:#b083f0"),
    (".c5", "fill:#cf222e", "fill:#f85149"),
    (".c6", "fill:#8c6a00", "fill:#d4a72c"),
    (".faint", "fill-opacity:0.3", ""),
    ("text", f"font-family:{FONT};font-size:12px;fill:#59636e", "fill:#9198a1"),
    (".title", "font-size:16px;font-weight:600;fill:#1f2328", "fill:#f0f6fc"),
    (".lane", "fill:#1f2328;text-anchor:end", "fill:#f0f6fc"),
    (".middle", "text-anchor:middle", ""),
    (".end", "text-anchor:end", ""),
    ("g:hover>.span", "fill:#9aa5b1", "fill:#656c76"),
)


@dataclass(frozen=True, slots=True)
class Dot:
    """An event: its time in seconds since 1970, and its name, which decides its colour."""

    at: float
    name: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A bar in a lane, from its first event to its last, or to `until`; `open` if it timed out."""

    lane: str
    dots: Sequence[Dot]
    said: str = ""
    until: float | None = None
    open: bool = False

    @property
    def begin(self) -> float:
        return min(dot.at for dot in self.dots)

    @property
    def end(self) -> float:
        return max([dot.at for dot in self.dots] + ([] if self.until is None else [self.until]))


class Timeline(Picture):
    """A picture of a timeline."""


def timeline(spans: Sequence[Span], *, title: str, note: str = "", width: int = FULL) -> Timeline:
    """Draw spans in their lanes; spans that overlap are below each other.

    Args:
        spans: What is drawn.
        title: The title; none if it is empty.
        note: A note at the right.
        width: Of the picture, in pixels; it shrinks to fit.
    """
    return Timeline("".join(_Picture(spans, title, note, width).parts()), title)


class _Picture:
    """Computes the layout, then draws it."""

    def __init__(self, spans: Sequence[Span], title: str, note: str, width: int) -> None:
        self.title, self.note, self.width = title, note, float(width)
        self.head = 64.0 if title else 38.0
        names = dict.fromkeys(dot.name for span in spans for dot in span.dots)
        self.colours = {name: place % COLOURS + 1 for place, name in enumerate(names)}
        lanes = list(dict.fromkeys(span.lane for span in spans))
        self.left = _MARGIN + (
            14.0 + 6.6 * min(_LONGEST, max(map(len, lanes), default=0)) if any(lanes) else 0.0
        )
        begin, end = (
            min((s.begin for s in spans), default=0.0),
            max((s.end for s in spans), default=1.0),
        )
        # Space at both sides, so that no event is on the border.
        aside = (end - begin) * 0.02 or 1.0
        self.low, self.high = begin - aside, end + aside
        by_lane = groupby(sorted(spans, key=lambda s: lanes.index(s.lane)), key=lambda s: s.lane)
        self.lanes = [
            (lane, self._rows(sorted(own, key=lambda s: s.begin))) for lane, own in by_lane
        ]

    def _rows(self, spans: Sequence[Span]) -> list[list[Span]]:
        """Distribute the spans of a lane over as few rows as possible without overlaps."""
        rows: list[list[Span]] = []
        for span in spans:
            row = next(
                (
                    row
                    for row in rows
                    if self.px(row[-1].end) + 2 * _RADIUS + 3 <= self.px(span.begin)
                ),
                None,
            )
            if row is None:
                rows.append([span])
            else:
                row.append(span)
        return rows

    def px(self, at: float) -> float:
        return self.left + (at - self.low) / (self.high - self.low) * (
            self.width - self.left - _MARGIN
        )

    @property
    def ground(self) -> float:
        """The y coordinate of the end of the lanes."""
        return self.head + sum(_height(rows) for _, rows in self.lanes)

    def parts(self) -> Iterator[str]:
        wide, high = f"{self.width:.0f}", f"{self.ground + _AXIS:.0f}"
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" viewBox="0 0 {wide} {high}" width="{wide}" '
        yield f'height="{high}" role="img" aria-label="{escape(self.title)}" style="max-width:100%;height:auto">'
        yield f"<style>{sheet('timeline', _RULES)}</style>"
        yield f'<rect class="page" width="{wide}" height="{high}" rx="12"/>'
        yield (
            f'<text class="title" x="{_MARGIN}" y="28">{escape(self.title)}</text>'
            if self.title
            else ""
        )
        yield f'<text class="end" x="{self.width - _MARGIN}" y="{28 if self.title else 24}">{escape(self.note)}</text>'
        yield from self._legend()
        yield from self._bands()
        if self.lanes:
            yield from self._axis()
        yield from self._spans()
        yield "</svg>"

    def _legend(self) -> Iterator[str]:
        x = _MARGIN
        for name, colour in self.colours.items():
            yield f'<circle class="dot c{colour}" cx="{x + _RADIUS:.1f}" cy="{self.head - 18}" r="{_RADIUS}"/>'
            yield f'<text x="{x + 15:.1f}" y="{self.head - 14}">{escape(_short(name))}</text>'
            x += 34 + 6.6 * len(_short(name))

    def _bands(self) -> Iterator[str]:
        y = self.head
        for place, (lane, rows) in enumerate(self.lanes):
            tall = _height(rows)
            if place % 2 == 0:
                wide = self.width - 2 * _MARGIN + 16
                yield f'<rect class="band" x="{_MARGIN - 8}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" rx="6"/>'
            said = f"<title>{escape(lane)}</title>" if len(lane) > _LONGEST else ""
            middle = y + tall / 2 + 4
            yield f'<text class="lane" x="{self.left - 14:.1f}" y="{middle:.1f}">{escape(_short(lane))}{said}</text>'
            y += tall

    def _axis(self) -> Iterator[str]:
        for tick in scale.ticks(
            "date", self.low, self.high, about=max(3, int(self.width - self.left) // 90)
        ):
            x = f"{self.px(tick.at):.1f}"
            if self.px(tick.at) + 3.3 * len(tick.label) > self.width or self.px(
                tick.at
            ) < 3.3 * len(tick.label):
                continue  # its label would be cut off
            yield f'<line class="tick" x1="{x}" x2="{x}" y1="{self.head}" y2="{self.ground + 5:.1f}"/>'
            yield f'<text class="middle" x="{x}" y="{self.ground + 20:.1f}">{escape(tick.label)}</text>'

    def _spans(self) -> Iterator[str]:
        y = self.head
        for _, rows in self.lanes:
            for place, row in enumerate(rows):
                for span in row:
                    yield from self._span(span, y + _PAD + _PITCH * (place + 0.5))
            y += _height(rows)

    def _span(self, span: Span, y: float) -> Iterator[str]:
        begin, end = self.px(span.begin), self.px(span.end)
        yield f"<g><title>{escape(span.said)}</title>"
        yield f'<rect class="{"open" if span.open else "span"}" x="{begin:.1f}" y="{y - _THICK / 2:.1f}" '
        yield f'width="{max(1.0, end - begin):.1f}" height="{_THICK}" rx="{_THICK / 2}"/>'
        for dot in span.dots:
            said = f"<title>{escape(dot.said)}</title>" if dot.said else ""
            place = f'cx="{self.px(dot.at):.1f}" cy="{y:.1f}" r="{_RADIUS}"'
            kind = f"dot c{self.colours[dot.name]}{' faint' if span.open else ''}"
            yield f'<circle class="{kind}" {place}>{said}</circle>'
        yield "</g>"


def _height(rows: Sequence[object]) -> float:
    return len(rows) * _PITCH + 2 * _PAD


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
