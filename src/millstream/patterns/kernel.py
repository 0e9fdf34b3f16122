"""The kernel: the automaton over columns, for all keys of a shard at once, compiled by numba.

It does what automaton.py does, run by run, on arrays of whole numbers. Runs hang in a list per
state, so that an event touches only the runs whose state it concerns: a state in which the event
would just be passed over is not looked into. A history is a chain of *nodes* (event, block, node
before), which forks share. Where no skip strategy and no singleton needs the exact set of live
runs, a run whose time is up is taken away when it is next touched, or at the end of the batch.

All tables are two-dimensional arrays of 64-bit integers, whose columns are named below; the
registers of a run follow its other columns and hold the bits of a float where they are not whole.
Truths and null marks are bits. Code here is Python that numba can compile: plain loops, few
helpers, no objects.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from numba.core import caching

Table = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Locator(caching.InTreeCacheLocator):
    """Keeps what was compiled with the user's other caches, by the content of this file: a new checkout compiles nothing anew.

    Not where numba is told by NUMBA_CACHE_DIR to keep it elsewhere, nor where the home cannot be
    written to.
    """

    _cache_path: str

    def get_cache_path(self) -> str:
        return self._cache_path

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Locator | None:
        if py_func.__module__ != __name__ or os.environ.get("NUMBA_CACHE_DIR"):
            return None
        made = cls(py_func, py_file)
        try:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            digest = hashlib.sha256(Path(py_file).read_bytes()).hexdigest()[:12]
            made._cache_path = str(cache / "millstream" / f"kernel-{digest}")
            made.ensure_cache_path()
        except (OSError, RuntimeError):
            return None
        return made


caching.CacheImpl._locator_classes.insert(0, Locator)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called, or load it from the cache of an earlier process."""
    made: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return made


# Columns of the edges.
NEED: Final = 0
FORBID: Final = 1
TAKE: Final = 2
TARGET: Final = 3
COMPLETES: Final = 4
BEFORE: Final = 5
ASK: Final = 6  # history tests that must hold: asks[ASK:ASK_END], with the bit of each beside it
ASK_END: Final = 7
DENY: Final = 8  # history tests that must not hold
DENY_END: Final = 9
EDGE_WIDTH: Final = 10

# Columns of the states.
FIRST: Final = 0
LAST_EDGE: Final = 1
PENDING: Final = 2
PATIENCE: Final = 3

# Columns of a run.
STATE: Final = 0
NODE: Final = 1
LENGTH: Final = 2
START: Final = 3
STARTED_AT: Final = 4
LAST_AT: Final = 5
NULLS: Final = 6
NEXT: Final = 7
KEY: Final = 8
REGISTERS: Final = 9

# Columns of a match, held or found.
M_KEY: Final = 0
M_NODE: Final = 1
M_LENGTH: Final = 2
M_START: Final = 3
M_AT: Final = 4
M_ENDED: Final = 5
M_LATE: Final = 6
M_STARTED_AT: Final = 7
MATCH_WIDTH: Final = 8

# Columns of a node.
EVENT: Final = 0
BLOCK: Final = 1
BEFORE_NODE: Final = 2

# Columns of the registers.
FUNCTION: Final = 0
VALUE: Final = 1
BLOCKS: Final = 2
REAL: Final = 3
COUNTS_AT: Final = (
    4  # where an average keeps its count, or the register that one which lies back takes over from
)
R_FIRST, R_LAST, R_COUNT, R_SUM, R_MIN, R_MAX, R_ANY, R_AVG, R_SHIFT = range(
    9
)  # R_SHIFT + n: a last that lies n back

# Settings.
WITHIN: Final = 0
SKIP: Final = 1
SKIP_BLOCKS: Final = 2
SINGLETON: Final = 3
LATE_WANTED: Final = 4
RUN_WIDTH: Final = 5
START_STATE: Final = 6
ROOM: Final = 7  # how many runs, nodes and matches one run may become by one event
NO_SKIP, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = range(5)

# Counters.
C_POOL: Final = 0
C_FREE: Final = 1
C_SPARE: Final = 2
C_NODES: Final = 3
C_FOUND: Final = 4
C_HELD: Final = 5
C_LIVE: Final = 6
C_OUT: Final = 7
C_SOONEST: Final = 8

NEVER: Final = np.int64(2**62)
FOREVER: Final = np.int64(
    200_000_000_000_000_000
)  # a watermark behind which nothing comes, as in automaton.py


@compiled
def grown(table: Table) -> Table:
    """Return a copy of a table with twice the rows."""
    bigger = np.empty((table.shape[0] * 2 + 16, table.shape[1]), np.int64)
    bigger[: table.shape[0]] = table
    return bigger


