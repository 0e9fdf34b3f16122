"""Blocks: what a pattern consists of, as frozen data with every default filled in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from millstream.errors import Where

Contiguity = Literal["strict", "relaxed", "any"]
"""Which later event a block takes: the very next, the next that matches, or each (a fork)."""

# predicate(event, history), or predicate(event): dictionaries whose values only the user knows.
Predicate = Callable[..., bool]
Condition = str | Predicate
"""A Spark SQL expression, or a Python predicate where SQL cannot say it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One step of a pattern.

    A leaf takes events that meet any of its `conditions` (none: every event). A group has `body`
    instead: sequences of blocks, of which any may match. `least` and `most` are how often it is
    taken (most None: no limit); an `optional` block may be left out.
    """

    name: str
    contiguity: Contiguity = "relaxed"
    conditions: tuple[Condition, ...] = ()
    body: tuple[tuple[Block, ...], ...] = ()
    negated: bool = False
    least: int = 1
    most: int | None = 1
    optional: bool = False
    preference: Literal["fork", "greedy", "reluctant"] = "fork"
    inner: Contiguity = "relaxed"
    until: tuple[Condition, ...] = ()
    within: timedelta | None = None
    #: How long after each other the events of a loop come at most.
    between: timedelta | None = None
    shown: bool = True
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def loops(self) -> bool:
        return self.most != 1

    @property
    def nullable(self) -> bool:
        """Whether the pattern may go on without this block taking an event."""
        if self.negated or self.optional:
            return True
        return bool(self.body) and any(
            all(one.nullable for one in sequence) for sequence in self.body
        )


def leaves(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """Yield the blocks that take events, or must not meet one, in order."""
    for block in blocks:
        if block.body:
            for sequence in block.body:
                yield from leaves(sequence)
        else:
            yield block


def all_blocks(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """Yield every block, groups before what is in them."""
    for block in blocks:
        yield block
        for sequence in block.body:
            yield from all_blocks(sequence)


def takes(predicate: Predicate, count: int) -> bool:
    """Tell whether a function can be called with so many arguments."""
    try:
        inspect.signature(predicate).bind(*[{}] * count)
    except TypeError:
        return False
    except ValueError:
        return count == 2  # a function of C that does not tell its parameters
    return True
