"""Matching that prefers, as SQL does: of the runs that begin together one match counts.

The runs of a key stand in the order of their starts, those that began together in the order of
preference, and every event moves all of them. Of a start at most one match is held; it waits for
the runs that are preferred to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millstream.patterns.kernel.compiled import allocating, compiled, entry
from millstream.patterns.kernel.edges import agrees, forget_answers, is_open
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.matches import begin, lengthen, record, skipped_to
from millstream.patterns.kernel.records import Carried, Events, Outcome, Rules, Run, Table, Work
from millstream.patterns.kernel.registers import remember
from millstream.patterns.kernel.space import (
    as_runs,
    copy,
    count,
    first,
    is_full,
    larger,
    outcome,
    with_rows,
    workspace,
)


class Tables(NamedTuple):
    """Two tables of runs: an event moves those of one into the other, which is next to be moved."""

    one: Run
    other: Run


@entry
def match_preferring(rules: Rules, events: Events, carried: Carried, watermark: int) -> Outcome:
    """Match the events of a shard, key after key."""
    width = rules.settings[RUN_WIDTH]
    one = as_runs(np.empty((64, width), np.int64))
    tables = Tables(one, as_runs(np.empty((64, width), np.int64)))
    work = workspace(rules, carried)
    while not match_keys(rules, events, carried, watermark, tables, work):
        tables, work = larger_tables(tables, work), larger(work)
    return outcome(work)


@allocating
def larger_tables(tables: Tables, work: Work) -> Tables:
    """Return tables with room for the runs that were wanted last."""
    rows = work.counters[C_RUNS] + work.counters[C_WANTED]
    one = as_runs(with_rows(tables.one.whole, rows))
    return Tables(one, as_runs(with_rows(tables.other.whole, rows)))


@compiled
def is_crowded(runs: Run, work: Work, more: int) -> bool:
    """Tell whether there is no room for so many more runs, nodes and matches."""
    return is_full(work, more) or runs.whole.shape[0] < work.counters[C_RUNS] + more


# How far matching is, `work.counters` say: each of these three returns False where a table is full,
# and goes on from there when it is called again, with larger ones.


@compiled
def match_keys(
    rules: Rules, events: Events, carried: Carried, watermark: int, tables: Tables, work: Work
) -> bool:
    """Match the events of the keys that are left."""
    counters, room = work.counters, rules.settings[ROOM]
    while counters[C_KEY] < events.ends.shape[0]:
        key = counters[C_KEY]
        if counters[C_ENTERED] == 0:
            counters[C_RUNS] = counters[C_TURN] = 0
            more = max(count(carried.run_ends, key), count(carried.held_ends, key))
            if is_crowded(tables.one, work, more + room):
                return False
            enter(carried, key, tables.one.whole, work)
            counters[C_ENTERED], counters[C_EVENT] = 1, first(events.ends, key)
        if not match_events(rules, events, key, tables, work):
            return False
        if is_full(work, counters[C_RUNS] + room):
            return False
        now = tables.one.whole if counters[C_TURN] == 0 else tables.other.whole
        expire(rules, events, watermark, now, work)
        if watermark >= FOREVER:
            counters[C_FIRST] = counters[C_RUNS]
            release(rules, events, watermark, now, work)
        leave(now, work)
        counters[C_ENTERED] = 0
        counters[C_KEY] += 1
    return True


@compiled
def match_events(rules: Rules, events: Events, key: int, tables: Tables, work: Work) -> bool:
    """Match the events of a key that are left."""
    counters = work.counters
    while counters[C_EVENT] < events.ends[key]:
        now, after = tables.one, tables.other
        if counters[C_TURN] == 1:
            now, after = after, now
        event = counters[C_EVENT]
        if counters[C_MOVING] == 0:
            expire(rules, events, events.times[event], now.whole, work)
            counters[C_PLACE], counters[C_PLACE_END] = counters[C_FIRST], counters[C_RUNS]
            counters[C_FIRST], counters[C_RUNS], counters[C_DECIDED] = 0, 0, -1
            counters[C_MOVING] = 1
        if not move_all(rules, events, event, key, now.whole, after, work):
            return False
        release(rules, events, events.times[event], after.whole, work)
        counters[C_MOVING], counters[C_TURN] = 0, 1 - counters[C_TURN]
        counters[C_EVENT] += 1
    return True


@compiled
def move_all(
    rules: Rules, events: Events, event: int, key: int, runs: Table, after: Run, work: Work
) -> bool:
    """Move `runs` by an event, into `after`, then begin one."""
    counters, run, room = work.counters, work.run.whole, rules.settings[ROOM]
    while counters[C_PLACE] <= counters[C_PLACE_END]:
        if is_crowded(after, work, room):
            return False
        place = counters[C_PLACE]
        counters[C_PLACE] += 1
        if place == counters[C_PLACE_END]:
            begin(rules, events, event, key, run)
            follow(rules, events, event, rules.states.shape[0] - 1, after, work)
        elif runs[place, START] != counters[C_DECIDED]:
            copy(runs[place], run)
            if follow(rules, events, event, run[STATE], after, work):
                counters[C_DECIDED] = run[START]
    return True


@compiled
def enter(carried: Carried, key: int, runs: Table, work: Work) -> None:
    """Bring in the runs and held matches of a key."""
    counters = work.counters
    counters[C_FIRST], counters[C_RUNS] = 0, count(carried.run_ends, key)
    counters[C_FIRST_HELD], counters[C_HELD] = 0, count(carried.held_ends, key)
    for at in range(counters[C_RUNS]):
        copy(carried.runs[first(carried.run_ends, key) + at], runs[at])
        runs[at, KEY] = key
    for at in range(counters[C_HELD]):
        copy(carried.held[first(carried.held_ends, key) + at], work.held[at])
        work.held[at, M_KEY] = key


@compiled
def leave(runs: Table, work: Work) -> None:
    """Take the runs and held matches of a key out, to what is left of the keys before."""
    counters = work.counters
    for at in range(counters[C_FIRST], counters[C_RUNS]):
        copy(runs[at], work.runs_left[counters[C_RUNS_LEFT]])
        counters[C_RUNS_LEFT] += 1
    for at in range(counters[C_FIRST_HELD], counters[C_HELD]):
        copy(work.held[at], work.held_left[counters[C_HELD_LEFT]])
        counters[C_HELD_LEFT] += 1


@compiled
def follow(rules: Rules, events: Events, event: int, state: int, runs: Run, work: Work) -> bool:
    """Add what `work.run` becomes by an event, the preferred ones first.

    Returns whether a match ends what is wanted of its start.
    """
    run, counters, at = work.run.whole, work.counters, events.times[event]
    for place in range(rules.states[state, FIRST_EDGE], rules.states[state, EDGE_END]):
        edge = rules.edges[place]
        if not is_open(edge, events.masks[event], at - run[LAST_AT]):
            continue
        slot = counters[C_RUNS]
        after = Run(runs.whole[slot], runs.real[slot])
        copy(run, after.whole)
        # In SQL an event counts as taken when its condition is tested.
        remember(rules, edge[TAKE], events, event, after)
        forget_answers(work.stack)
        if not agrees(rules, edge, events, event, after, work.stack):
            continue
        lengthen(after.whole, events, event, edge[TAKE], work.nodes, counters[C_NODES])
        counters[C_NODES] += 1
        if edge[COMPLETES] == 1:
            hold(after.whole, at, events.numbers[events.base + event], work)
        if edge[TARGET] >= 0:
            after.whole[STATE] = edge[TARGET]
            if not is_known(runs.whole, slot, rules.states[edge[TARGET], READ]):
                counters[C_RUNS] += 1
        if edge[COMPLETES] == 1:
            return True
    return False


@compiled
def is_known(runs: Table, place: int, read: int) -> bool:
    """Tell whether a run that began with this one is in the same state and remembers the same.

    If so, that one is preferred for ever. Registers count that are still read.
    """
    other = place - 1
    while other >= 0 and runs[other, START] == runs[place, START]:
        if runs[other, STATE] == runs[place, STATE] and is_equal(runs[other], runs[place], read):
            return True
        other -= 1
    return False


@compiled
def is_equal(one: Table, other: Table, read: int) -> bool:
    """Tell whether two runs remember the same in the registers that are still read."""
    if (one[NULLS] ^ other[NULLS]) & read != 0:
        return False
    for at in range(one.shape[0] - REGISTERS):
        wanted = read == -1 or (read >> at) & 1 == 1
        if wanted and one[REGISTERS + at] != other[REGISTERS + at]:
            return False
    return True


@compiled
def hold(run: Table, at: int, ended: int, work: Work) -> None:
    """Hold a match in the order of starts; it replaces one that began with it."""
    held, counters = work.held, work.counters
    place = counters[C_HELD]
    while place > counters[C_FIRST_HELD] and held[place - 1, M_START] > run[START]:
        place -= 1
    if place > counters[C_FIRST_HELD] and held[place - 1, M_START] == run[START]:
        record(held, place - 1, run, at, ended, 0)
        return
    for other in range(counters[C_HELD], place, -1):
        copy(held[other - 1], held[other])
    record(held, place, run, at, ended, 0)
    counters[C_HELD] += 1


@compiled
def expire(rules: Rules, events: Events, now: int, runs: Table, work: Work) -> None:
    """End the runs whose time is up, those that began together at once."""
    within, counters = rules.settings[WITHIN], work.counters
    if within < 0:
        return
    while counters[C_FIRST] < counters[C_RUNS]:
        moment = runs[counters[C_FIRST], STARTED_AT] + within
        if moment > now:
            return
        while (
            counters[C_FIRST] < counters[C_RUNS]
            and runs[counters[C_FIRST], STARTED_AT] + within <= moment
        ):
            counters[C_FIRST] += 1
        release(rules, events, moment, runs, work)


@compiled
def release(rules: Rules, events: Events, now: int, runs: Table, work: Work) -> None:
    """Release the matches that no run is preferred to, and drop what they skip."""
    counters, held = work.counters, work.held
    while counters[C_FIRST_HELD] < counters[C_HELD]:
        match = held[counters[C_FIRST_HELD]]
        runs_left = counters[C_FIRST] < counters[C_RUNS]
        if runs_left and runs[counters[C_FIRST], START] <= match[M_START]:
            return
        found = work.found[counters[C_FOUND]]
        copy(match, found)
        if now < FOREVER:
            found[M_AT] = now
        counters[C_FOUND] += 1
        # Also what began with the match is dropped, even if it skips nothing: it was preferred.
        limit = max(found[M_START] + 1, skipped_to(rules, found, work.nodes, events.numbers))
        while counters[C_FIRST] < counters[C_RUNS] and runs[counters[C_FIRST], START] < limit:
            counters[C_FIRST] += 1
        while (
            counters[C_FIRST_HELD] < counters[C_HELD]
            and held[counters[C_FIRST_HELD], M_START] < limit
        ):
            counters[C_FIRST_HELD] += 1
    counters[C_FIRST_HELD], counters[C_HELD] = 0, 0
