"""A plan as a picture: one SVG without anything from outside, for light and dark pages.

Journals are cylinders, groups are boxes with their stages inside, sinks stand at the end. Time runs
from left to right; a journal that is read further up (a cycle) is led back below everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from millstream.flow.durations import format as shown
from millstream.flow.flow import Flow
from millstream.flow.spec import Spec
from millstream.flow.stages import EntryPoint, Source, Stage
from millstream.flow.stages.forms import end_of
from millstream.graph.layout import Box, Edge, Layout, Size, layers, place
from millstream.graph.lines import rounded, text_width, through
from millstream.graph.style import FONT, sheet
from millstream.plan.groups import Group, Plan, journal_read

_NAME, _SMALL, _TITLE = 13.0, 11.0, 16.0
_PAD, _HEADER, _NODE = 16.0, 30.0, 42.0
_MARGIN, _HEAD = 24.0, 44.0
_GAP, _BETWEEN, _INNER_GAP, _INNER_BETWEEN = 22.0, 64.0, 14.0, 40.0
_BULGE, _BOLD = 7.0, 1.08

RULES = (
    (".page", "fill:#ffffff", "fill:#0d1117"),
    (".group", "fill:#f6f8fa;stroke:#d0d7de", "fill:#151b23;stroke:#3d444d"),
    (".node", "fill:#ffffff;stroke:#afb8c1", "fill:#212830;stroke:#656c76"),
    (".stateful", "fill:#fbf7ff;stroke:#a475f9", "fill:#2a2140;stroke:#a371f7"),
    (".journal", "fill:#ddf4ff;stroke:#54aeff", "fill:#0c2d4d;stroke:#388bfd"),
    (".sink", "fill:#dafbe1;stroke:#4ac26b", "fill:#12301c;stroke:#2ea043"),
    (".edge", "fill:none;stroke:#818b98;stroke-width:1.5", "stroke:#8b949e"),
    (".tip", "fill:#818b98", "fill:#8b949e"),
    ("text", f"font-family:{FONT};fill:#1f2328", "fill:#f0f6fc"),
    (".title", "font-size:16px;font-weight:600", ""),
    (".name", "font-size:13px;font-weight:500", ""),
    (".small", "font-size:11px;fill:#59636e", "fill:#9198a1"),
)


MARKER = (
    '<defs><marker id="millstream-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
    'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="tip" d="M0 0.5L8 4L0 7.5z"/></marker></defs>'
)


def svg(plan: Plan) -> str:
    """Return the plan as SVG text."""
    return Picture(plan).text()


@dataclass(frozen=True, slots=True)
class _Card:
    """What is written on a node."""

    name: str
    detail: str
    # A cylinder's end takes some room.
    extra: float = 0.0

    @property
    def size(self) -> Size:
        width = max(text_width(self.name, _NAME), text_width(self.detail, _SMALL))
        return Size(max(72.0, width + 2 * 12) + self.extra, _NODE, _NODE / 2)


@dataclass(frozen=True, slots=True)
class _Inside:
    """The layout inside a group's box, from the box's left upper corner."""

    group: Group
    cards: dict[str, _Card]
    layout: Layout
    edges: tuple[Edge, ...]
    size: Size

    def port(self, entry: str) -> float:
        """Return how far below the box's top an entry point is."""
        return _HEADER + self.layout.boxes[entry].middle


