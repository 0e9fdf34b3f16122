"""`show`: the graph of a flow, or of a job as it runs, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidOption
from millstream.flow.flow import Flow
from millstream.flow.site import here
from millstream.graph.lines import text_width
from millstream.graph.style import sheet
from millstream.plan.drawing import Drawing, Node
from millstream.plan.groups import plan
from millstream.plan.picture import MARKER, RULES, svg
from millstream.web import scale
from millstream.web.picture import Picture

if TYPE_CHECKING:
    from millstream.engine.jobs.status import JobStatus

_MARGIN, _HEAD, _PLOT, _GAP, _FOOT = 24.0, 56.0, 90.0, 40.0, 20.0
_COLOURS: Final = ("#0b6e79", "#c2571a", "#6a4fc0", "#2f7d32", "#b0306e", "#4a6178")
_MORE: Final = (
    (".rate", "font-size:11px;text-anchor:middle;font-weight:600", ""),
    (".middle", "text-anchor:middle", ""),
    (".line", "fill:none;stroke-width:1.75", ""),
    (".ground", "stroke:#d0d7de", "stroke:#3d444d"),
    (".mark", "stroke:#8a5cc4;stroke-dasharray:4 4", "stroke:#b894ea"),
)
#: What is plotted of each group, and its unit.
_PLOTS: Final = {
    "rows_in": "rows in per second",
    "lag_rows": "lag in rows",
    "batch_seconds": "batch time in s",
}


def show(
    what: Flow | JobStatus | str, *, engine: str = "http://127.0.0.1:8340", token: str | None = None
) -> Picture:
    """Draw the graph of a flow, or of a job with its rates and its last hour.

        ms.show(flow)                                # in a notebook
        ms.show("shop", engine="http://host:8340")   # a job, as it is now
        ms.show(flow).save("flow.svg")

    Args:
        what: A flow, a job as `Cluster.deploy` returns it, or the name of a job.
        engine: Where the job runs: the address of an engine, or of `millstream run --page`.
        token: A token that may look; that of an engine of yours on this host is found.
    """
    if isinstance(what, Flow):
        return Picture(svg(plan(what)), what.name)
    from millstream.engine.jobs.status import Happening, JobStatus

    name = what.name if isinstance(what, JobStatus) else what
    if not isinstance(name, str):
        msg = f"a {type(what).__name__} cannot be shown"
        raise InvalidOption(msg, hint="give a flow, or the name of a job", where=here())
    from millstream.cluster.client import EngineClient, job_path
    from millstream.engine.jobs.pulse import Series

    asked = EngineClient(engine, token)
    drawn = asked.get(job_path(name, "graph"), Drawing)
    series = asked.get(job_path(name, "series"), Series)
    happened = asked.get(job_path(name, "history"), list[Happening])
    status = asked.get(job_path(name), JobStatus)
    head = f"{status.state}, version {status.version}, {status.unprocessed:,} rows behind"
    marks = [(datetime.fromisoformat(one.at).timestamp(), one.what) for one in happened]
    return Picture("".join(_parts(drawn, series.at, series.groups, marks, head)), name)


Numbers = dict[str, dict[str, list[float | None]]]
#: When something happened, in seconds since 1970, and what.
Marks = Sequence[tuple[float, str]]


def _parts(
    drawn: Drawing, at: Sequence[float], groups: Numbers, marks: Marks, head: str
) -> Iterator[str]:
    width = max(drawn.width, 640.0) + 2 * _MARGIN
    height = drawn.height + _HEAD + 2 * _MARGIN + _PLOT + _GAP + _FOOT
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="flow" viewBox="0 0 {width:.0f} {height:.0f}" '
    yield f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(drawn.flow)}">'
    yield f"<style>{sheet('flow', (*RULES, *_MORE))}</style>{MARKER}"
    yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="12"/>'
    yield f'<text class="title" x="{_MARGIN}" y="32">{escape(drawn.flow)}</text>'
    yield f'<text class="small" x="{_MARGIN}" y="50">{escape(head)}</text>'
    yield f'<g transform="translate({_MARGIN:.0f} {_HEAD + 8:.0f})">'
    boxes = sorted(drawn.nodes, key=lambda one: one.kind != "group")
    for one in boxes:
        if one.kind == "group":
            yield from _node(one)
    for arrow in drawn.arrows:
        tip = "" if arrow.target.startswith("group ") else ' marker-end="url(#millstream-tip)"'
        yield f'<path class="edge" d="{arrow.path}"{tip}/>'
    for one in boxes:
        if one.kind != "group":
            yield from _node(one)
    for arrow in drawn.arrows:
        rate = _rate(groups, arrow.source, arrow.target)
        if rate is not None:
            yield f'<text class="rate" x="{arrow.x}" y="{arrow.y - 6}">{rate:,.1f} /s</text>'
    yield "</g>"
    wide = (width - 2 * _MARGIN - 2 * _GAP) / 3
    for place, (number, title) in enumerate(_PLOTS.items()):
        x, y = _MARGIN + place * (wide + _GAP), drawn.height + _HEAD + _GAP
        yield f'<g transform="translate({x:.1f} {y:.1f})">'
        lines = {name: one.get(number, []) for name, one in groups.items()}
        yield from _plot(at, lines, marks, title, wide)
        yield "</g>"
    yield from _legend(groups, height - _MARGIN)
    yield "</svg>"


def _node(one: Node) -> Iterator[str]:
    kind = {"stage": "stateful" if one.state else "node"}.get(one.kind, one.kind)
    place = f'x="{one.x}" y="{one.y}" width="{one.width}" height="{one.height}"'
    yield f'<rect class="{kind}" {place} rx="{10 if one.kind == "group" else 7}"/>'
    if one.kind == "group":
        yield f'<text class="name" x="{one.x + 12}" y="{one.y + 20}">{escape(one.name)}</text>'
        return
    middle = one.x + one.width / 2
    yield f'<text class="name middle" x="{middle:.1f}" y="{one.y + 18}">{escape(one.name)}</text>'
    yield f'<text class="small middle" x="{middle:.1f}" y="{one.y + 33}">{escape(one.detail)}</text>'


def _rate(groups: Numbers, source: str, target: str) -> float | None:
    """Return how many rows a second go along an edge now."""
    for end, number in ((target, "rows_in"), (source, "rows_out")):
        kind, _, name = end.partition(" ")
        values = groups.get(name, {}).get(number, [])
        if kind == "group" and values:
            return values[-1]
    return None


def _legend(groups: Numbers, y: float) -> Iterator[str]:
    """Yield the colour of each group, and of what happened."""
    x = _MARGIN
    for place, name in enumerate(groups):
        yield f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" rx="2" fill="{_colour(place)}"/>'
        yield f'<text class="small" x="{x + 15:.1f}" y="{y}">{escape(name)}</text>'
        x += 15 + text_width(name, 11) + 18
    yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 11}" y2="{y + 2}"/>'
    yield f'<text class="small" x="{x + 8:.1f}" y="{y}">what happened to the job; times are UTC</text>'


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _plot(
    at: Sequence[float],
    lines: dict[str, list[float | None]],
    marks: Marks,
    title: str,
    wide: float,
) -> Iterator[str]:
    top = max((value for one in lines.values() for value in one if value is not None), default=0.0)
    first, span = (at[0], at[-1] - at[0] or 1.0) if at else (0.0, 1.0)
    yield f'<text class="name" y="-8">{title}, at most {top:,.1f}</text>'
    yield f'<line class="ground" x2="{wide:.1f}" y1="{_PLOT}" y2="{_PLOT}"/>'
    for tick in scale.ticks("date", first, first + span, about=3) if at else ():
        x = (tick.at - first) / span * wide
        yield f'<text class="small middle" x="{x:.1f}" y="{_PLOT + 15}">{tick.label}</text>'
    for moment, what in marks:
        if at and first <= moment <= first + span:
            x = (moment - first) / span * wide
            yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y2="{_PLOT}"><title>{escape(what)}</title></line>'
    for place, (name, values) in enumerate(lines.items()):
        points = " ".join(
            f"{(moment - first) / span * wide:.1f},{_PLOT - value / (top or 1.0) * (_PLOT - 8):.1f}"
            for moment, value in zip(at, values, strict=False)
            if value is not None
        )
        yield f'<polyline class="line" stroke="{_colour(place)}" points="{points}"><title>{escape(name)}</title></polyline>'
