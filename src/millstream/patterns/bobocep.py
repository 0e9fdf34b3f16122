"""The rules of BoboCEP, for patterns that come from there: compat="bobocep".

They differ from ours: a run never forks; a negated block takes one event that does not meet its
condition, and goes on; an event that does meet it is passed over by `not_followed_by` and halts a
run at `not_next`; a relaxed loop takes what it can and may take nothing; preconditions and halt
conditions are not asked of the first event.

Two quirks of BoboCEP are left out. There, a strict loop can never be left: the first event that
does not meet it halts the run; here it is tried on the block behind the loop. And a loop that is
skipped because a later loop takes the event stays where it was; here the run moves on to the later
loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.errors import ImpossiblePattern
from millstream.flow.schema import Schema
from millstream.patterns.automaton import END, Automaton, Edge, State
from millstream.patterns.blocks import Block
from millstream.patterns.checks import check
from millstream.patterns.conditions import Owner
from millstream.patterns.parts import Guard, Parts
from millstream.patterns.pattern import Pattern
from millstream.patterns.vocabulary import Vocabulary


def compile_bobocep(pattern: Pattern, schema: Schema | None) -> Automaton:
    """Return the automaton that BoboCEP would run for a pattern."""
    blocks = _unrolled(pattern)
    parts = Parts(Vocabulary(_names(blocks), schema), blocks)
    tests = [
        parts.test(block.conditions, Owner(f'block "{block.name}"', block.where))
        for block in blocks
    ]
    owner = Owner("a condition of the pattern", pattern.where)
    required = [parts.test((one,), owner) for one in pattern.required]
    halting = [parts.test((one,), owner) for one in pattern.halting]
    extra = Guard(
        frozenset(test for guard in required for test in guard.need),
        frozenset(test for guard in halting for test in guard.need),
    )
    states = tuple(
        State(blocks[place].name, tuple(_edges(blocks, tests, place, place, extra)))
        for place in range(1, len(blocks))
    )
    first = Edge(
        tuple(sorted(tests[0].need)), (), 0, 0 if len(blocks) > 1 else END, len(blocks) == 1
    )
    return Automaton(
        name=pattern.name or "pattern",
        blocks=tuple(block.name for block in blocks),
        names=tuple(sorted(_names(blocks).items())),
        tests=tuple(parts.tests),
        values=tuple(parts.words.values),
        registers=tuple(parts.words.registers),
        start=(first,),
        states=states,
        singleton=pattern.one_at_a_time,
        keys=pattern.keys,
    )


def _unrolled(pattern: Pattern) -> list[Block]:
    """Return the blocks, loops unrolled; refuse what BoboCEP does not have."""
    for block in pattern.blocks:
        ranges = block.least > 1 if block.most is None else block.least != block.most
        if block.body or block.contiguity == "any" or block.until or ranges:
            fact = f'block "{block.name}" has what BoboCEP does not know'
            raise ImpossiblePattern(fact, hint='leave compat="bobocep" out', where=block.where)
    if not any(block.negated for block in pattern.blocks):
        check(pattern)
    ends = (pattern.blocks[0], pattern.blocks[-1])
    for block in ends:
        if block.optional or block.negated or block.most is None:
            fact = f'block "{block.name}" is the first or the last, and BoboCEP has it taken'
            hint = "begin and end with a plain block"
            raise ImpossiblePattern(fact, hint=hint, where=block.where)
    return [block for block in pattern.blocks for _ in range(block.most or 1)]


def _names(blocks: list[Block]) -> dict[str, frozenset[int]]:
    names: dict[str, frozenset[int]] = {}
    for number, block in enumerate(blocks):
        names[block.name.lower()] = names.get(block.name.lower(), frozenset()) | {number}
    return names


def _edges(
    blocks: list[Block], tests: list[Guard], state: int, place: int, so_far: Guard
) -> Iterator[Edge]:
    """Yield what an event does to a run in `state` when it is tried on the block at `place`."""
    block, test = blocks[place], tests[place]
    met = so_far.also(Guard(need=test.need))
    unmet = so_far.also(Guard(forbid=test.need))
    if block.negated:
        if block.contiguity != "strict":
            yield from _edge(met, None, state, len(blocks))
        yield from _edge(unmet, place, place + 1, len(blocks))
        return
    loops = block.most is None
    yield from _edge(met, place, place if loops else place + 1, len(blocks))
    if loops or block.optional:
        yield from _edges(blocks, tests, state, place + 1, unmet)
    elif block.contiguity != "strict":
        yield from _edge(unmet, None, state, len(blocks))


def _edge(guard: Guard, take: int | None, target: int, blocks: int) -> Iterator[Edge]:
    """Yield an edge to the state that waits for block `target`, or one that completes a match."""
    if not guard.possible:
        return
    done = target == blocks
    state = END if done else target - 1
    yield Edge(tuple(sorted(guard.need)), tuple(sorted(guard.forbid)), take, state, done)
