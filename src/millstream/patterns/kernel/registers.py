"""Registers: what a run remembers of the events that its blocks took."""

from __future__ import annotations

from typing import Any

from millstream.patterns.kernel.compiled import compiled
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.order import greatest, least
from millstream.patterns.kernel.records import Events, Rules, Run, Table


@compiled
def remember(rules: Rules, block: int, events: Events, event: int, run: Run) -> None:
    """Bring the registers of a run up to date when a block takes an event."""
    # Those that lie furthest back first, before what they take over is gone.
    for back in range(rules.settings[DEEPEST], 0, -1):
        take_over(rules.registers, back, block, run.whole)
    for at in range(rules.registers.shape[0]):
        concerned = (rules.registers[at, BLOCKS] >> block) & 1 == 1
        if concerned and rules.registers[at, FUNCTION] < R_BACK:
            update(rules.registers[at], at, events, event, run)


@compiled
def take_over(registers: Table, back: int, block: int, run: Table) -> None:
    """Give the registers that lie so far back what those one less back hold."""
    for at in range(registers.shape[0]):
        if registers[at, FUNCTION] == R_BACK + back and (registers[at, BLOCKS] >> block) & 1 == 1:
            nearer = registers[at, BESIDE]
            run[REGISTERS + at] = run[REGISTERS + nearer]
            run[NULLS] = (run[NULLS] & ~(1 << at)) | (((run[NULLS] >> nearer) & 1) << at)


@compiled
def update(register: Table, at: int, events: Events, event: int, run: Run) -> None:
    """Bring one register up to date."""
    function, value = register[FUNCTION], register[VALUE]
    own, beside = REGISTERS + at, REGISTERS + register[BESIDE]
    missing = value >= 0 and events.missing[value, event]
    if function == R_COUNT:
        run.whole[own] += 0 if missing else 1
        return
    if function == R_FIRST:
        if run.whole[beside] != 0:
            return
        run.whole[beside] = 1
    if missing:
        if function == R_FIRST or function == R_LAST:
            run.whole[NULLS] |= 1 << at
        return
    fresh = function == R_FIRST or function == R_LAST or (run.whole[NULLS] >> at) & 1 == 1
    run.whole[NULLS] &= ~(1 << at)
    if register[REAL] == 1:
        run.real[own] = joined(function, fresh, run.real[own], events.real[value, event])
    else:
        run.whole[own] = joined(function, fresh, run.whole[own], events.whole[value, event])
    if function == R_AVG:
        run.whole[beside] += 1


@compiled
def joined(function: int, fresh: bool, old: Any, new: Any) -> Any:
    """Return what a register holds after a value."""
    if fresh:
        return new
    if function == R_SUM or function == R_AVG:
        return old + new
    return least(old, new) if function == R_MIN else greatest(old, new)