class Picture:
    """Places everything, then draws it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.flow = plan.flow
        self.inside = {f"group {group.name}": _inside(self.flow, group) for group in plan.groups}
        self.cards = dict(_outer_cards(plan))
        self.forward, self.back = _outer_edges(plan)
        # Edges that lead back run around everything, each a little further out.
        self.margin = _MARGIN + 4 * len(self.back)
        self.layout = place(
            {
                **{name: card.size for name, card in self.cards.items()},
                **{name: one.size for name, one in self.inside.items()},
            },
            self.forward,
            _outer_layers(plan, [*self.cards, *self.inside], self.forward),
            gap=_GAP,
            between=_BETWEEN,
        )

    def text(self) -> str:
        title, detail = self.flow.name, _summary(self.plan)
        headed = text_width(title, _TITLE) * _BOLD + text_width(detail, _SMALL) + 20
        width = max(self.layout.width, headed) + 2 * self.margin
        height = (
            self.layout.height
            + _HEAD
            + 2 * _MARGIN
            + (14.0 * len(self.back) + 10 if self.back else 0)
        )
        body = "\n".join(self.parts(title, detail))
        return (
            f'<svg class="millstream" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img" aria-label="{escape(title)}">\n'
            f"<style>{sheet('millstream', RULES)}</style>\n{MARKER}\n"
            f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="12"/>\n'
            f"{body}\n</svg>\n"
        )

    def parts(self, title: str, detail: str) -> Iterator[str]:
        yield _text(self.margin, _MARGIN + 14, title, "title")
        yield _text(
            self.margin + text_width(title, _TITLE) * _BOLD + 14, _MARGIN + 14, detail, "small"
        )
        yield f'<g transform="translate({self.margin:.0f} {_MARGIN + _HEAD:.0f})">'
        for name, one in self.inside.items():
            yield from _group_box(one, self.layout.boxes[name])
        yield from (self.curve(edge) for edge in self.forward)
        yield from (self.detour(edge, at) for at, edge in enumerate(self.back))
        for name, one in self.inside.items():
            yield from _group_content(self.flow, one, self.layout.boxes[name])
        for name, card in self.cards.items():
            yield from _outer_node(name, card, self.layout.boxes[name])
        yield "</g>"

    def heights(self, edge: Edge) -> tuple[float, float]:
        """Return the heights at which an edge leaves its source and enters its target."""
        source, target = edge
        first, last = self.layout.boxes[source], self.layout.boxes[target]
        leave = first.y + self.inside[source].size.axis if source in self.inside else first.middle
        enter = last.y + self.entry(source, target) if target in self.inside else last.middle
        return leave, enter

    def entry(self, journal: str, target: str) -> float:
        one = self.inside[target]
        read = [name for name in one.group.stages if _enters(self.flow, name)]
        name = journal.partition(" ")[2]
        return one.port(
            next(stage for stage in read if journal_read(self.flow.stages[stage]) == name)
        )

    def curve(self, edge: Edge) -> str:
        leave, enter = self.heights(edge)
        source, target = (self.layout.boxes[name] for name in edge)
        # An edge into a group ends at its border; the line inside has the tip.
        return _path(
            source, leave, self.layout.lanes[edge], target, enter, tip=edge[1] not in self.inside
        )

    def detour(self, edge: Edge, at: int) -> str:
        """Return an edge that leads back, below everything."""
        y, end_y = self.heights(edge)
        source, target = (self.layout.boxes[name] for name in edge)
        lane = self.layout.height + 16 + 14 * at
        out, back = source.right_end + 12 + 4 * at, target.left - 12 - 4 * at
        corners = [
            (source.right, y),
            (out, y),
            (out, lane),
            (back, lane),
            (back, end_y),
            (target.x, end_y),
        ]
        return f'<path class="edge" stroke-dasharray="5 4" d="{rounded(corners)}"/>'


def _inside(flow: Flow, group: Group) -> _Inside:
    entries = [name for name in group.stages if _enters(flow, name)]
    inner = [name for name in group.stages if name not in entries]
    edges = [(source, name) for name in inner for source in dict.fromkeys(flow.stages[name].inputs)]
    cards = {name: _Card(name, flow.stages[name].label) for name in inner}
    sizes = {
        **{name: Size(0.0, 12.0, 6.0) for name in entries},
        **{name: card.size for name, card in cards.items()},
    }
    layout = place(
        sizes, edges, layers([*entries, *inner], edges), gap=_INNER_GAP, between=_INNER_BETWEEN
    )
    title = text_width(group.name, _NAME) + text_width(about(group), _SMALL) + 2 * 12 + 12
    width = max(layout.width + (_INNER_BETWEEN / 2 if inner else 0), title)
    axis = _HEADER + layout.boxes[group.output].middle
    return _Inside(
        group, cards, layout, tuple(edges), Size(width, layout.height + _HEADER + _PAD, axis)
    )


def _enters(flow: Flow, name: str) -> bool:
    return isinstance(flow.stages[name], EntryPoint)


def _outer_cards(plan: Plan) -> Iterator[tuple[str, _Card]]:
    for use in plan.journals.values():
        if use.readers or use.kind == "group":
            yield (
                f"journal {use.name}",
                _Card(use.name, _journal_detail(plan.flow.stages[use.name]), 2 * _BULGE),
            )
    for sink in plan.flow.sinks.values():
        yield f"sink {sink.name}", _Card(sink.name, _detail(sink.target))


def _outer_edges(plan: Plan) -> tuple[list[Edge], list[Edge]]:
    """Return the edges that lead on, and those that lead back to an earlier group."""
    forward: list[Edge] = []
    back: list[Edge] = []
    written = {use.name for use in plan.journals.values() if use.kind == "source"}
    for group in plan.groups:
        for journal in group.inputs:
            (forward if journal in written else back).append(
                (f"journal {journal}", f"group {group.name}")
            )
        forward += [(f"group {group.name}", f"sink {name}") for name in group.sinks]
        if group.journal is not None:
            forward.append((f"group {group.name}", f"journal {group.journal}"))
            written.add(group.journal)
    return forward, back


def _outer_layers(plan: Plan, nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    order = [f"journal {use.name}" for use in plan.journals.values() if use.kind == "source"]
    for group in plan.groups:
        order += [f"group {group.name}", *(f"sink {name}" for name in group.sinks)]
        order += [f"journal {group.journal}"] if group.journal is not None else []
    found = layers([node for node in order if node in nodes], edges)
    for name in (node for node in found if node.startswith("journal ") and found[node] == 0):
        # A source stands right before the first group that reads it.
        found[name] = max(
            0, min((found[target] for source, target in edges if source == name), default=1) - 1
        )
    return found


def _group_box(one: _Inside, box: Box) -> Iterator[str]:
    yield _rect(box, "group", corner=10)
    yield _text(box.x + 12, box.y + 20, one.group.name, "name")
    yield _text(
        box.x + 12 + text_width(one.group.name, _NAME) + 10, box.y + 20, about(one.group), "small"
    )


def _group_content(flow: Flow, one: _Inside, box: Box) -> Iterator[str]:
    yield from (path for _, _, path in stage_paths(one, box))
    for name, card in one.cards.items():
        at = moved(one.layout.boxes[name], box)
        yield _rect(at, "stateful" if flow.stages[name].state else "node")
        yield from _written(card, at)


def stage_paths(one: _Inside, box: Box) -> Iterator[tuple[str, str, str]]:
    """Yield the lines inside a group's box: from which stage, to which, and the path."""
    at = {name: moved(inner, box) for name, inner in one.layout.boxes.items()}
    for source, target in one.edges:
        lanes = [moved(lane, box) for lane in one.layout.lanes[source, target]]
        path = _path(at[source], at[source].middle, lanes, at[target], at[target].middle)
        yield source, target, path
    last = at[one.group.output]
    path = f'<path class="edge" d="M{last.right:.1f} {last.middle:.1f}H{box.right:.1f}"/>'
    yield one.group.output, "", path