@compiled
def _pop2(op, top, whole, real, null):
    """Apply an operation to the two upper numbers of the stack."""
    a, b = top - 2, top - 1
    if op == 40:  # AND
        false = (not null[a] and whole[a] == 0) or (not null[b] and whole[b] == 0)
        null[a] = not false and (null[a] or null[b])
        whole[a] = 0 if false else 1
        return
    if op == 41:  # OR
        true = (not null[a] and whole[a] != 0) or (not null[b] and whole[b] != 0)
        null[a] = not true and (null[a] or null[b])
        whole[a] = 1 if true else 0
        return
    if op == 44 or op == 45:  # COALESCE
        if null[a]:
            null[a], whole[a], real[a] = null[b], whole[b], real[b]
        return
    if op == 34 or op == 35:  # NULL_SAFE
        same = whole[a] == whole[b] if op == 34 else real[a] == real[b]
        whole[a] = 1 if (null[a] and null[b]) or (not null[a] and not null[b] and same) else 0
        null[a] = False
        return
    if op >= 46 and op <= 49:  # LEAST, GREATEST
        if null[a] or null[b]:
            if null[a]:
                null[a], whole[a], real[a] = null[b], whole[b], real[b]
            return
        if op == 46:
            whole[a] = min(whole[a], whole[b])
        elif op == 47:
            real[a] = min(real[a], real[b])
        elif op == 48:
            whole[a] = max(whole[a], whole[b])
        else:
            real[a] = max(real[a], real[b])
        return
    null[a] = null[a] or null[b]
    if null[a]:
        return
    _strict2(op, a, b, whole, real, null)


@compiled
def _strict2(op, a, b, whole, real, null):
    """Apply an operation to two numbers that are there."""
    if op == 10:
        whole[a] += whole[b]
    elif op == 11:
        real[a] += real[b]
    elif op == 12:
        whole[a] -= whole[b]
    elif op == 13:
        real[a] -= real[b]
    elif op == 14:
        whole[a] *= whole[b]
    elif op == 15:
        real[a] *= real[b]
    elif op == 36:
        null[a] = real[b] == 0.0
        if not null[a]:
            real[a] /= real[b]
    elif op == 37:
        null[a] = whole[b] == 0
        if not null[a]:
            rest = abs(whole[a]) % abs(whole[b])
            whole[a] = -rest if whole[a] < 0 else rest
    elif op == 38:
        null[a] = real[b] == 0.0
        if not null[a]:
            remainder = abs(real[a]) % abs(real[b])
            real[a] = -remainder if real[a] < 0 else remainder
    elif op == 39:
        null[a] = whole[b] == 0
        if not null[a]:
            quotient = abs(whole[a]) // abs(whole[b])
            whole[a] = quotient if (whole[a] < 0) == (whole[b] < 0) else -quotient
    else:
        order = 0
        if op % 2 == 0:
            order = (whole[a] > whole[b]) - (whole[a] < whole[b])
        else:
            order = (real[a] > real[b]) - (real[a] < real[b])
        kind = op - op % 2
        true = (
            (kind == 16 and order == 0)
            or (kind == 18 and order != 0)
            or (kind == 20 and order < 0)
            or (kind == 22 and order <= 0)
            or (kind == 24 and order > 0)
            or (kind == 26 and order >= 0)
        )
        whole[a] = 1 if true else 0


@compiled
def _push(
    op,
    argument,
    other,
    event,
    run,
    run_real,
    registers,
    values,
    values_real,
    missing,
    top,
    whole,
    real,
    null,
):
    """Put a number on the stack."""
    null[top] = False
    if op == 0:
        whole[top] = argument
    elif op == 1:
        real[top] = other
    elif op == 2:
        null[top] = True
    elif op == 3:
        null[top] = missing[argument, event]
        whole[top] = values[argument, event]
    elif op == 4:
        null[top] = missing[argument, event]
        real[top] = values_real[argument, event]
    else:
        null[top] = (run[NULLS] >> argument) & 1 == 1
        if op == 5:
            whole[top] = run[REGISTERS + argument]
        elif op == 6:
            real[top] = run_real[REGISTERS + argument]
        elif not null[top]:
            count = run[REGISTERS + registers[argument, COUNTS_AT]]
            total = run_real[REGISTERS + argument]
            if registers[argument, REAL] == 0:
                total = float(run[REGISTERS + argument])
            real[top] = total / count


@compiled
def holds(
    test,
    programs,
    ends,
    constants,
    event,
    run,
    run_real,
    registers,
    values,
    values_real,
    missing,
    stack,
):
    """Tell whether the history's part of a test holds for an event and a run."""
    whole, real, null = stack
    top = 0
    for at in range(ends[test], ends[test + 1]):
        op, argument = programs[at, 0], programs[at, 1]
        if op < 8:
            _push(
                op, argument, constants[at], event, run, run_real, registers, values, values_real, missing, top,
                whole, real, null,
            )  # fmt: skip
            top += 1
        elif op == 8:
            real[top - 1] = float(whole[top - 1])
        elif op == 28 or op == 30:
            whole[top - 1] = -whole[top - 1] if op == 28 else abs(whole[top - 1])
        elif op == 29 or op == 31:
            real[top - 1] = -real[top - 1] if op == 29 else abs(real[top - 1])
        elif op == 42:
            whole[top - 1] = 1 - whole[top - 1]
        elif op == 43:
            whole[top - 1] = 1 if null[top - 1] else 0
            null[top - 1] = False
        elif op == 32 or op == 33:
            take = top - 2 if not null[top - 3] and whole[top - 3] != 0 else top - 1
            null[top - 3], whole[top - 3], real[top - 3] = null[take], whole[take], real[take]
            top -= 2
        else:
            _pop2(op, top, whole, real, null)
            top -= 1
    return not null[0] and whole[0] != 0


@compiled
def open_edge(edge, mask, age):
    """Tell whether an edge may be taken, as far as the event alone tells."""
    if edge[NEED] & ~mask != 0 or edge[FORBID] & mask != 0:
        return False
    return edge[BEFORE] < 0 or age < edge[BEFORE]


