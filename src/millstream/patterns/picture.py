"""An automaton as a picture: one SVG without anything from outside, for light and dark pages.

Boxes are what a run waits for; an arrow carries the block that takes the event, with its condition.
Where other events are passed over, a dashed arrow leads from a box back to itself; without it they
end the run. A run that passes over an event may from then on wait for less than before: that is no
box of its own here, since all its arrows are those of the box it comes from. The text of an
explanation has every state.

The words of an arrow are a node of the layout, so that there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import escape

from millstream.flow import durations
from millstream.graph.layout import Box, Size, place
from millstream.graph.lines import rounded, text_width, through
from millstream.graph.style import FONT, sheet
from millstream.patterns.automaton import END, Automaton, Edge, State

START, MATCH = -2, -1
_MARGIN, _HEAD, _BOX, _LOOP, _LINE, _LANE = 24.0, 66.0, 44.0, 26.0, 14.0, 36.0
_GAP, _BETWEEN = 16.0, 14.0
_LONGEST = 44
_RULES = (
    (".page", "fill:#ffffff", "fill:#0d1117"),
    (".state", "fill:#fbf7ff;stroke:#a475f9", "fill:#2a2140;stroke:#a371f7"),
    (".begin", "fill:#ddf4ff;stroke:#54aeff", "fill:#0c2d4d;stroke:#388bfd"),
    (".match", "fill:#dafbe1;stroke:#4ac26b", "fill:#12301c;stroke:#2ea043"),
    (".take", "fill:none;stroke:#57606a;stroke-width:1.6", "stroke:#9198a1"),
    (".wait", "fill:none;stroke:#818b98;stroke-width:1.3;stroke-dasharray:4 3", "stroke:#8b949e"),
    (".tip", "fill:#57606a", "fill:#9198a1"),
    ("text", f"font-family:{FONT};fill:#1f2328;text-anchor:middle", "fill:#f0f6fc"),
    (".title", "font-size:16px;font-weight:600;text-anchor:start", ""),
    (".name", "font-size:13px;font-weight:500", ""),
    (".small", "font-size:11px;fill:#59636e", "fill:#9198a1"),
    (".ends", "font-size:11px;fill:#cf222e", "fill:#f85149"),
    (".head", "font-size:12px;fill:#59636e;text-anchor:start", "fill:#9198a1"),
)


def svg(automaton: Automaton, headline: str) -> str:
    """Return the automaton as SVG text, with a line of facts below its name."""
    return "".join(Picture(automaton, headline).parts())


def span(micros: int) -> str:
    """Write a length of time."""
    return durations.format(timedelta(microseconds=micros))


@dataclass(frozen=True, slots=True)
class _Arrow:
    """All edges between two states that take, or that pass over, as blocks with conditions."""

    source: int
    target: int
    words: tuple[tuple[str, str], ...]
    takes: bool

    @property
    def lines(self) -> list[tuple[str, str]]:
        """What is written, as (kind, text)."""
        return [
            (kind, text)
            for pair in self.words
            for kind, text in zip(("name", "small"), pair, strict=True)
            if text
        ]

    @property
    def width(self) -> float:
        return _widest(self.lines)


@dataclass(frozen=True, slots=True)
class _Card:
    """A box with the loops that take above it, a loop that passes over, and notes."""

    kind: str
    lines: tuple[tuple[str, str], ...]
    loops: tuple[tuple[str, str], ...] = ()
    passes: bool = False
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def above(self) -> float:
        return _LOOP + _LINE * len(self.loops) if self.loops else 0.0

    @property
    def below(self) -> float:
        return (_LOOP if self.passes else 4.0) + _LINE * len(self.notes)

    @property
    def size(self) -> Size:
        width = max(72.0, _widest(self.lines) + 24, _widest(self.loops), _widest(self.notes))
        return Size(width, self.above + _BOX + self.below, self.above + _BOX / 2)


class Picture:
    """Places everything, then draws it."""

    def __init__(self, automaton: Automaton, headline: str) -> None:
        self.automaton, self.headline = automaton, headline
        arrows = _reached(list(_arrows(automaton)))
        levels = _levels(arrows)
        self.loops = [one for one in arrows if one.source == one.target]
        self.forward = [one for one in arrows if levels[one.source] < levels[one.target]]
        self.back = [one for one in arrows if levels[one.target] < levels[one.source]]
        self.cards = {
            state: self._card(state) for state in sorted(levels, key=lambda one: (levels[one], one))
        }
        self._place(levels)

    def _card(self, state: int) -> _Card:
        if state in (START, MATCH):
            kind = "begin" if state == START else "match"
            return _Card(kind, (("name", kind),))
        own = [one for one in self.loops if one.source == state]
        loops = tuple(line for one in own if one.takes for line in one.lines)
        found = self.automaton.states[state]
        return _Card(
            "state",
            _labels(state, found),
            loops,
            any(not one.takes for one in own),
            self._notes(found),
        )

    def _notes(self, state: State) -> tuple[tuple[str, str], ...]:
        """Return what ends a run here whatever else comes."""
        tests, (at, unless) = self.automaton.tests, _ends(state)
        words = [f"ends at {tests[number].label}" for number in sorted(at)]
        words += [f"ends unless {tests[number].label}" for number in sorted(unless)]
        return tuple(("ends", _short(one)) for one in words)

    def _place(self, levels: dict[int, int]) -> None:
        sizes = {_name(state): card.size for state, card in self.cards.items()}
        layer = {_name(state): 2 * levels[state] for state in self.cards}
        edges = []
        for number, arrow in enumerate(self.forward):
            label = f"label {number}"
            tall = 4 + _LINE * len(arrow.lines)
            sizes[label] = Size(arrow.width + 8, tall + 6, tall)
            layer[label] = 2 * levels[arrow.source] + 1
            edges += [(_name(arrow.source), label), (label, _name(arrow.target))]
        self.layout = place(sizes, edges, layer, gap=_GAP, between=_BETWEEN)

    def box(self, state: int) -> Box:
        """Return the place of a state's box alone."""
        whole, card = self.layout.boxes[_name(state)], self.cards[state]
        own = max(72.0, _widest(card.lines) + 24)
        aside = (whole.width - own) / 2
        # All lines run to and from the layer's edge, so the box may be narrower than what stands
        # above it.
        return Box(whole.x + aside, whole.y + card.above, own, _BOX, whole.left, whole.right_end)

    @property
    def height(self) -> float:
        """The height of the automaton alone."""
        return self.layout.height + _LANE * len(self.back)

    def parts(self) -> Iterator[str]:
        legend = [one for one in self.loops if not one.takes]
        heads = [self.headline, "dashed: other events are passed over" if legend else ""]
        head = " · ".join(one for one in heads if one)
        named = max(text_width(self.automaton.name, 17), text_width(head, 12))
        width = max(self.layout.width, named) + 2 * _MARGIN
        height = self.height + _HEAD + _MARGIN
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="automaton" viewBox="0 0 {width:.0f} {height:.0f}" '
        yield f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(self.automaton.name)}">'
        yield f"<style>{sheet('automaton', _RULES)}</style>"
        yield '<defs><marker id="automaton-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        yield 'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0.5L8 4L0 7.5z"/></marker></defs>'
        yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="12"/>'
        yield f'<text class="title" x="{_MARGIN}" y="30">{escape(self.automaton.name)}</text>'
        yield f'<text class="head" x="{_MARGIN}" y="48">{escape(head)}</text>'
        yield f'<g transform="translate({_MARGIN:.0f} {_HEAD:.0f})">'
        for number, arrow in enumerate(self.forward):
            yield from self._forward(arrow, f"label {number}")
        for row, arrow in enumerate(self.back):
            yield from self._back(arrow, self.layout.height + _LANE * row)
        for state in self.cards:
            yield from self._drawn(state)
        yield "</g></svg>"

    def _drawn(self, state: int) -> Iterator[str]:
        box, card = self.box(state), self.cards[state]
        middle = box.x + box.width / 2
        yield f'<rect class="{card.kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{_BOX}" rx="8"/>'
        yield from _column(middle, box.y + (19 if len(card.lines) > 1 else 26), card.lines)
        if card.loops:
            yield _arrow("take", _hoop(middle, box.y, -_LOOP))
            yield from _column(middle, box.y - card.above + 11, card.loops)
        if card.passes:
            yield _arrow("wait", _hoop(middle, box.bottom, _LOOP))
        yield from _column(middle, box.bottom + (_LOOP if card.passes else 4.0) + 11, card.notes)

    def _forward(self, arrow: _Arrow, label: str) -> Iterator[str]:
        first, words, last = (
            self.box(arrow.source),
            self.layout.boxes[label],
            self.box(arrow.target),
        )
        line = words.y + 4 + _LINE * len(arrow.lines)
        before = self.layout.lanes[_name(arrow.source), label]
        after = self.layout.lanes[label, _name(arrow.target)]
        kind = "take" if arrow.takes else "wait"
        yield f'<path class="{kind}" d="{through(first, first.middle, before, words, line)}H{words.right:.1f}"/>'
        yield _arrow(kind, through(words, line, after, last, last.middle))
        yield from _column(words.x + words.width / 2, words.y + 11, arrow.lines)

    def _back(self, arrow: _Arrow, y: float) -> Iterator[str]:
        """Draw an arrow that leads back, below everything."""
        first, last = self.box(arrow.source), self.box(arrow.target)
        ground = y + _LANE - 6
        out, home = first.right_end + _BETWEEN / 2, last.left - _BETWEEN / 2
        corners = [
            (first.right, first.middle + 10),
            (out, first.middle + 10),
            (out, ground),
            (home, ground),
        ]
        corners += [(home, last.middle + 10), (last.x, last.middle + 10)]
        yield _arrow("take" if arrow.takes else "wait", rounded(corners))
        lines = [("small", _short(" ".join(text for _, text in arrow.lines), 80))]
        yield from _column((out + home) / 2, ground - 5, lines)


