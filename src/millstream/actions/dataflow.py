"""Who sends to whom, in one line: `numgen; filter2; (printer2 || filter3; printer6)`.

    a; b       all that ends in a goes to all that begins in b
    a || b     both at once
    ( )        what belongs together

`;` and `||` bind alike, from left to right: `a || b; c` is `(a || b); c`. A name is one node,
however often it occurs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WORD: Final = re.compile(r"\s*(?:(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)|(?P<sign>;|\|\||\(|\)))")


class DataflowWrong(Exception):
    """A dataflow cannot be read at `offset`."""

    def __init__(self, offset: int, fact: str, expected: str) -> None:
        super().__init__(fact)
        self.offset = offset
        self.fact = fact
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The nodes, in the order of their first occurrence, with their offsets, and the edges."""

    nodes: dict[str, int]
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    heads: tuple[str, ...]
    tails: tuple[str, ...]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(_words(text))
        self._at = 0
        self.nodes: dict[str, int] = {}
        self.edges: dict[tuple[str, str], None] = {}

    @property
    def _next(self) -> tuple[str, int]:
        return (
            self._words[self._at] if self._at < len(self._words) else ("", len(self._text.rstrip()))
        )

    def whole(self) -> None:
        self._expression()
        word, offset = self._next
        if word:
            raise DataflowWrong(
                offset, f'"{word}" does not belong here', 'a ";", a "||" or the end'
            )

    def _expression(self) -> _Part:
        part = self._one()
        while self._next[0] in (";", "||"):
            sign = self._words[self._at][0]
            self._at += 1
            part = self._joined(part, self._one(), sign)
        return part

    def _joined(self, left: _Part, right: _Part, sign: str) -> _Part:
        if sign == "||":
            return _Part(_union(left.heads, right.heads), _union(left.tails, right.tails))
        for source in left.tails:
            for target in right.heads:
                self.edges[source, target] = None
        return _Part(left.heads, right.tails)

    def _one(self) -> _Part:
        word, offset = self._next
        self._at += 1
        if word == "(":
            part = self._expression()
            closing, there = self._next
            if closing != ")":
                token = f'"{closing}"' if closing else "the end"
                raise DataflowWrong(there, f"{token} comes before a bracket is closed", 'a ")"')
            self._at += 1
            return part
        if not word or word in (";", "||", ")"):
            raise DataflowWrong(
                offset,
                f'"{word}" stands where a node should be'
                if word
                else "a node is missing at the end",
                'the name of a node, or a "("',
            )
        self.nodes.setdefault(word, offset)
        return _Part((word,), (word,))


def parse(text: str) -> Dataflow:
    """Return what a dataflow says.

    Raises:
        DataflowWrong: It cannot be read, or goes in a circle.

    Example:
        >>> parse("numgen; filter2; (printer2 || filter3)").edges
        (('numgen', 'filter2'), ('filter2', 'printer2'), ('filter2', 'filter3'))
    """
    parser = _Parser(text)
    parser.whole()
    flow = Dataflow(parser.nodes, tuple(parser.edges))
    _check_circles(flow)
    return flow


def _words(text: str) -> list[tuple[str, int]]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _WORD.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise DataflowWrong(
                at, f'"{text[at]}" means nothing here', 'a name, ";", "||", "(" or ")"'
            )
        kind = match.lastgroup or ""
        found.append((match[kind], match.start(kind)))
        at = match.end()
    return found


def _union(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def _check_circles(flow: Dataflow) -> None:
    """Refuse a cycle: a message that comes back to its node would wait for itself."""
    targets: dict[str, list[str]] = {}
    for source, target in flow.edges:
        targets.setdefault(source, []).append(target)
    done: set[str] = set()

    def visit(node: str, path: tuple[str, ...]) -> None:
        if node in path:
            around = " -> ".join((*path[path.index(node) :], node))
            raise DataflowWrong(
                flow.nodes[node], f"the dataflow goes in a circle: {around}", "a way that ends"
            )
        if node not in done:
            for target in targets.get(node, []):
                visit(target, (*path, node))
            done.add(node)

    for node in flow.nodes:
        visit(node, ())