@compiled
def still(number, state, edges, asks, mask):
    """Tell whether an event is just passed over by every run in a state."""
    ways = 0
    quiet = False
    for at in range(state[FIRST], state[LAST_EDGE]):
        edge = edges[at]
        if edge[NEED] & ~mask != 0 or edge[FORBID] & mask != 0:
            continue
        ways += 1
        sure = edge[BEFORE] < 0 and edge[ASK] == edge[ASK_END]
        for one in range(edge[DENY], edge[DENY_END]):
            sure = sure and asks[one, 1] & mask == 0
        quiet = sure and edge[TAKE] < 0 and edge[TARGET] == number and edge[COMPLETES] == 0
    return ways == 1 and quiet


@compiled
def remember(registers, block, event, values, values_real, missing, run, run_real):
    """Bring the registers of a run up to date when a block takes an event."""
    deepest = np.int64(0)
    for at in range(registers.shape[0]):
        deepest = max(deepest, registers[at, FUNCTION] - R_SHIFT)
    while deepest > 0:
        # Those that lie furthest back first, before what they take over is gone.
        for at in range(registers.shape[0]):
            if (
                registers[at, FUNCTION] - R_SHIFT == deepest
                and (registers[at, BLOCKS] >> block) & 1 == 1
            ):
                nearer = registers[at, COUNTS_AT]
                run[REGISTERS + at] = run[REGISTERS + nearer]
                run[NULLS] = (run[NULLS] & ~(1 << at)) | (((run[NULLS] >> nearer) & 1) << at)
        deepest -= 1
    for at in range(registers.shape[0]):
        register = registers[at]
        if (register[BLOCKS] >> block) & 1 == 0 or register[FUNCTION] > R_SHIFT:
            continue
        slot = REGISTERS + at
        absent = register[VALUE] >= 0 and missing[register[VALUE], event]
        function = register[FUNCTION]
        empty = (run[NULLS] >> at) & 1 == 1
        if function == R_COUNT:
            run[slot] += 0 if absent else 1
            continue
        if function == R_FIRST:
            # The bit beside the register's own says that there has been a first event.
            seen = run[REGISTERS + register[COUNTS_AT]]
            if seen != 0:
                continue
            run[REGISTERS + register[COUNTS_AT]] = 1
        elif function != R_LAST and absent:
            continue
        if absent:
            run[NULLS] |= 1 << at
            continue
        fresh = empty or function == R_LAST or function == R_FIRST
        run[NULLS] &= ~(1 << at)
        if register[REAL] == 1:
            run_real[slot] = _joined_real(
                function, fresh, run_real[slot], values_real[register[VALUE], event]
            )
        else:
            run[slot] = _joined(function, fresh, run[slot], values[register[VALUE], event])
        if function == R_AVG:
            run[REGISTERS + register[COUNTS_AT]] += 1


@compiled
def _joined(function, fresh, old, new):
    if fresh:
        return new
    if function == R_SUM or function == R_AVG:
        return old + new
    if function == R_MIN:
        return min(old, new)
    return max(old, new)


@compiled
def _joined_real(function, fresh, old, new):
    if fresh:
        return new
    if function == R_SUM or function == R_AVG:
        return old + new
    if function == R_MIN:
        return min(old, new)
    return max(old, new)


@compiled
def deadline(run, states, settings):
    """Return when the time of a run is up."""
    limit = NEVER
    if settings[WITHIN] >= 0:
        limit = run[STARTED_AT] + settings[WITHIN]
    patience = states[run[STATE], PATIENCE]
    if patience >= 0:
        limit = min(limit, run[LAST_AT] + patience)
    return limit


@compiled
def taken_slot(pool, counters):
    """Return a free row of the pool."""
    counters[C_LIVE] += 1
    slot = counters[C_FREE]
    if slot >= 0:
        counters[C_FREE] = pool[slot, NEXT]
        counters[C_SPARE] -= 1
        return slot
    slot = counters[C_POOL]
    counters[C_POOL] += 1
    return slot


@compiled
def freed_slot(pool, slot, counters):
    pool[slot, NEXT] = counters[C_FREE]
    counters[C_FREE] = slot
    counters[C_SPARE] += 1
    counters[C_LIVE] -= 1


@compiled
def hang(pool, slot, heads, states, settings, counters):
    """Put a run into the list of its state."""
    state = pool[slot, STATE]
    pool[slot, NEXT] = heads[state]
    heads[state] = slot
    limit = deadline(pool[slot], states, settings)
    counters[C_SOONEST] = min(counters[C_SOONEST], limit)


@compiled
def record(table, place, run, at, ended, late):
    """Write a match, or a run that is late, into a row of a table."""
    table[place, M_KEY] = run[KEY]
    table[place, M_NODE] = run[NODE]
    table[place, M_LENGTH] = run[LENGTH]
    table[place, M_START] = run[START]
    table[place, M_AT] = at
    table[place, M_ENDED] = ended
    table[place, M_LATE] = late
    table[place, M_STARTED_AT] = run[STARTED_AT]


@compiled
def finish(run, at, ended, found, held, settings, counters):
    """Note that a run is complete: found at once, or held until no run is left that began earlier."""
    if settings[SKIP] == NO_SKIP:
        record(found, counters[C_FOUND], run, at, ended, 0)
        counters[C_FOUND] += 1
    else:
        record(held, counters[C_HELD], run, at, ended, 0)
        counters[C_HELD] += 1