def moved(inner: Box, box: Box) -> Box:
    """Return a box inside a group's, in the coordinates of the whole."""
    left, right_end = box.x + inner.left, box.x + inner.right_end
    return Box(
        box.x + inner.x, box.y + _HEADER + inner.y, inner.width, inner.height, left, right_end
    )


def _outer_node(name: str, card: _Card, box: Box) -> Iterator[str]:
    yield _cylinder(box) if name.startswith("journal ") else _rect(box, "sink")
    yield from _written(card, box, -card.extra / 4)


def _rect(box: Box, kind: str, corner: int = 7) -> str:
    size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" {size} rx="{corner}"/>'


def _cylinder(box: Box) -> str:
    """Return a cylinder that lies on its side, as rows go through it."""
    bend, left, right, down = _BULGE, box.x, box.right, box.height
    outline = (
        f"M{left + bend:.1f} {box.y:.1f}H{right - bend:.1f}"
        f"a{bend} {down / 2:.1f} 0 0 1 0 {down:.1f}"
        f"H{left + bend:.1f}a{bend} {down / 2:.1f} 0 0 1 0 {-down:.1f}z"
    )
    rim = f"M{right - bend:.1f} {box.y:.1f}a{bend} {down / 2:.1f} 0 0 0 0 {down:.1f}"
    return (
        f'<path class="journal" d="{outline}"/><path class="journal" style="fill:none" d="{rim}"/>'
    )


def _written(card: _Card, box: Box, aside: float = 0.0) -> Iterator[str]:
    middle = box.x + box.width / 2 + aside
    yield _text(middle, box.y + 18, card.name, "name", centred=True)
    yield _text(middle, box.y + 33, card.detail, "small", centred=True)


def _text(x: float, y: float, text: str, kind: str, *, centred: bool = False) -> str:
    anchor = ' text-anchor="middle"' if centred else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'


def _path(
    source: Box, y: float, lanes: Sequence[Box], target: Box, to_y: float, *, tip: bool = True
) -> str:
    return (
        f'<path class="edge"{_TIP if tip else ""} d="{through(source, y, lanes, target, to_y)}"/>'
    )


_TIP = ' marker-end="url(#millstream-tip)"'


def _summary(plan: Plan) -> str:
    count = len(plan.groups)
    return (
        f"{count} group{'s' if count > 1 else ''}, switch interval {shown(plan.flow.switch_every)}"
    )


def about(group: Group) -> str:
    """Return what a group's title says besides its name."""
    if not group.stateful:
        return "no state"
    if group.handed_over:
        return "state handed over"
    if group.overlap is None:
        return "overlap open"
    return f"overlap {shown(group.overlap)}" if group.overlap else "no overlap"


def _journal_detail(stage: Stage) -> str:
    if isinstance(stage, Source):
        return _detail(stage.origin)
    return "journal"


def _detail(spec: Spec) -> str:
    return f"{spec.title} {end_of(spec.place)}".rstrip()
