"""The numbered parts of an automaton, blocks and tests, and guards, which are made of tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from millstream.flow.schema import Schema
from millstream.patterns.blocks import Block, Condition, all_blocks, leaves
from millstream.patterns.conditions import Owner, Test, test_of
from millstream.patterns.pattern import Pattern
from millstream.patterns.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Guard:
    """Tests that an event must meet and must not meet, all at once."""

    need: frozenset[int] = frozenset()
    forbid: frozenset[int] = frozenset()

    @property
    def possible(self) -> bool:
        return not self.need & self.forbid

    def also(self, other: Guard) -> Guard:
        return Guard(self.need | other.need, self.forbid | other.forbid)

    def but(self, other: Guard) -> Iterator[Guard]:
        """Yield guards that are together this one without the other; an event meets at most one."""
        kept = self
        for test in sorted(other.need):
            yield Guard(kept.need, kept.forbid | {test})
            kept = Guard(kept.need | {test}, kept.forbid)
        for test in sorted(other.forbid):
            yield Guard(kept.need | {test}, kept.forbid)
            kept = Guard(kept.need, kept.forbid | {test})


@dataclass
class Parts:
    """The numbered parts of a pattern: blocks, tests, words."""

    words: Vocabulary
    blocks: list[Block]
    tests: list[Test] = field(default_factory=list)

    @classmethod
    def of(cls, pattern: Pattern, schema: Schema | None) -> Parts:
        found = {id(block): block for block in leaves(pattern.blocks) if not block.negated}
        taking = list(found.values())
        labels = tuple(block.name for block in taking)
        return cls(Vocabulary(names_of(pattern.blocks, taking), schema, labels=labels), taking)

    def number(self, block: Block) -> int:
        return next(number for number, known in enumerate(self.blocks) if known is block)

    def test(self, conditions: tuple[Condition, ...], owner: Owner) -> Guard:
        """Return the guard that any of `conditions` holds; an empty one if there are none."""
        found = test_of(conditions, self.words, owner)
        if found is None:
            return Guard()
        if found not in self.tests:
            self.tests.append(found)
        return Guard(need=frozenset([self.tests.index(found)]))

    def anchor(self, name: str) -> Guard:
        """Return the guard that a row is the first or the last of its partition."""
        if Test(name) not in self.tests:
            self.tests.append(Test(name))
        return Guard(need=frozenset([self.tests.index(Test(name))]))


def names_of(blocks: tuple[Block, ...], taking: list[Block]) -> dict[str, frozenset[int]]:
    """Return what each name of a block or a group stands for."""
    names: dict[str, frozenset[int]] = {}
    for block in all_blocks(blocks):
        if block.name and not block.negated:
            inside = {id(leaf) for leaf in leaves((block,))}
            found = frozenset(number for number, leaf in enumerate(taking) if id(leaf) in inside)
            names[block.name.lower()] = names.get(block.name.lower(), frozenset()) | found
    return names


def micros(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(microseconds=1)