# What is shown


def _arrows(automaton: Automaton) -> Iterator[_Arrow]:
    between: dict[tuple[int, int, bool], list[tuple[str, str]]] = {}
    for number, edges in [
        (START, automaton.start),
        *((at, one.edges) for at, one in enumerate(automaton.states)),
    ]:
        for edge in edges:
            for target in _targets(automaton, number, edge):
                words = between.setdefault((number, target, edge.take is not None), [])
                plain = (number == target and edge.take is None) or _covered(edges, edge)
                words += [] if plain else [_words(automaton, number, edges, edge)]
        if number >= 0 and automaton.states[number].pending:
            between.setdefault((number, MATCH, False), []).append(("", "time is up"))
    for (source, target, takes), found in between.items():
        yield _Arrow(source, target, tuple(dict.fromkeys(found)), takes)


def _targets(automaton: Automaton, source: int, edge: Edge) -> list[int]:
    """Return where an edge leads in the picture: if it only waits on, to where it comes from."""
    target = edge.target
    if edge.take is None and source >= 0 and target != END and _only_waits(automaton, source, edge):
        target = source
    return [*([] if target == END else [target]), *([MATCH] if edge.completes else [])]


def _only_waits(automaton: Automaton, source: int, edge: Edge) -> bool:
    """Tell whether what a state does, the one from which it is reached by waiting does as well."""
    first, then = automaton.states[source], automaton.states[edge.target]
    if not (_takes(then) <= _takes(first) and then.pending <= first.pending):
        return False
    # What ends a run there was asked on the way to it, and it forgets nothing that ends a run here.
    (at, unless), (later_at, later_unless) = _ends(first), _ends(then)
    return at <= later_at <= set(edge.forbid) and unless <= later_unless <= set(edge.need)