@compiled
def before_in_order(one, other, nodes, numbers):
    """Tell whether a match comes before another: by start, moment, end, most events, earliest events."""
    if one[M_START] != other[M_START]:
        return one[M_START] < other[M_START]
    if one[M_AT] != other[M_AT]:
        return one[M_AT] < other[M_AT]
    if one[M_ENDED] != other[M_ENDED]:
        return one[M_ENDED] < other[M_ENDED]
    if one[M_LENGTH] != other[M_LENGTH]:
        return one[M_LENGTH] > other[M_LENGTH]
    answer = False
    a, b = one[M_NODE], other[M_NODE]
    # Chains go from the end, so the last difference that is met is the first in order.
    while a >= 0 and a != b:
        left, right = numbers[nodes[a, EVENT]], numbers[nodes[b, EVENT]]
        if left != right:
            answer = left < right
        elif nodes[a, BLOCK] != nodes[b, BLOCK]:
            answer = nodes[a, BLOCK] < nodes[b, BLOCK]
        a, b = nodes[a, BEFORE_NODE], nodes[b, BEFORE_NODE]
    return answer


@compiled
def same_history(a, b, nodes):
    """Tell whether two chains of one length hold the same events in the same blocks."""
    while a >= 0 and a != b:
        if nodes[a, EVENT] != nodes[b, EVENT] or nodes[a, BLOCK] != nodes[b, BLOCK]:
            return False
        a, b = nodes[a, BEFORE_NODE], nodes[b, BEFORE_NODE]
    return True


@compiled
def distinct(table, first, last, nodes):
    """Leave each of the matches of one event out that is there before, and return where they now end."""
    kept = first
    for at in range(first, last):
        known = False
        for other in range(first, kept):
            if (
                table[at, M_LATE] + table[other, M_LATE] == 0
                and table[other, M_START] == table[at, M_START]
                and table[other, M_LENGTH] == table[at, M_LENGTH]
                and table[other, M_ENDED] == table[at, M_ENDED]
                and same_history(table[other, M_NODE], table[at, M_NODE], nodes)
            ):
                known = True
                break
        if not known:
            table[kept] = table[at]
            kept += 1
    return kept


@compiled
def skipped(match, nodes, numbers, settings):
    """Return the number of the first event at which other runs may have begun."""
    if settings[SKIP] == TO_NEXT:
        return match[M_START] + 1
    node = match[M_NODE]
    if settings[SKIP] == PAST_LAST:
        return numbers[nodes[node, EVENT]] + 1
    limit = np.int64(0)
    while node >= 0:
        if (settings[SKIP_BLOCKS] >> nodes[node, BLOCK]) & 1 == 1:
            number = numbers[nodes[node, EVENT]]
            if settings[SKIP] == TO_LAST:
                return number
            limit = number
        node = nodes[node, BEFORE_NODE]
    return limit


@compiled
def settle(now, pool, heads, nodes, numbers, found, held, settings, counters):
    """Let matches go that need not wait, and drop the runs that they skip."""
    while counters[C_HELD] > 0:
        best = 0
        for at in range(1, counters[C_HELD]):
            if before_in_order(held[at], held[best], nodes, numbers):
                best = at
        for state in range(heads.shape[0]):
            slot = heads[state]
            while slot >= 0:
                if pool[slot, START] < held[best, M_START]:
                    return
                slot = pool[slot, NEXT]
        found[counters[C_FOUND]] = held[best]
        if now < FOREVER:
            found[counters[C_FOUND], M_AT] = now
        limit = skipped(held[best], nodes, numbers, settings)
        counters[C_FOUND] += 1
        counters[C_HELD] -= 1
        held[best] = held[counters[C_HELD]]
        drop_before(limit, pool, heads, held, counters)


@compiled
def drop_before(limit, pool, heads, held, counters):
    """Drop runs and held matches that began before a number; NEVER drops all runs."""
    for state in range(heads.shape[0]):
        slot = heads[state]
        heads[state] = -1
        while slot >= 0:
            following = pool[slot, NEXT]
            if pool[slot, START] < limit:
                freed_slot(pool, slot, counters)
            else:
                pool[slot, NEXT] = heads[state]
                heads[state] = slot
            slot = following
    if limit == NEVER:
        return
    kept = 0
    for at in range(counters[C_HELD]):
        if held[at, M_START] >= limit:
            held[kept] = held[at]
            kept += 1
    counters[C_HELD] = kept


@compiled
def end_run(run, moment, states, found, held, settings, nodes, numbers, counters):
    """Note what becomes of a run whose time is up: a match if it is pending, else late."""
    if states[run[STATE], PENDING] == 1:
        finish(run, moment, numbers[nodes[run[NODE], EVENT]], found, held, settings, counters)
    elif settings[LATE_WANTED] == 1:
        record(found, counters[C_FOUND], run, moment, numbers[nodes[run[NODE], EVENT]], 1)
        counters[C_FOUND] += 1


