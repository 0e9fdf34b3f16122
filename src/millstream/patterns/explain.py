"""An automaton for people: as text, and as one SVG without anything from outside, for light and dark pages.

States are boxes with what a run in them waits for; an arrow carries the block that takes the event, and what else must hold. An event
that is passed over leads back to the same state, or to one that waits for less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from itertools import groupby

from millstream.flow import durations
from millstream.patterns.automaton import END, Automaton, Edge

START, MATCH = -2, -1
_STEP, _ROW, _WIDTH, _HEIGHT, _MARGIN, _TOP = 300.0, 130.0, 120.0, 44.0, 36.0, 110.0
_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'
# Selector, how it looks, and what changes on a dark page.
_RULES = (
    (".page", "fill:#ffffff", "fill:#0d1117"),
    (".state", "fill:#fbf7ff;stroke:#a475f9", "fill:#2a2140;stroke:#a371f7"),
    (".begin", "fill:#ddf4ff;stroke:#54aeff", "fill:#0c2d4d;stroke:#388bfd"),
    (".match", "fill:#dafbe1;stroke:#4ac26b", "fill:#12301c;stroke:#2ea043"),
    (".take", "fill:none;stroke:#57606a;stroke-width:1.6", "stroke:#9198a1"),
    (".wait", "fill:none;stroke:#afb8c1;stroke-width:1.3;stroke-dasharray:4 3", "stroke:#656c76"),
    (".tip", "fill:#57606a", "fill:#9198a1"),
    ("text", f"font-family:{_FONT};fill:#1f2328;text-anchor:middle", "fill:#f0f6fc"),
    (".title", "font-size:16px;font-weight:600;text-anchor:start", ""),
    (".name", "font-size:13px;font-weight:500", ""),
    (".small", "font-size:11px;fill:#59636e", "fill:#9198a1"),
    (".head", "font-size:12px;fill:#59636e;text-anchor:start", "fill:#9198a1"),
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a pattern does: print it, or show it in a notebook."""

    automaton: Automaton

    @property
    def text(self) -> str:
        return "\n".join(_lines(self.automaton))

    @property
    def svg(self) -> str:
        return "".join(_Picture(self.automaton).parts())

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


# Words


def _headline(automaton: Automaton) -> str:
    facts = [] if automaton.within is None else [f"within {_span(automaton.within)}"]
    facts += ["one run at a time"] if automaton.singleton else []
    facts += [f"skip {automaton.skip}"] if automaton.skip.kind != "none" else []
    facts += [f"by {', '.join(automaton.keys)}"] if automaton.keys else []
    return ", ".join(facts) or "no limit in time"


def _span(micros: int) -> str:
    return durations.format(timedelta(microseconds=micros))


def _when(automaton: Automaton, edge: Edge) -> str:
    """Return what must hold for an edge, in the user's own words."""
    said = [automaton.tests[number].label for number in edge.need]
    said += [f"not ({automaton.tests[number].label})" for number in edge.forbid]
    said += [f"less than {_span(edge.before)} later"] if edge.before is not None else []
    return " and ".join(said) or "any event"


def _leads(edge: Edge) -> str:
    goes = [] if edge.target == END else [f"{edge.target + 1}"]
    return " and ".join([*goes, *(["match"] if edge.completes else [])])


def _lines(automaton: Automaton) -> Iterator[str]:
    yield f"{automaton.name}   {_headline(automaton)}"
    yield from _state_lines(automaton, "begin", automaton.start)
    for number, state in enumerate(automaton.states):
        title = f"{number + 1}   waits for {state.name}" if state.name else f"{number + 1}   waits for the time to pass"
        notes = ["matches when its time is up"] if state.pending else []
        notes += [f"for {_span(state.patience)} at most"] if state.patience is not None else []
        yield from _state_lines(automaton, ", ".join([title, *notes]), state.edges)
    yield from (f"warning: {warning}" for warning in automaton.warnings)


def _state_lines(automaton: Automaton, title: str, edges: tuple[Edge, ...]) -> Iterator[str]:
    yield f"├─ {title}"
    for place, edge in enumerate(edges):
        branch = "└─" if place == len(edges) - 1 else "├─"
        name = "(pass over)" if edge.take is None else automaton.blocks[edge.take]
        yield f"│  {branch} {name} ──▶ {_leads(edge)}   if {_when(automaton, edge)}"


# The picture


@dataclass(frozen=True, slots=True)
class _Arrow:
    """All edges between two states."""

    source: int
    target: int
    labels: tuple[str, ...]
    takes: bool


