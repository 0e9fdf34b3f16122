"""An automaton as data to draw: what `picture` draws as SVG, for pages that show numbers on it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec

from millstream.patterns.automaton import Automaton
from millstream.patterns.picture import Picture

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SVG = "{http://www.w3.org/2000/svg}"


class SketchBox(msgspec.Struct, frozen=True):
    """A box: a state, by its number, or the beginning or a match, which have no number."""

    kind: str
    state: int | None
    x: float
    y: float
    width: float
    height: float


class SketchLine(msgspec.Struct, frozen=True):
    """An arrow, or a part of one without a tip: it takes an event, or waits."""

    kind: str
    path: str
    tip: bool


class SketchText(msgspec.Struct, frozen=True):
    """A line of text around a place."""

    kind: str
    x: float
    y: float
    text: str


class Sketch(msgspec.Struct, frozen=True):
    """An automaton, laid out."""

    width: float
    height: float
    boxes: tuple[SketchBox, ...]
    lines: tuple[SketchLine, ...]
    texts: tuple[SketchText, ...]


def sketch(automaton: Automaton) -> Sketch:
    """Return an automaton as data to draw."""
    picture = Picture(automaton, "")
    # Conditions are users' texts: XML has no place for some characters.
    text = _UNFIT.sub("\ufffd", "".join(picture.parts()))
    drawn = ElementTree.fromstring(text)  # noqa: S314 (we have written it)
    inside = drawn.find(f"{_SVG}g")
    assert inside is not None
    texts = tuple(
        SketchText(one.get("class", ""), float(one.get("x", 0)), float(one.get("y", 0)), one.text)
        for one in inside.iter(f"{_SVG}text")
        if one.text
    )
    lines = tuple(
        SketchLine(one.get("class", ""), one.get("d", ""), "marker-end" in one.attrib)
        for one in inside.iter(f"{_SVG}path")
    )
    boxes = []
    for state, card in picture.cards.items():
        box = picture.box(state)
        number = state if state >= 0 else None
        sizes = (round(one, 1) for one in (box.x, box.y, box.width, box.height))
        boxes.append(SketchBox(card.kind, number, *sizes))
    width = max(picture.layout.width, *(one.x + one.width for one in boxes))
    return Sketch(round(width, 1), round(picture.height, 1), tuple(boxes), lines, texts)


def drawn_state(automaton: Automaton, shown: Sketch, state: int) -> int:
    """Return the state in whose box a run is shown: some that wait for less have none of their own."""
    boxes = [one.state for one in shown.boxes if one.state is not None]
    if state in boxes:
        return state
    name = automaton.states[state].name
    return next((one for one in boxes if automaton.states[one].name == name), boxes[0])