@compiled
def expire_at(moment, pool, heads, states, nodes, numbers, found, held, settings, counters):
    """End the runs whose time is up at `moment`, and find the next such moment."""
    soonest = NEVER
    first_found, first_held = counters[C_FOUND], counters[C_HELD]
    for state in range(heads.shape[0]):
        slot = heads[state]
        heads[state] = -1
        while slot >= 0:
            following = pool[slot, NEXT]
            limit = deadline(pool[slot], states, settings)
            if limit <= moment:
                end_run(pool[slot], limit, states, found, held, settings, nodes, numbers, counters)
                freed_slot(pool, slot, counters)
            else:
                soonest = min(soonest, limit)
                pool[slot, NEXT] = heads[state]
                heads[state] = slot
            slot = following
    counters[C_SOONEST] = soonest
    if settings[SKIP] != NO_SKIP:
        counters[C_HELD] = distinct(held, first_held, counters[C_HELD], nodes)
        settle(moment, pool, heads, nodes, numbers, found, held, settings, counters)
    else:
        counters[C_FOUND] = distinct(found, first_found, counters[C_FOUND], nodes)


@compiled
def follow(
    edges, first, last, mask, event, index, at, number, programs, ends, constants, asks, registers, values,
    values_real, missing, stack, pool, pool_real, old, old_real, heads, states, nodes, found, held, settings, counters,
):  # fmt: skip
    """Add what a run becomes by an event; `old` is a copy of it, whose row may be used again."""
    # Most states ask one test, on several edges: its answer is kept.
    asked, answer = np.int64(-1), False
    for place in range(first, last):
        edge = edges[place]
        if not open_edge(edge, mask, at - old[LAST_AT]):
            continue
        ok = True
        for one in range(edge[ASK], edge[DENY_END]):
            if ok and asks[one, 1] & mask != 0:
                if asks[one, 0] != asked:
                    asked = asks[one, 0]
                    answer = holds(
                        asked, programs, ends, constants, event, old, old_real, registers, values, values_real, missing,
                        stack,
                    )  # fmt: skip
                ok = answer == (one < edge[ASK_END])
        if not ok:
            continue
        new = taken_slot(pool, counters)
        pool[new] = old
        if edge[TAKE] >= 0:
            node = counters[C_NODES]
            counters[C_NODES] += 1
            nodes[node, EVENT] = index
            nodes[node, BLOCK] = edge[TAKE]
            nodes[node, BEFORE_NODE] = old[NODE]
            pool[new, NODE] = node
            pool[new, LENGTH] += 1
            pool[new, LAST_AT] = at
            remember(
                registers,
                edge[TAKE],
                event,
                values,
                values_real,
                missing,
                pool[new],
                pool_real[new],
            )
        if edge[COMPLETES] == 1:
            finish(pool[new], at, number, found, held, settings, counters)
        if edge[TARGET] >= 0:
            pool[new, STATE] = edge[TARGET]
            hang(pool, new, heads, states, settings, counters)
        else:
            freed_slot(pool, new, counters)