class _Picture:
    """Places the states in columns by how far they are from the beginning, then draws."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.arrows = list(_arrows(automaton))
        columns = _columns(self.arrows)
        self.places: dict[int, tuple[float, float]] = {}
        for column, members in groupby(sorted(columns, key=lambda one: (columns[one], one)), key=columns.__getitem__):
            for row, state in enumerate(members):
                self.places[state] = (_MARGIN + column * _STEP, _TOP + row * _ROW)

    def parts(self) -> Iterator[str]:
        width = max(x for x, _ in self.places.values()) + _WIDTH + _MARGIN
        height = max(y for _, y in self.places.values()) + _HEIGHT + _MARGIN + self._below()
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="automaton" viewBox="0 0 {width:.0f} {height:.0f}" '
        yield f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(self.automaton.name)}">'
        yield f"<style>{_style()}</style>"
        yield '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        yield '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
        yield f'<text class="title" x="{_MARGIN}" y="28">{escape(self.automaton.name)}</text>'
        yield f'<text class="head" x="{_MARGIN}" y="46">{escape(_headline(self.automaton))}</text>'
        for arrow in self.arrows:
            yield from self._arrow(arrow)
        for state, (x, y) in self.places.items():
            yield from self._box(state, x, y)
        yield "</svg>"

    def _below(self) -> float:
        return (
            48.0
            if any(self.places[one.target][0] != self.places[one.source][0] + _STEP for one in self.arrows)
            else 0.0
        )

    def _box(self, state: int, x: float, y: float) -> Iterator[str]:
        kind = {START: "begin", MATCH: "match"}.get(state, "state")
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
        name, note = self._said(state)
        middle = x + _WIDTH / 2
        yield f'<text class="name" x="{middle}" y="{y + (20 if note else 27)}">{escape(name)}</text>'
        if note:
            yield f'<text class="small" x="{middle}" y="{y + 35}">{escape(_short(note, 20))}</text>'

    def _said(self, state: int) -> tuple[str, str]:
        if state in (START, MATCH):
            return ("begin", "") if state == START else ("match", "")
        found = self.automaton.states[state]
        return str(state + 1), f"waits for {found.name}" if found.name else "waits for time"

    def _arrow(self, arrow: _Arrow) -> Iterator[str]:
        path, (x, y) = self._route(arrow)
        yield f'<path class="{"take" if arrow.takes else "wait"}" d="{path}" marker-end="url(#tip)"/>'
        for row, label in enumerate(reversed(arrow.labels)):
            yield f'<text class="small" x="{x:.0f}" y="{y - 13 * row:.0f}">{escape(label)}</text>'

    def _route(self, arrow: _Arrow) -> tuple[str, tuple[float, float]]:
        """Return the path of an arrow, and where its label stands."""
        (x1, y1), (x2, y2) = self.places[arrow.source], self.places[arrow.target]
        if arrow.source == arrow.target:
            a, b, top = x1 + _WIDTH * 0.3, x1 + _WIDTH * 0.7, y1 - 34
            return f"M{a} {y1}C{a - 14} {top},{b + 14} {top},{b} {y1}", (x1 + _WIDTH / 2, y1 - 30)
        if x1 == x2:
            a, ya, yb = x1 + _WIDTH, y1 + _HEIGHT / 2, y2 + _HEIGHT / 2
            return f"M{a} {ya}C{a + 48} {ya},{a + 48} {yb},{a} {yb}", (a + 62, (ya + yb) / 2 + 4)
        if x2 < x1:
            a, b, low = x1 + _WIDTH / 2, x2 + _WIDTH / 2, max(y1, y2) + _HEIGHT + 34
            return f"M{a} {y1 + _HEIGHT}C{a} {low},{b} {low},{b} {y2 + _HEIGHT}", ((a + b) / 2, low - 4)
        a, b = x1 + _WIDTH, x2
        # What passes over leaves a little lower, so that it is seen beside what takes.
        ya, yb = (y + _HEIGHT / 2 + (0 if arrow.takes else 12) for y in (y1, y2))
        bend, dip = (b - a) / 2, 92.0 if b - a > _STEP and y1 == y2 else 0.0
        path = f"M{a} {ya}C{a + bend} {ya + dip},{b - bend} {yb + dip},{b} {yb}"
        return path, ((a + b) / 2, (ya + yb) / 2 + dip * 0.75 - 6)


def _style() -> str:
    light = "".join(f".automaton {selector}{{{rule}}}" for selector, rule, _ in _RULES)
    dark = "".join(f".automaton {selector}{{{rule}}}" for selector, _, rule in _RULES if rule)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def _arrows(automaton: Automaton) -> Iterator[_Arrow]:
    between: dict[tuple[int, int, bool], list[str]] = {}
    states = [(START, automaton.start), *((number, state.edges) for number, state in enumerate(automaton.states))]
    for number, edges in states:
        for edge in edges:
            for target in _targets(edge):
                name = "" if edge.take is None else automaton.blocks[edge.take]
                labels = [name, _short(_own(automaton, edge), 28)] if name else []
                between.setdefault((number, target, edge.take is not None), []).extend(labels)
    for number, state in enumerate(automaton.states):
        if state.pending:
            between.setdefault((number, MATCH, False), []).append("time is up")
    for (source, target, takes), labels in between.items():
        yield _Arrow(source, target, tuple(dict.fromkeys(labels)), takes)


def _targets(edge: Edge) -> list[int]:
    return [*([] if edge.target == END else [edge.target]), *([MATCH] if edge.completes else [])]


def _own(automaton: Automaton, edge: Edge) -> str:
    return " and ".join(automaton.tests[number].label for number in edge.need) or "any event"


def _columns(arrows: list[_Arrow]) -> dict[int, int]:
    """Return the column of each state: the fewest events that lead to it; matches stand behind all."""
    columns = {START: 0}
    waiting = [START]
    while waiting:
        state = waiting.pop(0)
        for arrow in arrows:
            if arrow.source == state and arrow.target not in columns and arrow.target != MATCH:
                columns[arrow.target] = columns[state] + 1
                waiting.append(arrow.target)
    columns[MATCH] = max(columns.values()) + 1
    return columns


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
