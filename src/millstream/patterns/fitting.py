"""Whether the runs of a pattern in a flow fit a changed one: what a plan says of a switch.

The *states* of a pattern, as users name them, are its blocks: `--state slow.b=slow.c` renames one, and
`--consent drop:slow.b` loses the runs that have taken it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from millstream.errors import FlowError
from millstream.flow.durations import format as duration_text
from millstream.flow.matching import Matchable
from millstream.flow.stages.state_fit import StateFit
from millstream.patterns.automaton import Automaton
from millstream.patterns.carrying import HELD, Carrying
from millstream.patterns.compile import compile_pattern
from millstream.patterns.conditions import Owner
from millstream.patterns.losses import losses
from millstream.patterns.match_recognize import read
from millstream.patterns.outputs import read_outputs
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.query import Query
from millstream.patterns.vocabulary import Vocabulary

_COLUMN = re.compile(r"`[^`]+`|\w+")


class Matching(Protocol):
    """A stage of a flow that looks for a pattern."""

    @property
    def name(self) -> str: ...
    @property
    def pattern(self) -> Matchable: ...
    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def emit(self) -> str | None: ...
    @property
    def shards(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _KeptValues:
    """The values that are kept of events, as SQL: those that are emitted, or all columns."""

    values: frozenset[str] | None

    def __contains__(self, sql: object) -> bool:
        if self.values is None:
            return isinstance(sql, str) and _COLUMN.fullmatch(sql) is not None
        return sql in self.values


def fit(
    before: Matching, after: Matching, renames: Mapping[str, str], drops: Collection[str]
) -> StateFit:
    """Return how the runs of a stage fit a changed one."""
    if before.shards != after.shards:
        spread = (
            f"its keys are spread over {before.shards} shards, and would be over {after.shards}"
        )
        return StateFit((spread,), ways=(f"say shards={before.shards}",))
    if before.pattern.described() == after.pattern.described() and before.emit == after.emit:
        return StateFit()
    try:
        old, new = _automata(before), _automata(after)
    except FlowError as error:
        return StateFit((f"it has changed, and cannot be compared: {error}",))
    differences: dict[str, str] = {}
    for name, (automaton, kept) in old.items():
        heir = new[name][0] if name in new else None
        if heir is None:
            differences[name] = f'pattern "{name}" is gone'
            continue
        differences |= losses(Carrying(automaton, heir, renames, drops, kept))
        if _asks(heir) and not _asks(automaton) and kept.values is not None:
            differences[""] = "a Python condition looks at earlier events, which are not kept whole"
    lost = {name: why for name, why in differences.items() if name not in drops}
    return StateFit(
        tuple(lost.values()),
        tuple(_changes(old, new, renames, drops)),
        renamed=tuple(renames.items()),
        dropped=tuple(drops),
        remade=True,
        ways=tuple(_ways(before.name, after.name, [name for name in lost if name])),
    )


def _asks(automaton: Automaton) -> bool:
    """Tell whether Python is given the earlier events of a run."""
    return any(test.functions for test in automaton.tests)


def _ways(old: str, new: str, lost: Sequence[str]) -> Iterator[str]:
    blocks = [name for name in lost if name != HELD]
    if blocks:
        yield f"name the heir of a block with --state {old}.{blocks[0]}={new}.NAME"
    if lost:
        words = " ".join(f"--consent drop:{old}.{name}" for name in lost)
        what = f"the runs that have taken {' or '.join(blocks)}" if blocks else "these matches"
        yield f"lose only {what} with {words}"


def _changes(
    old: Mapping[str, tuple[Automaton, _KeptValues]],
    new: Mapping[str, tuple[Automaton, _KeptValues]],
    renames: Mapping[str, str],
    drops: Collection[str],
) -> Iterator[str]:
    """Yield what a user should know, though it does not stand in the way."""
    yield "runs keep the events that they have taken, and go on by the new conditions"
    yield from (f'block "{one}" is called "{other}" now' for one, other in renames.items())
    yield from (f'runs that have taken "{name}" are dropped' for name in drops)
    for name, (automaton, kept) in old.items():
        if name not in new:
            continue
        heir, wanted = new[name]
        if heir.within is not None and (automaton.within is None or heir.within < automaton.within):
            length = duration_text(_span(heir.within))
            yield f"runs that began {length} or more before the cut end there"
        missing = [sql for sql in sorted(wanted.values or ()) if sql not in kept]
        if missing:
            shown = ", ".join(missing)
            yield f"{shown} of events before the cut is not kept, and missing in their matches"


def _span(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _automata(stage: Matching) -> dict[str, tuple[Automaton, _KeptValues]]:
    """Return the automata of a stage by their names, each with what is kept of its events."""
    pattern = stage.pattern
    if isinstance(pattern, Query):
        found = read(pattern.sql)[1]
        values = frozenset({*found.outputs.values, *found.partition})
        return {"": (found.automaton, _KeptValues(None if found.all_rows else values))}
    if isinstance(pattern, Phenomenon):
        return {one.name or "": _automaton(one, stage) for one in pattern.patterns}
    if isinstance(pattern, Pattern):
        return {"": _automaton(pattern, stage)}
    raise FlowError(f"{type(pattern).__name__} is a pattern of another package")


def _automaton(pattern: Pattern, stage: Matching) -> tuple[Automaton, _KeptValues]:
    automaton = compile_pattern(pattern)
    text = pattern.output if pattern.output is not None else stage.emit
    if text is None:
        return automaton, _KeptValues(None)
    words = Vocabulary(dict(automaton.names))
    outputs = read_outputs(text, words, stage.by, Owner("the pattern", pattern.where))
    return automaton, _KeptValues(frozenset(outputs.values))