@compiled
def match_shard(
    edges, states, asks, programs, ends, constants, registers, settings, times, masks, numbers, base, values,
    values_real, missing, event_ends, runs, run_ends, held_in, held_ends, nodes, node_count, watermark,
):  # fmt: skip
    """Match the events of a shard, key after key, and return runs, nodes, matches and held matches with their counts.

    The automaton is in `edges`, `states` (the last is the start), `asks`, `programs`, `ends`,
    `constants`, `registers` and `settings`; the new events, sorted by key and time, in `times`,
    `masks`, `values`, `values_real` and `missing`. `numbers` are those of all events that nodes
    speak of: the ones kept from before, then, from `base` on, the new ones. `event_ends`,
    `run_ends` and `held_ends` say where the events, runs and held matches of each key end. `runs`,
    `held_in` and `nodes` are kept from before.
    """
    width = settings[RUN_WIDTH]
    lazy = settings[SKIP] == NO_SKIP and settings[SINGLETON] == 0
    start = states[states.shape[0] - 1]
    heads = np.full(states.shape[0] - 1, -1, np.int64)
    todo = np.full(states.shape[0] - 1, -1, np.int64)
    pool = np.empty((256, width), np.int64)
    pool_real = pool.view(np.float64)
    out = np.empty((max(64, runs.shape[0]), width), np.int64)
    found = np.empty((64, MATCH_WIDTH), np.int64)
    held = np.empty((64, MATCH_WIDTH), np.int64)
    held_out = np.empty((64, MATCH_WIDTH), np.int64)
    held_count = 0
    old = np.empty(width, np.int64)
    old_real = old.view(np.float64)
    stack = (np.zeros(32, np.int64), np.zeros(32, np.float64), np.zeros(32, np.bool_))
    counters = np.zeros(9, np.int64)
    counters[C_FREE] = -1
    counters[C_NODES] = node_count
    room = settings[ROOM]
    event_from, run_from, held_from = 0, 0, 0
    for key in range(event_ends.shape[0]):
        event_to, run_to, held_to = event_ends[key], run_ends[key], held_ends[key]
        counters[C_SOONEST] = NEVER
        counters[C_HELD] = held_to - held_from
        while held.shape[0] < counters[C_HELD] + room:
            held = grown(held)
        for at in range(held_from, held_to):
            held[at - held_from] = held_in[at]
            held[at - held_from, M_KEY] = key
        for at in range(run_from, run_to):
            if counters[C_SPARE] == 0 and counters[C_POOL] >= pool.shape[0]:
                pool = grown(pool)
                pool_real = pool.view(np.float64)
            slot = taken_slot(pool, counters)
            pool[slot] = runs[at]
            pool[slot, KEY] = key
            hang(pool, slot, heads, states, settings, counters)
        for event in range(event_from, event_to):
            now, mask = times[event], masks[event]
            number = numbers[base + event]
            if not lazy and counters[C_SOONEST] <= now:
                while (
                    found.shape[0] < counters[C_FOUND] + counters[C_LIVE] + counters[C_HELD] + room
                ):
                    found = grown(found)
                while held.shape[0] < counters[C_HELD] + counters[C_LIVE] + room:
                    held = grown(held)
                while counters[C_SOONEST] <= now:
                    expire_at(
                        counters[C_SOONEST],
                        pool,
                        heads,
                        states,
                        nodes,
                        numbers,
                        found,
                        held,
                        settings,
                        counters,
                    )
            first_found, first_held = counters[C_FOUND], counters[C_HELD]
            for state in range(heads.shape[0]):
                todo[state] = -1
                if heads[state] >= 0 and not still(state, states[state], edges, asks, mask):
                    todo[state] = heads[state]
                    heads[state] = -1
            for state in range(todo.shape[0]):
                slot = todo[state]
                while slot >= 0:
                    following = pool[slot, NEXT]
                    while nodes.shape[0] < counters[C_NODES] + room:
                        nodes = grown(nodes)
                    while found.shape[0] < counters[C_FOUND] + room:
                        found = grown(found)
                    while held.shape[0] < counters[C_HELD] + room:
                        held = grown(held)
                    while pool.shape[0] < counters[C_POOL] + room:
                        pool = grown(pool)
                        pool_real = pool.view(np.float64)
                    old[:] = pool[slot]
                    freed_slot(pool, slot, counters)
                    if lazy and deadline(old, states, settings) <= now:
                        end_run(
                            old,
                            deadline(old, states, settings),
                            states,
                            found,
                            held,
                            settings,
                            nodes,
                            numbers,
                            counters,
                        )
                    else:
                        follow(
                            edges, states[state, FIRST], states[state, LAST_EDGE], mask, event, base + event, now,
                            number, programs, ends, constants, asks, registers, values, values_real, missing, stack,
                            pool, pool_real, old, old_real, heads, states, nodes, found, held, settings, counters,
                        )  # fmt: skip
                    slot = following
            if settings[SINGLETON] == 0 or counters[C_LIVE] == 0:
                possible = False
                for place in range(start[FIRST], start[LAST_EDGE]):
                    possible = possible or open_edge(edges[place], mask, 0)
                if possible:
                    while nodes.shape[0] < counters[C_NODES] + room:
                        nodes = grown(nodes)
                    while found.shape[0] < counters[C_FOUND] + room:
                        found = grown(found)
                    while held.shape[0] < counters[C_HELD] + room:
                        held = grown(held)
                    while pool.shape[0] < counters[C_POOL] + room:
                        pool = grown(pool)
                        pool_real = pool.view(np.float64)
                    old[:] = 0
                    old[NODE] = -1
                    old[START] = number
                    old[STARTED_AT] = now
                    old[LAST_AT] = now
                    old[KEY] = key
                    for one in range(registers.shape[0]):
                        if registers[one, FUNCTION] != R_COUNT:
                            old[NULLS] |= 1 << one
                    follow(
                        edges, start[FIRST], start[LAST_EDGE], mask, event, base + event, now, number, programs,
                        ends, constants, asks, registers, values, values_real, missing, stack, pool, pool_real, old,
                        old_real, heads, states, nodes, found, held, settings, counters,
                    )  # fmt: skip
            if settings[SKIP] == NO_SKIP:
                if counters[C_FOUND] - first_found > 1:
                    counters[C_FOUND] = distinct(found, first_found, counters[C_FOUND], nodes)
            elif counters[C_HELD] > 0:
                counters[C_HELD] = distinct(held, first_held, counters[C_HELD], nodes)
                while found.shape[0] < counters[C_FOUND] + counters[C_HELD] + room:
                    found = grown(found)
                settle(now, pool, heads, nodes, numbers, found, held, settings, counters)
        while found.shape[0] < counters[C_FOUND] + counters[C_LIVE] + counters[C_HELD] + room:
            found = grown(found)
        while held.shape[0] < counters[C_HELD] + counters[C_LIVE] + room:
            held = grown(held)
        while counters[C_SOONEST] <= watermark:
            moment = watermark if lazy else counters[C_SOONEST]
            expire_at(moment, pool, heads, states, nodes, numbers, found, held, settings, counters)
        if watermark >= FOREVER:
            drop_before(NEVER, pool, heads, held, counters)
            settle(watermark, pool, heads, nodes, numbers, found, held, settings, counters)
        while out.shape[0] < counters[C_OUT] + counters[C_LIVE]:
            out = grown(out)
        for state in range(heads.shape[0]):
            slot = heads[state]
            heads[state] = -1
            while slot >= 0:
                following = pool[slot, NEXT]
                out[counters[C_OUT]] = pool[slot]
                counters[C_OUT] += 1
                freed_slot(pool, slot, counters)
                slot = following
        while held_out.shape[0] < held_count + counters[C_HELD]:
            held_out = grown(held_out)
        for at in range(counters[C_HELD]):
            held_out[held_count] = held[at]
            held_count += 1
        event_from, run_from, held_from = event_to, run_to, held_to
    return (
        out, counters[C_OUT], nodes, counters[C_NODES], found, counters[C_FOUND], held_out, held_count,
    )  # fmt: skip