def _covered(edges: tuple[Edge, ...], edge: Edge) -> bool:
    """Tell whether another edge does the same and asks for less."""
    same = (
        one
        for one in edges
        if (one.take, one.target, one.completes) == (edge.take, edge.target, edge.completes)
    )
    return any(set(one.need) < set(edge.need) for one in same)


def _takes(state: State) -> set[tuple[int, int, bool]]:
    return {
        (edge.take, edge.target, edge.completes) for edge in state.edges if edge.take is not None
    }


def _ends(state: State) -> tuple[set[int], set[int]]:
    """Return the tests that end a run if an event meets them, and if it does not."""
    waits = any(edge.take is None for edge in state.edges)
    needed = _common(edge.need for edge in state.edges) if waits else set()
    return _common(edge.forbid for edge in state.edges), needed


def _words(
    automaton: Automaton, source: int, edges: tuple[Edge, ...], edge: Edge
) -> tuple[str, str]:
    """Return the block that takes an event, and what must hold that is not shown elsewhere."""
    if edge.take is None:
        return "", "other events"
    at, unless = _ends(automaton.states[source]) if source >= 0 else (set(), set())
    others = {number for one in edges if one.take not in (None, edge.take) for number in one.need}
    words = [automaton.tests[number].label for number in edge.need if number not in unless]
    words += [
        f"not {automaton.tests[number].label}"
        for number in edge.forbid
        if number not in at | others
    ]
    words += [f"less than {span(edge.before)} later"] if edge.before is not None else []
    return automaton.blocks[edge.take], _short(" and ".join(words) or "any event")


