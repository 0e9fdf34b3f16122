"""Histories and matches: how they are written, which comes first, and what one skips."""

from __future__ import annotations

from millstream.patterns.kernel.compiled import compiled, entry
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.records import Events, Rules, Table
from millstream.patterns.kernel.space import copy


@compiled
def begin(rules: Rules, events: Events, event: int, key: int, run: Table) -> None:
    """Make a run that has taken nothing yet."""
    for column in range(run.shape[0]):
        run[column] = 0
    run[NODE] = -1
    run[START] = events.numbers[events.base + event]
    run[STARTED_AT] = events.times[event]
    run[LAST_AT] = events.times[event]
    run[KEY] = key
    run[NULLS] = rules.settings[EMPTY_REGISTERS]


@compiled
def lengthen(run: Table, events: Events, event: int, block: int, nodes: Table, node: int) -> None:
    """Put an event that a block takes at the end of a run's history, as node number `node`."""
    nodes[node, EVENT] = events.base + event
    nodes[node, BLOCK] = block
    nodes[node, BEFORE_NODE] = run[NODE]
    run[NODE] = node
    run[LENGTH] += 1
    run[LAST_AT] = events.times[event]


@compiled
def record(table: Table, place: int, run: Table, at: int, ended: int, late: int) -> None:
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
def is_before(one: Table, other: Table, nodes: Table, numbers: Table) -> bool:
    """Tell the order of two matches: by start, moment, end, most events, earliest events."""
    if one[M_START] != other[M_START]:
        return one[M_START] < other[M_START]
    if one[M_AT] != other[M_AT]:
        return one[M_AT] < other[M_AT]
    if one[M_ENDED] != other[M_ENDED]:
        return one[M_ENDED] < other[M_ENDED]
    if one[M_LENGTH] != other[M_LENGTH]:
        return one[M_LENGTH] > other[M_LENGTH]
    before = False
    a, b = one[M_NODE], other[M_NODE]
    # Chains go from the end, so the last difference that is met is the first in order.
    while a >= 0 and a != b:
        left, right = numbers[nodes[a, EVENT]], numbers[nodes[b, EVENT]]
        if left != right:
            before = left < right
        elif nodes[a, BLOCK] != nodes[b, BLOCK]:
            before = nodes[a, BLOCK] < nodes[b, BLOCK]
        a, b = nodes[a, BEFORE_NODE], nodes[b, BEFORE_NODE]
    return before


@compiled
def is_same(one: Table, other: Table, nodes: Table) -> bool:
    """Tell whether two matches hold the same events in the same blocks."""
    if (
        one[M_LATE] + other[M_LATE] != 0
        or one[M_START] != other[M_START]
        or one[M_LENGTH] != other[M_LENGTH]
        or one[M_ENDED] != other[M_ENDED]
    ):
        return False
    a, b = one[M_NODE], other[M_NODE]
    while a >= 0 and a != b:
        if nodes[a, EVENT] != nodes[b, EVENT] or nodes[a, BLOCK] != nodes[b, BLOCK]:
            return False
        a, b = nodes[a, BEFORE_NODE], nodes[b, BEFORE_NODE]
    return True


@compiled
def distinct(table: Table, first: int, end: int, nodes: Table) -> int:
    """Leave out each of the matches of one event that is there before, and return their end."""
    kept = first
    for at in range(first, end):
        known = False
        for other in range(first, kept):
            if is_same(table[other], table[at], nodes):
                known = True
                break
        if not known:
            copy(table[at], table[kept])
            kept += 1
    return kept


@compiled
def skipped_to(rules: Rules, match: Table, nodes: Table, numbers: Table) -> int:
    """Return the number of the first event at which other runs may have begun."""
    skip, node = rules.settings[SKIP], match[M_NODE]
    if skip == TO_NEXT:
        return match[M_START] + 1
    if skip == PAST_LAST:
        return numbers[nodes[node, EVENT]] + 1
    limit = int64(0)
    while node >= 0:
        if (rules.settings[SKIP_BLOCKS] >> nodes[node, BLOCK]) & 1 == 1:
            limit = numbers[nodes[node, EVENT]]
            if skip == TO_LAST:
                break
        node = nodes[node, BEFORE_NODE]
    return limit


@entry
def unroll(found: Table, nodes: Table, starts: Table, blocks: Table, events: Table) -> None:
    """Write the histories of matches, one after the other, into `blocks` and `events`."""
    for match in range(found.shape[0]):
        place = starts[match + 1]
        node = found[match, M_NODE]
        while node >= 0:
            place -= 1
            blocks[place] = nodes[node, BLOCK]
            events[place] = nodes[node, EVENT]
            node = nodes[node, BEFORE_NODE]


@entry
def mark_reachable(ends: Table, nodes: Table, marks: Table) -> None:
    """Mark the nodes that are still part of a history, given the last node of each."""
    for at in range(ends.shape[0]):
        node = ends[at]
        while node >= 0 and marks[node] == 0:
            marks[node] = 1
            node = nodes[node, BEFORE_NODE]