@compiled
def unrolled(found, count, nodes, offsets, blocks, events):
    """Write the histories of matches, one after the other, into `blocks` and `events`."""
    for match in range(count):
        place = offsets[match + 1]
        node = found[match, M_NODE]
        while node >= 0:
            place -= 1
            blocks[place] = nodes[node, BLOCK]
            events[place] = nodes[node, EVENT]
            node = nodes[node, BEFORE_NODE]


@compiled
def reachable(runs, column, nodes, marks):
    """Mark the nodes that are still part of a history."""
    for at in range(runs.shape[0]):
        node = runs[at, column]
        while node >= 0 and marks[node] == 0:
            marks[node] = 1
            node = nodes[node, BEFORE_NODE]


# Patterns that prefer (SQL): the runs of a key stand in the order of their starts, those that began
# together in the order of preference, and every event moves all of them. Of a start at most one
# match is held; it waits for the runs that are preferred to it.
P_FIRST: Final = 0  # where the runs begin: those before are dropped
P_RUNS: Final = 1
P_HELD_FIRST: Final = 2
P_HELD: Final = 3
P_FOUND: Final = 4
P_NODES: Final = 5


@compiled
def goes_on_at(match, nodes, numbers, settings):
    """Return the number of the first event at which another match may begin."""
    limit = match[M_START] + 1
    if settings[SKIP] == TO_NEXT:
        return limit
    return max(limit, skipped(match, nodes, numbers, settings))


@compiled
def let_go(now, runs, held, nodes, numbers, found, settings, counters):
    """Let the matches go that no run is preferred to, and drop what they skip."""
    while counters[P_HELD_FIRST] < counters[P_HELD]:
        match = held[counters[P_HELD_FIRST]]
        if (
            counters[P_FIRST] < counters[P_RUNS]
            and runs[counters[P_FIRST], START] <= match[M_START]
        ):
            return
        found[counters[P_FOUND]] = match
        if now < FOREVER:
            found[counters[P_FOUND], M_AT] = now
        counters[P_FOUND] += 1
        limit = goes_on_at(match, nodes, numbers, settings)
        while counters[P_FIRST] < counters[P_RUNS] and runs[counters[P_FIRST], START] < limit:
            counters[P_FIRST] += 1
        while (
            counters[P_HELD_FIRST] < counters[P_HELD]
            and held[counters[P_HELD_FIRST], M_START] < limit
        ):
            counters[P_HELD_FIRST] += 1


@compiled
def time_up(now, runs, held, nodes, numbers, found, settings, counters):
    """End the runs whose time is up, those that began together at once."""
    while (
        counters[P_FIRST] < counters[P_RUNS]
        and runs[counters[P_FIRST], STARTED_AT] + settings[WITHIN] <= now
    ):
        moment = runs[counters[P_FIRST], STARTED_AT] + settings[WITHIN]
        while (
            counters[P_FIRST] < counters[P_RUNS]
            and runs[counters[P_FIRST], STARTED_AT] + settings[WITHIN] <= moment
        ):
            counters[P_FIRST] += 1
        let_go(moment, runs, held, nodes, numbers, found, settings, counters)


@compiled
def hold(run, at, ended, held, counters):
    """Hold a match in the order of starts, in place of one that began with it and is not preferred to it."""
    place = counters[P_HELD]
    while place > counters[P_HELD_FIRST] and held[place - 1, M_START] > run[START]:
        place -= 1
    if place > counters[P_HELD_FIRST] and held[place - 1, M_START] == run[START]:
        record(held, place - 1, run, at, ended, 0)
        return
    for other in range(counters[P_HELD], place, -1):
        held[other] = held[other - 1]
    record(held, place, run, at, ended, 0)
    counters[P_HELD] += 1


@compiled
def known_run(runs, place):
    """Tell whether a run that began with this one is in the same state and remembers the same: it is preferred for ever."""
    other = place - 1
    while other >= 0 and runs[other, START] == runs[place, START]:
        same = runs[other, STATE] == runs[place, STATE] and runs[other, NULLS] == runs[place, NULLS]
        at = REGISTERS
        while same and at < runs.shape[1]:
            same = runs[other, at] == runs[place, at]
            at += 1
        if same:
            return True
        other -= 1
    return False


@compiled
def prefer(
    edges, first, last, mask, event, index, at, number, programs, ends, constants, asks, registers, values,
    values_real, missing, stack, old, runs, runs_real, nodes, held, counters,
):  # fmt: skip
    """Add what a run becomes by an event, the preferred ones first; tell whether a match ends what is wanted of its start."""
    for place in range(first, last):
        edge = edges[place]
        if not open_edge(edge, mask, at - old[LAST_AT]):
            continue
        new = counters[P_RUNS]
        runs[new] = old
        # In SQL an event counts as taken when its condition is tested.
        remember(
            registers, edge[TAKE], event, values, values_real, missing, runs[new], runs_real[new]
        )
        ok = True
        for one in range(edge[ASK], edge[DENY_END]):
            if ok and asks[one, 1] & mask != 0:
                answer = holds(
                    asks[one, 0], programs, ends, constants, event, runs[new], runs_real[new], registers, values,
                    values_real, missing, stack,
                )  # fmt: skip
                ok = answer == (one < edge[ASK_END])
        if not ok:
            continue
        node = counters[P_NODES]
        counters[P_NODES] += 1
        nodes[node, EVENT] = index
        nodes[node, BLOCK] = edge[TAKE]
        nodes[node, BEFORE_NODE] = old[NODE]
        runs[new, NODE] = node
        runs[new, LENGTH] += 1
        runs[new, LAST_AT] = at
        if edge[COMPLETES] == 1:
            hold(runs[new], at, number, held, counters)
        if edge[TARGET] >= 0:
            runs[new, STATE] = edge[TARGET]
            if not known_run(runs, new):
                counters[P_RUNS] += 1
        if edge[COMPLETES] == 1:
            return True
    return False