def _labels(number: int, state: State) -> tuple[tuple[str, str], ...]:
    name = f"waits for {state.name}" if state.name else "waits"
    facts = [f"state {number + 1}"]
    facts += [f"{span(state.patience)} at most"] if state.patience is not None else []
    return ("name", _short(name)), ("small", ", ".join(facts))


def _common(sets: Iterable[tuple[int, ...]]) -> set[int]:
    found = [set(one) for one in sets]
    return set.intersection(*found) if found else set()


def _reached(arrows: list[_Arrow]) -> list[_Arrow]:
    """Leave out what no arrow leads to any more."""
    known, waiting = {START}, [START]
    while waiting:
        state = waiting.pop()
        fresh = {one.target for one in arrows if one.source == state} - known
        known |= fresh
        waiting += fresh
    return [one for one in arrows if one.source in known]


def _levels(arrows: list[_Arrow]) -> dict[int, int]:
    """Return how far each state is from the beginning, without arrows that lead back."""
    order, back = _walk(arrows)
    levels = dict.fromkeys(reversed(order), 0)
    for state in levels:
        for target in _next(arrows, state):
            if (state, target) not in back:
                levels[target] = max(levels[target], levels[state] + 1)
    # A match stands behind everything.
    levels[MATCH] = 1 + max(level for state, level in levels.items() if state != MATCH)
    return levels


def _walk(arrows: list[_Arrow]) -> tuple[list[int], set[tuple[int, int]]]:
    """Return the states, each behind all that it leads to, and the arrows that close a circle."""
    order: list[int] = []
    back: set[tuple[int, int]] = set()
    path = [(START, iter(_next(arrows, START)))]
    while path:
        state, rest = path[-1]
        target = next(rest, None)
        if target is None:
            order.append(path.pop()[0])
        elif target in (one for one, _ in path):
            back.add((state, target))
        elif target not in order:
            path.append((target, iter(_next(arrows, target))))
    return order, back


def _next(arrows: list[_Arrow], state: int) -> list[int]:
    return list(dict.fromkeys(one.target for one in arrows if one.source == state != one.target))


# How it is drawn


def _name(state: int) -> str:
    return f"state {state}"


def _widest(lines: Iterable[tuple[str, str]]) -> float:
    return max(
        (text_width(text, 13.0 if kind == "name" else 11.0) for kind, text in lines), default=0.0
    )


def _column(x: float, y: float, lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    for row, (kind, text) in enumerate(lines):
        yield f'<text class="{kind}" x="{x:.1f}" y="{y + _LINE * row:.1f}">{escape(text)}</text>'


def _arrow(kind: str, path: str) -> str:
    return f'<path class="{kind}" d="{path}" marker-end="url(#automaton-tip)"/>'


def _hoop(x: float, y: float, tall: float) -> str:
    """Return a line that leaves a box at one place and comes back to it at another."""
    far = y + tall * 1.1
    return (
        f"M{x - 16:.1f} {y:.1f}C{x - 30:.1f} {far:.1f},{x + 30:.1f} {far:.1f},{x + 16:.1f} {y:.1f}"
    )


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
