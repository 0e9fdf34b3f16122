"""Matching that follows every way: a run forks where an event opens several edges.

Runs hang in a list per state, so that an event touches only the runs whose state it concerns: a
state in which the event would just be passed over is not looked into. Where no skip strategy and no
singleton needs the exact set of live runs, matching is *lazy*: a run whose time is up is taken away
when it is next touched, or at the end of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millstream.patterns.kernel.compiled import allocating, compiled, entry
from millstream.patterns.kernel.edges import (
    agrees,
    forget_answers,
    is_open,
    is_passed_over,
    may_begin,
)
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.matches import (
    begin,
    distinct,
    is_before,
    lengthen,
    record,
    skipped_to,
)
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


class Pool(NamedTuple):
    """The live runs of a key: rows of a table, in a list for each state, and those set aside."""

    runs: Run
    heads: Table
    aside: Table


@entry
def match_forking(rules: Rules, events: Events, carried: Carried, watermark: int) -> Outcome:
    """Match the events of a shard, key after key."""
    pool, work = new_pool(rules), workspace(rules, carried)
    while not match_keys(rules, events, carried, watermark, pool, work):
        pool, work = larger_pool(pool, work), larger(work)
    return outcome(work)


@allocating
def new_pool(rules: Rules) -> Pool:
    """Return a pool without runs."""
    states = rules.states.shape[0] - 1
    runs = as_runs(np.empty((256, rules.settings[RUN_WIDTH]), np.int64))
    return Pool(runs, np.full(states, -1, np.int64), np.full(states, -1, np.int64))


@allocating
def larger_pool(pool: Pool, work: Work) -> Pool:
    """Return a pool with room for the runs that were wanted last."""
    rows = work.counters[C_POOL] + work.counters[C_WANTED]
    return Pool(as_runs(with_rows(pool.runs.whole, rows)), pool.heads, pool.aside)


@compiled
def is_crowded(pool: Pool, work: Work, more: int) -> bool:
    """Tell whether there is no room for so many more runs, nodes and matches."""
    return is_full(work, more) or pool.runs.whole.shape[0] < work.counters[C_POOL] + more


# How far matching is, `work.counters` say: each of these three returns False where a table is full,
# and goes on from there when it is called again, with larger ones.


@compiled
def match_keys(
    rules: Rules, events: Events, carried: Carried, watermark: int, pool: Pool, work: Work
) -> bool:
    """Match the events of the keys that are left."""
    counters, room = work.counters, rules.settings[ROOM]
    while counters[C_KEY] < events.ends.shape[0]:
        key = counters[C_KEY]
        if counters[C_ENTERED] == 0:
            more = max(count(carried.run_ends, key), count(carried.held_ends, key))
            if is_crowded(pool, work, more + room):
                return False
            enter(rules, carried, key, pool, work)
            counters[C_ENTERED], counters[C_EVENT] = 1, first(events.ends, key)
        if not match_events(rules, events, key, pool, work):
            return False
        if is_crowded(pool, work, 2 * counters[C_LIVE] + room):
            return False
        expire(rules, events, watermark, pool, work)
        if watermark >= FOREVER:
            drop_before(NEVER, pool, work)
            settle(rules, events, watermark, pool, work)
        leave(pool, work)
        counters[C_ENTERED] = 0
        counters[C_KEY] += 1
    return True


@compiled
def match_events(rules: Rules, events: Events, key: int, pool: Pool, work: Work) -> bool:
    """Match the events of a key that are left."""
    counters, settings = work.counters, rules.settings
    while counters[C_EVENT] < events.ends[key]:
        event = counters[C_EVENT]
        now = events.times[event]
        if counters[C_MOVING] == 0:
            if settings[LAZY] == 0 and counters[C_SOONEST] <= now:
                if is_crowded(pool, work, 2 * counters[C_LIVE] + settings[ROOM]):
                    return False
                expire(rules, events, now, pool, work)
            set_aside(rules, events.masks[event], pool)
            counters[C_FOUND_BEFORE], counters[C_HELD_BEFORE] = counters[C_FOUND], counters[C_HELD]
            counters[C_MOVING] = 1
        if not move_all(rules, events, event, key, pool, work):
            return False
        conclude(rules, events, now, pool, work)
        counters[C_MOVING] = 0
        counters[C_EVENT] += 1
    return True


@compiled
def move_all(rules: Rules, events: Events, event: int, key: int, pool: Pool, work: Work) -> bool:
    """Move the runs that are set aside by an event, then begin one."""
    room = rules.settings[ROOM]
    for state in range(pool.aside.shape[0]):
        while pool.aside[state] >= 0:
            if is_crowded(pool, work, room):
                return False
            slot = pool.aside[state]
            pool.aside[state] = pool.runs.whole[slot, NEXT]
            move(rules, events, event, slot, pool, work)
    if rules.settings[SINGLETON] == 1 and work.counters[C_LIVE] > 0:
        return True
    if may_begin(rules, events.masks[event]):
        if is_crowded(pool, work, room):
            return False
        begin(rules, events, event, key, work.run.whole)
        follow(rules, events, event, rules.states.shape[0] - 1, pool, work)
    return True


@compiled
def enter(rules: Rules, carried: Carried, key: int, pool: Pool, work: Work) -> None:
    """Bring in the runs and held matches of a key."""
    counters = work.counters
    counters[C_SOONEST] = NEVER
    counters[C_HELD] = count(carried.held_ends, key)
    for at in range(counters[C_HELD]):
        copy(carried.held[first(carried.held_ends, key) + at], work.held[at])
        work.held[at, M_KEY] = key
    for at in range(first(carried.run_ends, key), carried.run_ends[key]):
        slot = allocate(pool, counters)
        copy(carried.runs[at], pool.runs.whole[slot])
        pool.runs.whole[slot, KEY] = key
        hang(rules, slot, pool, counters)


@compiled
def leave(pool: Pool, work: Work) -> None:
    """Take the runs and held matches of a key out, to what is left of the keys before."""
    counters = work.counters
    for state in range(pool.heads.shape[0]):
        slot = pool.heads[state]
        pool.heads[state] = -1
        while slot >= 0:
            following = pool.runs.whole[slot, NEXT]
            copy(pool.runs.whole[slot], work.runs_left[counters[C_RUNS_LEFT]])
            counters[C_RUNS_LEFT] += 1
            free(slot, pool, counters)
            slot = following
    for at in range(counters[C_HELD]):
        copy(work.held[at], work.held_left[counters[C_HELD_LEFT]])
        counters[C_HELD_LEFT] += 1


# The pool


@compiled
def allocate(pool: Pool, counters: Table) -> int:
    """Return a free row of the pool."""
    counters[C_LIVE] += 1
    slot = counters[C_FREE]
    if slot >= 0:
        counters[C_FREE] = pool.runs.whole[slot, NEXT]
        return slot
    slot = counters[C_POOL]
    counters[C_POOL] += 1
    return slot


@compiled
def free(slot: int, pool: Pool, counters: Table) -> None:
    """Give a row of the pool back."""
    pool.runs.whole[slot, NEXT] = counters[C_FREE]
    counters[C_FREE] = slot
    counters[C_LIVE] -= 1


@compiled
def hang(rules: Rules, slot: int, pool: Pool, counters: Table) -> None:
    """Put a run into the list of its state."""
    relink(slot, pool)
    limit = deadline(rules, pool.runs.whole[slot])
    counters[C_SOONEST] = min(counters[C_SOONEST], limit)


@compiled
def relink(slot: int, pool: Pool) -> None:
    """Put a run whose deadline is known into the list of its state."""
    state = pool.runs.whole[slot, STATE]
    pool.runs.whole[slot, NEXT] = pool.heads[state]
    pool.heads[state] = slot


@compiled
def set_aside(rules: Rules, mask: int, pool: Pool) -> None:
    """Take the lists of the states that an event concerns out of the pool."""
    for state in range(pool.heads.shape[0]):
        pool.aside[state] = -1
        if pool.heads[state] >= 0 and not is_passed_over(rules, state, mask):
            pool.aside[state] = pool.heads[state]
            pool.heads[state] = -1


# Runs


@compiled
def move(rules: Rules, events: Events, event: int, slot: int, pool: Pool, work: Work) -> None:
    """Put what a run becomes by an event in its place."""
    run = work.run.whole
    copy(pool.runs.whole[slot], run)
    free(slot, pool, work.counters)
    if rules.settings[LAZY] == 1 and deadline(rules, run) <= events.times[event]:
        end(rules, events, run, deadline(rules, run), work)
    else:
        follow(rules, events, event, run[STATE], pool, work)


@compiled
def follow(rules: Rules, events: Events, event: int, state: int, pool: Pool, work: Work) -> None:
    """Add what `work.run`, which is in a state, becomes by an event."""
    run, counters = work.run.whole, work.counters
    forget_answers(work.stack)
    for place in range(rules.states[state, FIRST_EDGE], rules.states[state, EDGE_END]):
        edge = rules.edges[place]
        if not is_open(edge, events.masks[event], events.times[event] - run[LAST_AT]):
            continue
        if not agrees(rules, edge, events, event, work.run, work.stack):
            continue
        slot = allocate(pool, counters)
        after = Run(pool.runs.whole[slot], pool.runs.real[slot])
        copy(run, after.whole)
        if edge[TAKE] >= 0:
            lengthen(after.whole, events, event, edge[TAKE], work.nodes, counters[C_NODES])
            counters[C_NODES] += 1
            remember(rules, edge[TAKE], events, event, after)
        if edge[COMPLETES] == 1:
            number = events.numbers[events.base + event]
            complete(rules, after.whole, events.times[event], number, work)
        if edge[TARGET] >= 0:
            after.whole[STATE] = edge[TARGET]
            hang(rules, slot, pool, counters)
        else:
            free(slot, pool, counters)


@compiled
def deadline(rules: Rules, run: Table) -> int:
    """Return when the time of a run is up."""
    limit = NEVER
    if rules.settings[WITHIN] >= 0:
        limit = run[STARTED_AT] + rules.settings[WITHIN]
    patience = rules.states[run[STATE], PATIENCE]
    if patience >= 0:
        limit = min(limit, run[LAST_AT] + patience)
    return limit


@compiled
def end(rules: Rules, events: Events, run: Table, moment: int, work: Work) -> None:
    """Note what becomes of a run whose time is up: a match if it is pending, else late, or both."""
    number, pending = (
        events.numbers[work.nodes[run[NODE], EVENT]],
        rules.states[run[STATE], PENDING],
    )
    if pending != 0:
        complete(rules, run, moment, number, work)
    if pending != 1 and rules.settings[LATE_WANTED] == 1:
        record(work.found, work.counters[C_FOUND], run, moment, number, 1)
        work.counters[C_FOUND] += 1


@compiled
def expire(rules: Rules, events: Events, now: int, pool: Pool, work: Work) -> None:
    """End the runs whose time is up, one moment after the other unless matching is lazy."""
    counters = work.counters
    while counters[C_SOONEST] <= now:
        moment = now if rules.settings[LAZY] == 1 else counters[C_SOONEST]
        found_before, held_before = counters[C_FOUND], counters[C_HELD]
        counters[C_SOONEST] = expire_at(rules, events, moment, pool, work)
        if rules.settings[SKIP] == NO_SKIP:
            counters[C_FOUND] = distinct(work.found, found_before, counters[C_FOUND], work.nodes)
        else:
            counters[C_HELD] = distinct(work.held, held_before, counters[C_HELD], work.nodes)
            settle(rules, events, moment, pool, work)


@compiled
def expire_at(rules: Rules, events: Events, moment: int, pool: Pool, work: Work) -> int:
    """End the runs whose time is up at `moment`, and return the next such moment."""
    soonest = NEVER
    for state in range(pool.heads.shape[0]):
        slot = pool.heads[state]
        pool.heads[state] = -1
        while slot >= 0:
            following = pool.runs.whole[slot, NEXT]
            limit = deadline(rules, pool.runs.whole[slot])
            if limit <= moment:
                end(rules, events, pool.runs.whole[slot], limit, work)
                free(slot, pool, work.counters)
            else:
                soonest = min(soonest, limit)
                relink(slot, pool)
            slot = following
    return soonest


# Matches


@compiled
def complete(rules: Rules, run: Table, at: int, ended: int, work: Work) -> None:
    """Note that a run is complete: found at once, or held while runs that began earlier live."""
    if rules.settings[SKIP] == NO_SKIP:
        record(work.found, work.counters[C_FOUND], run, at, ended, 0)
        work.counters[C_FOUND] += 1
    else:
        record(work.held, work.counters[C_HELD], run, at, ended, 0)
        work.counters[C_HELD] += 1


@compiled
def conclude(rules: Rules, events: Events, now: int, pool: Pool, work: Work) -> None:
    """Leave out the matches of an event that are there twice, and release what need not wait."""
    counters = work.counters
    if rules.settings[SKIP] == NO_SKIP:
        before, after = counters[C_FOUND_BEFORE], counters[C_FOUND]
        if after - before > 1:
            counters[C_FOUND] = distinct(work.found, before, after, work.nodes)
    elif counters[C_HELD] > 0:
        before, after = counters[C_HELD_BEFORE], counters[C_HELD]
        counters[C_HELD] = distinct(work.held, before, after, work.nodes)
        settle(rules, events, now, pool, work)


@compiled
def settle(rules: Rules, events: Events, now: int, pool: Pool, work: Work) -> None:
    """Release the matches that need not wait, and drop the runs that they skip."""
    counters, held = work.counters, work.held
    while counters[C_HELD] > 0:
        best = 0
        for at in range(1, counters[C_HELD]):
            if is_before(held[at], held[best], work.nodes, events.numbers):
                best = at
        if began_before(held[best, M_START], pool):
            return
        found = work.found[counters[C_FOUND]]
        copy(held[best], found)
        if now < FOREVER:
            found[M_AT] = now
        counters[C_FOUND] += 1
        counters[C_HELD] -= 1
        copy(held[counters[C_HELD]], held[best])
        drop_before(skipped_to(rules, found, work.nodes, events.numbers), pool, work)


@compiled
def began_before(number: int, pool: Pool) -> bool:
    """Tell whether a run lives that began before the event with a number."""
    for state in range(pool.heads.shape[0]):
        slot = pool.heads[state]
        while slot >= 0:
            if pool.runs.whole[slot, START] < number:
                return True
            slot = pool.runs.whole[slot, NEXT]
    return False


@compiled
def drop_before(number: int, pool: Pool, work: Work) -> None:
    """Drop the runs and held matches that began before a number; NEVER drops all runs, no match."""
    for state in range(pool.heads.shape[0]):
        slot = pool.heads[state]
        pool.heads[state] = -1
        while slot >= 0:
            following = pool.runs.whole[slot, NEXT]
            if pool.runs.whole[slot, START] < number:
                free(slot, pool, work.counters)
            else:
                relink(slot, pool)
            slot = following
    if number == NEVER:
        return
    kept = 0
    for at in range(work.counters[C_HELD]):
        if work.held[at, M_START] >= number:
            copy(work.held[at], work.held[kept])
            kept += 1
    work.counters[C_HELD] = kept