@compiled
def match_preferring(
    edges, states, asks, programs, ends, constants, registers, settings, times, masks, numbers, base, values,
    values_real, missing, event_ends, runs, run_ends, held_in, held_ends, nodes, node_count, watermark,
):  # fmt: skip
    """Match the events of a shard as `match_shard` does, for a pattern that prefers."""
    width, room = settings[RUN_WIDTH], settings[ROOM]
    start = states[states.shape[0] - 1]
    now_runs = np.empty((64, width), np.int64)
    next_runs = np.empty((64, width), np.int64)
    next_real = next_runs.view(np.float64)
    out = np.empty((max(64, runs.shape[0]), width), np.int64)
    found = np.empty((64, MATCH_WIDTH), np.int64)
    held = np.empty((64, MATCH_WIDTH), np.int64)
    held_out = np.empty((64, MATCH_WIDTH), np.int64)
    out_count, held_count = 0, 0
    old = np.empty(width, np.int64)
    stack = (np.zeros(32, np.int64), np.zeros(32, np.float64), np.zeros(32, np.bool_))
    counters = np.zeros(6, np.int64)
    counters[P_NODES] = node_count
    event_from, run_from, held_from = 0, 0, 0
    for key in range(event_ends.shape[0]):
        event_to, run_to, held_to = event_ends[key], run_ends[key], held_ends[key]
        while now_runs.shape[0] < run_to - run_from:
            now_runs = grown(now_runs)
        while held.shape[0] < held_to - held_from + room:
            held = grown(held)
        counters[P_FIRST], counters[P_RUNS] = 0, run_to - run_from
        counters[P_HELD_FIRST], counters[P_HELD] = 0, held_to - held_from
        for at in range(run_from, run_to):
            now_runs[at - run_from] = runs[at]
            now_runs[at - run_from, KEY] = key
        for at in range(held_from, held_to):
            held[at - held_from] = held_in[at]
            held[at - held_from, M_KEY] = key
        for event in range(event_from, event_to):
            now, mask, number = times[event], masks[event], numbers[base + event]
            while found.shape[0] < counters[P_FOUND] + counters[P_HELD] + counters[P_RUNS] + room:
                found = grown(found)
            while held.shape[0] < counters[P_HELD] + counters[P_RUNS] + room:
                held = grown(held)
            if settings[WITHIN] >= 0:
                time_up(now, now_runs, held, nodes, numbers, found, settings, counters)
            first, last = counters[P_FIRST], counters[P_RUNS]
            counters[P_FIRST], counters[P_RUNS] = 0, 0
            decided = np.int64(-1)
            for slot in range(first, last + 1):
                while next_runs.shape[0] < counters[P_RUNS] + room:
                    next_runs = grown(next_runs)
                    next_real = next_runs.view(np.float64)
                while nodes.shape[0] < counters[P_NODES] + room:
                    nodes = grown(nodes)
                state = start
                if slot < last:
                    if now_runs[slot, START] == decided:
                        continue
                    old[:] = now_runs[slot]
                    state = states[old[STATE]]
                else:
                    old[:] = 0
                    old[NODE] = -1
                    old[START] = number
                    old[STARTED_AT] = now
                    old[LAST_AT] = now
                    old[KEY] = key
                    for one in range(registers.shape[0]):
                        if registers[one, FUNCTION] != R_COUNT:
                            old[NULLS] |= 1 << one
                if prefer(
                    edges, state[FIRST], state[LAST_EDGE], mask, event, base + event, now, number, programs, ends,
                    constants, asks, registers, values, values_real, missing, stack, old, next_runs, next_real,
                    nodes, held, counters,
                ):  # fmt: skip
                    decided = old[START]
            now_runs, next_runs = next_runs, now_runs
            next_real = next_runs.view(np.float64)
            let_go(now, now_runs, held, nodes, numbers, found, settings, counters)
            if counters[P_HELD_FIRST] == counters[P_HELD]:
                counters[P_HELD_FIRST], counters[P_HELD] = 0, 0
        while found.shape[0] < counters[P_FOUND] + counters[P_HELD] + counters[P_RUNS] + room:
            found = grown(found)
        if settings[WITHIN] >= 0:
            time_up(watermark, now_runs, held, nodes, numbers, found, settings, counters)
        if watermark >= FOREVER:
            counters[P_FIRST] = counters[P_RUNS]
            let_go(watermark, now_runs, held, nodes, numbers, found, settings, counters)
        while out.shape[0] < out_count + counters[P_RUNS] - counters[P_FIRST]:
            out = grown(out)
        for at in range(counters[P_FIRST], counters[P_RUNS]):
            out[out_count] = now_runs[at]
            out_count += 1
        while held_out.shape[0] < held_count + counters[P_HELD] - counters[P_HELD_FIRST]:
            held_out = grown(held_out)
        for at in range(counters[P_HELD_FIRST], counters[P_HELD]):
            held_out[held_count] = held[at]
            held_count += 1
        event_from, run_from, held_from = event_to, run_to, held_to
    return out, out_count, nodes, counters[P_NODES], found, counters[P_FOUND], held_out, held_count
