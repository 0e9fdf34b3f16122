"""Which patterns are refused, since they can never match, and which keep runs for ever."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.errors import FlowError, ImpossiblePattern, UnknownBlock
from millstream.flow import expressions
from millstream.patterns.automaton import END, Automaton
from millstream.patterns.blocks import Block, all_blocks, leaves
from millstream.patterns.conditions import Owner, Reader
from millstream.patterns.pattern import Pattern
from millstream.patterns.vocabulary import Vocabulary


def check(pattern: Pattern) -> None:
    """Refuse a pattern that can never match."""
    called = _called(pattern)
    if not pattern.blocks:
        raise ImpossiblePattern(f"{called} has no blocks", hint="begin() it", where=pattern.where)
    first = pattern.blocks[0]
    if first.negated:
        raise _impossible(first, "is negated and the first", "begin with what starts a run")
    if all(block.negated for block in pattern.blocks):
        fact = f"{called} has no block that takes an event"
        raise ImpossiblePattern(fact, hint="add one that is not negated", where=pattern.where)
    last = next(
        (block for block in ending(pattern) if block.negated and block.contiguity == "relaxed"),
        None,
    )
    for block in all_blocks(pattern.blocks):
        if block.negated and block.within is not None and block is not pattern.blocks[-1]:
            raise _impossible(block, "is negated with a time, and not the last", "leave within out")
    if last is not None and pattern.span is None and last.within is None:
        raise _impossible(
            last,
            "is negated and may be the last, without a time",
            'say within("1 hour"): it holds then',
        )
    for block in all_blocks(pattern.blocks):
        for sequence in block.body:
            if sequence[0].negated or sequence[-1].negated:
                negated = sequence[0] if sequence[0].negated else sequence[-1]
                raise _impossible(
                    negated, "is negated at the edge of a group", "negate between two blocks"
                )


def check_reached(
    pattern: Pattern, blocks: list[Block], taken: set[int | None], automaton: Automaton
) -> None:
    """Refuse a pattern whose conditions leave no way to a match.

    Args:
        pattern: The pattern.
        blocks: Its blocks that take events.
        taken: The numbers of those for which there is an edge.
        automaton: Its automaton.
    """
    reached: set[int] = set()
    waiting = list(automaton.start)
    while waiting:
        edge = waiting.pop()
        if edge.completes:
            return
        if edge.target != END and edge.target not in reached:
            reached.add(edge.target)
            waiting += automaton.states[edge.target].edges
    if any(automaton.states[target].pending for target in reached):
        return
    never = [block for number, block in enumerate(blocks) if number not in taken]
    stuck = next(
        (block for block in never if not block.nullable), never[0] if never else blocks[-1]
    )
    hint = (
        "what it must meet is forbidden there, by a negation, until, a greedy loop, "
        "or a halt condition"
    )
    msg = f'block "{stuck.name}" can never take an event'
    raise ImpossiblePattern(msg, hint=hint, where=stuck.where or pattern.where)


def _called(pattern: Pattern) -> str:
    return f'pattern "{pattern.name}"' if pattern.name else "the pattern"


def ending(pattern: Pattern) -> list[Block]:
    """Return the blocks with which a match may end, or that it may end without."""
    found: list[Block] = []
    for block in reversed(pattern.blocks):
        found.append(block)
        if not block.nullable:
            break
    return found


def _impossible(block: Block, fact: str, hint: str) -> FlowError:
    return ImpossiblePattern(f'block "{block.name}" {fact}', hint=hint, where=block.where)


def endless(pattern: Pattern) -> Iterator[str]:
    """Yield why the runs of a pattern may live for ever."""
    waits = any(
        block.contiguity != "strict" and not (block.negated and block.within)
        for block in pattern.blocks[1:]
    )
    loops = any(block.loops and block.most is None for block in all_blocks(pattern.blocks))
    if pattern.span is None and (waits or loops) and not pattern.one_at_a_time:
        why = "waits for an event that may never come" if waits else "has a loop without an end"
        yield f"{_called(pattern)} {why}, and has no within: its runs may live for ever"


def check_sight(pattern: Pattern, block: Block, words: Vocabulary, owner: Owner) -> None:
    """Refuse conditions on later blocks; in a group that loops they may have come before."""
    order = list(leaves(pattern.blocks))
    own = max((place for place, leaf in enumerate(order) if leaf is block), default=len(order))
    looping = [
        set(map(id, leaves((one,)))) for one in all_blocks(pattern.blocks) if one.body and one.loops
    ]
    for text in (one for one in (*block.conditions, *block.until) if isinstance(one, str)):
        for column in Reader(words, owner).references(expressions.expression(text)):
            name = column.parts[0].name
            places = [
                place for place, leaf in enumerate(order) if leaf.name.lower() == name.lower()
            ]
            together = any(
                id(block) in inside and any(id(order[place]) in inside for place in places)
                for inside in looping
            )
            if places and min(places) > own and not together:
                fact = f'looks at block "{name}", which comes after it'
                raise owner.mistake(UnknownBlock, fact, hint="look back only")
