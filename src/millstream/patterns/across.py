"""Which patterns stay sound if the events of a key reach several devices.

A device knows the events that it has seen and, later, those that others tell it of. What it has
seen stays true; what it has not seen may have happened elsewhere. So a pattern is *sound* across
devices if a match depends only on events that are there, not on others that are missing or on which
event came directly after another. It is *exact* if devices also agree on which events a run takes,
in whatever order they learn of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.flow import expressions
from millstream.patterns.blocks import Block, Condition, all_blocks, takes
from millstream.patterns.checks import ending
from millstream.patterns.conditions import Owner, Reader
from millstream.patterns.parts import Parts
from millstream.patterns.pattern import Pattern


def unsound(pattern: Pattern) -> tuple[str, ...]:
    """Return why a pattern is not sound across devices, a sentence each; none if it is sound."""
    trailing = [block for block in ending(pattern) if block.negated]
    found = [*_whole(pattern)]
    for block in all_blocks(pattern.blocks):
        found += _block(block, trailing=any(block is one for one in trailing))
    return tuple(found)


def _whole(pattern: Pattern) -> Iterator[str]:
    called = f'pattern "{pattern.name}"' if pattern.name else "the pattern"
    if pattern.span is None:
        yield f"{called} has no within, so no device knows when to forget a run"
    if pattern.required:
        yield f"{called} has a precondition: an event that does not meet it may be on another device"
    if pattern.halting:
        yield f"{called} has a halt condition: an event that meets it may be on another device"
    if pattern.skip.kind != "none":
        yield f"{called} skips: which runs a match drops depends on matches on other devices"
    if pattern.one_at_a_time:
        yield f"{called} is a singleton: another device may have begun a run of the same key"
    if pattern.rules is not None:
        yield f"{called} has BoboCEP's rules: a negated block takes an event, which may be elsewhere"
    if pattern.late:
        yield f"{called} reports timeouts: a run may have gone on on another device"


def _block(block: Block, *, trailing: bool) -> Iterator[str]:
    called = f'block "{block.name}"' if block.name else "a group"
    if block.negated and trailing:
        yield f"{called} must not be met until the time is up, and may be on another device"
    elif block.negated and block.contiguity == "strict":
        yield f"{called} is not_next: the very next event may be on another device"
    elif block.negated:
        yield f"{called} is not_followed_by: an event that meets it may be on another device"
    elif block.contiguity == "strict":
        yield f"{called} is next: another event may come between on another device"
    if block.inner == "strict":
        yield f"{called} is consecutive: another event may come between on another device"
    if block.until:
        yield f"{called} has an until: an event that meets it may be on another device"
    if block.preference == "greedy":
        yield f"{called} is greedy: an event that it must take may be on another device"
    if block.preference == "reluctant":
        yield f"{called} is reluctant: an event that ends it may be on another device"


def inexact(pattern: Pattern) -> tuple[str, ...]:
    """Return why devices may take other events for a sound pattern than one device would."""
    reader = Reader(Parts.of(pattern, None).words, Owner("the pattern"))
    found = []
    for block in all_blocks(pattern.blocks):
        called = f'block "{block.name}"' if block.name else "a group"
        if any(_looks_back(one, reader) for one in (*block.conditions, *block.until)):
            found.append(
                f"{called} looks at events that the run took before: "
                "they depend on what a device has seen"
            )
        if len(block.body) > 1:
            found.append(f"{called} has alternatives: which one began first may be known too late")
        if block.within is not None or block.between is not None:
            found.append(
                f"{called} has a within of its own: "
                "it counts from the last event that a device has seen"
            )
    return tuple(found)


def _looks_back(condition: Condition, reader: Reader) -> bool:
    if isinstance(condition, str):
        return reader.historic(expressions.expression(condition))
    return takes(condition, 2)
