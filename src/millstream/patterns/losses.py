"""At which blocks runs may be lost when a pattern changes, for any events: what a plan tells before.

All histories are gone through at once: whatever blocks the old automaton can take, in step with the
new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from millstream.patterns.carrying import HELD, LOST, Carrying, Pair, edges_of
from millstream.patterns.history import GATHERING, Register

#: Patterns that have more pairs are not compared.
_MOST: Final = 20_000

#: Where runs may be, and, as bits, the registers of which they have something.
_Place = tuple[tuple[Pair, ...], int]


def losses(carrying: Carrying) -> dict[str, str]:
    """Return the blocks at which a run may be lost, each with the reason."""
    found = dict(_lost_matches(carrying))
    begin: _Place = (carrying.start,), 0
    known, waiting = {begin}, deque([begin])
    while waiting:
        place = waiting.popleft()
        for block in range(len(carrying.old.blocks)):
            for following in _following(carrying, place, block, found):
                if following not in known:
                    known.add(following)
                    waiting.append(following)
        if len(known) > _MOST:
            return {"": "it has too many states to be compared"}
    agreed = {name.lower() for name in carrying.drops}
    return {name: why for name, why in found.items() if name not in agreed}


def _lost_matches(carrying: Carrying) -> Iterator[tuple[str, str]]:
    """Yield why matches may be lost that wait for earlier runs."""
    old = carrying.old
    if not old.prefers and old.skip.kind == "none":
        return
    if not carrying.holds:
        yield HELD, "matches that wait for earlier runs would not wait any more"
    for shown, name in zip(old.blocks, carrying.names, strict=True):
        if name not in carrying.numbers:
            yield shown.lower(), f'block "{shown}" is gone'


def _following(
    carrying: Carrying, place: _Place, block: int, found: dict[str, str]
) -> Iterator[_Place]:
    """Yield where runs are after a block, and note what is lost."""
    pairs, asked = place
    reached = carrying.after(pairs, block)
    live = [one for one in reached if one.new != LOST]
    if len(live) < len(reached):
        found.setdefault(carrying.old.blocks[block].lower(), _why(carrying, block, pairs))
    if not live:
        return
    for at in carrying.unknown:
        register = carrying.new.registers[at]
        if any(one.block in register.blocks for one in live):
            asked |= 1 << at
        states = {new for _, new, _ in carrying.waited([one.pair for one in live])}
        if asked >> at & 1 and any(at in carrying.read_later[new] for new in states if new >= 0):
            for number in register.blocks:
                name = carrying.new.blocks[number]
                found.setdefault(_old_name(carrying, name), _asks(carrying, register, name))
    yield tuple(one.pair for one in live), asked


def _why(carrying: Carrying, block: int, pairs: tuple[Pair, ...]) -> str:
    shown, name = carrying.old.blocks[block], carrying.names[block]
    if name not in carrying.numbers:
        return f'block "{shown}" is gone'
    edges = edges_of(carrying.new)
    new = [edge for _, one, _ in carrying.waited(pairs) for edge in edges[one]]
    if any(edge.take in carrying.numbers[name] for edge in new):
        return f'the pattern ends with block "{shown}" now'
    return f'block "{shown}" stands elsewhere'


def _asks(carrying: Carrying, register: Register, name: str) -> str:
    assert register.value is not None
    function = "" if register.function in ("last", *GATHERING) else f"{register.function} of "
    value = carrying.new.values[register.value]
    return f'a condition asks for the {function}{value} of block "{name}", which is not kept'


def _old_name(carrying: Carrying, name: str) -> str:
    renames = {new.lower(): old for old, new in carrying.renames.items()}
    return renames.get(name.lower(), name).lower()
