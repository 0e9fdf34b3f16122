"""Matching that moves all runs of a state at once, and drops those that a match skips.

The first match of a run drops the run itself, at least. So a group that is complete is *decided*: it
moves no further, and its leaves wait for the runs that began before them. Leaves stand in the order
of their starts, and all that is done goes from the first on:

    ended ended | decided live decided decided live        ->        live decided decided live
                  ^ released, with all below where its skip leads    ^ live: the others wait

So what a match skips is a place among the leaves, the *floor*, and not a list of runs. Each leaf is
passed once. A match that is kept is a row of length 0, whose node is its leaf.
"""

from __future__ import annotations

from millstream.patterns.kernel.compiled import compiled, entry
from millstream.patterns.kernel.edges import is_open
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.matches import is_before, skipped_to
from millstream.patterns.kernel.records import Carried, Events, Outcome, Rules, Table, Work
from millstream.patterns.kernel.sharing import (
    ENDED,
    Groups,
    add_leaf,
    add_node,
    complete,
    enter_run,
    is_crowded,
    join,
    larger_groups,
    leave_run,
    move_groups,
    new_groups,
    open_edges,
    standing_for,
    turn_around,
    turned,
)
from millstream.patterns.kernel.space import copy, count, first, larger, outcome, workspace

#: The state of a group whose matches wait for runs that began earlier.
DECIDED = -2


@entry
def match_skipping(rules: Rules, events: Events, carried: Carried, watermark: int) -> Outcome:
    """Match the events of a shard, key after key."""
    groups, work = new_groups(rules, carried), workspace(rules, carried)
    while not match_keys(rules, events, carried, watermark, groups, work):
        groups, work = larger_groups(groups, work), larger(work)
    return outcome(work)


# As in `sharing`, what returns False goes on from there when it is called again.


@compiled
def match_keys(
    rules: Rules, events: Events, carried: Carried, watermark: int, groups: Groups, work: Work
) -> bool:
    """Match the events of the keys that are left."""
    counters = work.counters
    while counters[C_KEY] < events.ends.shape[0]:
        key = counters[C_KEY]
        if counters[C_ENTERED] == 0:
            if not has_room(carried, key, groups, work):
                return False
            enter(carried, key, groups, work)
            counters[C_ENTERED], counters[C_EVENT] = 1, first(events.ends, key)
        if not match_events(rules, events, key, groups, work):
            return False
        if not expire(rules, events, key, watermark, groups, work):
            return False
        if watermark >= FOREVER and not settle(rules, events, key, FOREVER, groups, work):
            return False
        counters[C_WANTED] = counters[C_LEAVES] - counters[C_LEAF]
        if (
            work.runs_left.shape[0] < counters[C_RUNS_LEFT] + counters[C_WANTED]
            or work.held_left.shape[0] < counters[C_HELD_LEFT] + counters[C_WANTED]
        ):
            return False
        leave(key, groups, work)
        counters[C_ENTERED] = 0
        counters[C_KEY] += 1
    return True


@compiled
def match_events(rules: Rules, events: Events, key: int, groups: Groups, work: Work) -> bool:
    """Match the events of a key that are left."""
    counters, room = work.counters, 2 * rules.states.shape[0] + rules.settings[ROOM]
    while counters[C_EVENT] < events.ends[key]:
        event = counters[C_EVENT]
        if counters[C_MOVING] == 0:
            if not expire(rules, events, key, events.times[event], groups, work):
                return False
            if is_crowded(groups, work, room):
                return False
            open_edges(rules, events.masks[event], groups)
            decide_groups(rules, events, event, groups, work)
            move_groups(rules, events, event, groups, work)
            begin_run(rules, events, event, groups, work)
            counters[C_MOVING] = 1
        if not settle(rules, events, key, events.times[event], groups, work):
            return False
        counters[C_MOVING] = 0
        counters[C_EVENT] += 1
    return True


# Runs that come and go


@compiled
def has_room(carried: Carried, key: int, groups: Groups, work: Work) -> bool:
    """Tell whether there is room for the runs and held matches of a key, and to turn them around."""
    leaves = count(carried.run_ends, key) + count(carried.held_ends, key)
    more = turned(carried, key)
    for at in range(first(carried.held_ends, key), carried.held_ends[key]):
        more += carried.held[at, M_LENGTH]
    work.counters[C_WANTED] = max(leaves, more)
    return (
        groups.leaves.shape[0] >= work.counters[C_LEAVES] + leaves
        and work.nodes.shape[0] >= work.counters[C_NODES] + more
    )


@compiled
def enter(carried: Carried, key: int, groups: Groups, work: Work) -> None:
    """Bring in the runs and held matches of a key, in the order of their starts."""
    for state in range(groups.now.shape[0]):
        groups.after[state] = -1
    at, held = first(carried.run_ends, key), first(carried.held_ends, key)
    while at < carried.run_ends[key] or held < carried.held_ends[key]:
        if held >= carried.held_ends[key] or (
            at < carried.run_ends[key] and carried.runs[at, START] <= carried.held[held, M_START]
        ):
            enter_run(carried.runs[at], groups, work)
            at += 1
        else:
            enter_held(carried.held[held], groups, work)
            held += 1
    for state in range(groups.now.shape[0]):
        groups.now[state] = groups.after[state]
    work.counters[C_LATE] = 0


@compiled
def enter_held(match: Table, groups: Groups, work: Work) -> None:
    """Bring in a match that was held."""
    node, start, started_at = match[M_NODE], match[M_START], match[M_STARTED_AT]
    leaf = groups.leaves[add_leaf(groups, work.counters, node, start, started_at)]
    leaf[L_STATE], leaf[L_AT], leaf[L_ENDED] = DECIDED, match[M_AT], match[M_ENDED]
    if match[M_LENGTH] > 0:
        turn_around(leaf, work)


@compiled
def begin_run(rules: Rules, events: Events, event: int, groups: Groups, work: Work) -> None:
    """Begin a run if an event opens an edge of the start."""
    start, number = groups.opened.shape[0] - 1, events.numbers[events.base + event]
    best, opened = completing(rules, start, events.masks[event]), groups.opened[start]
    edge = best if best >= 0 else opened
    if edge < 0:
        return
    node = add_node(work, events.base + event, rules.edges[edge, TAKE])
    leaf = add_leaf(groups, work.counters, node, number, events.times[event])
    if best >= 0:
        decide(groups.leaves[leaf], events, event)
        return
    join(groups, leaf, rules.edges[opened, TARGET], work)
    for state in range(start):
        groups.now[state] = groups.after[state]


@compiled
def leave(key: int, groups: Groups, work: Work) -> None:
    """Take the runs and held matches of a key out, to what is left of the keys before."""
    counters, leaves = work.counters, groups.leaves
    for leaf in range(counters[C_LEAF], counters[C_LEAVES]):
        group = leaves[standing_for(leaves, leaf)]
        if group[L_STATE] >= 0:
            leave_run(leaves[leaf], group[L_STATE], key, work)
        elif group[L_STATE] == DECIDED:
            leave_held(leaves[leaf], group, key, work)
    clear(groups, counters)


@compiled
def leave_held(leaf: Table, group: Table, key: int, work: Work) -> None:
    """Write a match that is held."""
    match = work.held_left[work.counters[C_HELD_LEFT]]
    work.counters[C_HELD_LEFT] += 1
    match[M_KEY], match[M_NODE], match[M_LENGTH], match[M_LATE] = key, leaf[L_NODE], 0, 0
    match[M_START], match[M_STARTED_AT] = leaf[L_START], leaf[L_STARTED_AT]
    match[M_AT], match[M_ENDED] = group[L_AT], group[L_ENDED]


@compiled
def clear(groups: Groups, counters: Table) -> None:
    """Leave no run of a key."""
    counters[C_LEAF], counters[C_LEAVES], counters[C_LATE] = 0, 0, 0
    for state in range(groups.now.shape[0]):
        groups.now[state] = -1


# Matches


@compiled
def completing(rules: Rules, state: int, mask: int) -> int:
    """Return the edge by which an event completes runs in a state, -1 for none.

    Of several it is the one whose match is first: it takes the event, and by the first block.
    """
    best = int64(-1)
    for place in range(rules.states[state, FIRST_EDGE], rules.states[state, EDGE_END]):
        edge = rules.edges[place]
        if edge[COMPLETES] == 0 or not is_open(edge, mask, 0):
            continue
        taken = int64(-1) if best < 0 else rules.edges[best, TAKE]
        if best < 0 or (edge[TAKE] >= 0 and (taken < 0 or edge[TAKE] < taken)):
            best = place
    return best


@compiled
def decide_groups(rules: Rules, events: Events, event: int, groups: Groups, work: Work) -> None:
    """Take the groups out of their states that an event completes."""
    for state in range(groups.now.shape[0] - 1):
        group = groups.now[state]
        best = int64(-1) if group < 0 else completing(rules, state, events.masks[event])
        if best < 0:
            continue
        if rules.edges[best, TAKE] >= 0:
            node = add_node(work, events.base + event, rules.edges[best, TAKE])
            work.nodes[groups.leaves[group, L_END], BEFORE_NODE] = node
        decide(groups.leaves[group], events, event)
        groups.now[state] = -1


@compiled
def decide(group: Table, events: Events, event: int) -> None:
    """Note that the runs of a group are complete by an event."""
    group[L_STATE], group[L_AT] = DECIDED, events.times[event]
    group[L_ENDED] = events.numbers[events.base + event]


@compiled
def expire(rules: Rules, events: Events, key: int, now: int, groups: Groups, work: Work) -> bool:
    """End the runs whose time is up, one moment after the other."""
    counters, leaves, within = work.counters, groups.leaves, rules.settings[WITHIN]
    if within < 0:
        return True
    while counters[C_LEAF] < counters[C_LEAVES]:
        moment = leaves[counters[C_LEAF], L_STARTED_AT] + within
        if moment > now:
            return True
        if rules.settings[LATE_WANTED] == 1 and not note_late(
            rules, events, key, moment, groups, work
        ):
            return False
        if not settle(rules, events, key, moment, groups, work):
            return False
    return True


@compiled
def note_late(
    rules: Rules, events: Events, key: int, moment: int, groups: Groups, work: Work
) -> bool:
    """Note the runs that are late at a moment, also those that a match of this moment drops."""
    counters, leaves, within = work.counters, groups.leaves, rules.settings[WITHIN]
    counters[C_LATE] = max(counters[C_LATE], counters[C_LEAF])
    while counters[C_LATE] < counters[C_LEAVES]:
        leaf = leaves[counters[C_LATE]]
        if leaf[L_STARTED_AT] + within > moment:
            return True
        state = leaves[standing_for(leaves, counters[C_LATE]), L_STATE]
        late = state >= 0 and rules.states[state, PENDING] != 1
        if late and not complete(events, -1, -1, leaf, moment, 1, key, work):
            return False
        counters[C_LATE] += 1
    return True


@compiled
def becomes(rules: Rules, leaves: Table, leaf: int, now: int) -> int:
    """Return the state of a run, in which it is still live, or else ENDED or DECIDED."""
    state, within = leaves[standing_for(leaves, leaf), L_STATE], rules.settings[WITHIN]
    if state < 0:
        return state
    if now >= FOREVER:
        return int64(ENDED)
    if within < 0 or leaves[leaf, L_STARTED_AT] + within > now:
        return state
    return int64(DECIDED) if rules.states[state, PENDING] != 0 else int64(ENDED)


@compiled
def settle(rules: Rules, events: Events, key: int, now: int, groups: Groups, work: Work) -> bool:
    """Release the matches before which no run is live, and drop what they skip."""
    counters, leaves, found = work.counters, groups.leaves, work.found
    while counters[C_LEAF] < counters[C_LEAVES]:
        start, nodes_before, before = (
            leaves[counters[C_LEAF], L_START],
            counters[C_NODES],
            counters[C_FOUND],
        )
        leaf, live = counters[C_LEAF], False
        # There are several of one start only if an earlier release kept them.
        while leaf < counters[C_LEAVES] and leaves[leaf, L_START] == start:
            state = becomes(rules, leaves, leaf, now)
            live = live or state >= 0
            if state == DECIDED and not note_match(events, now, leaf, key, leaves, work):
                counters[C_WANTED] += counters[C_NODES] - nodes_before + counters[C_FOUND] - before
                counters[C_NODES], counters[C_FOUND] = nodes_before, before
                return False
            leaf += 1
        if counters[C_FOUND] == before:
            if live:
                return True
            counters[C_LEAF] = leaf
            continue
        for other in range(before + 1, counters[C_FOUND]):
            if is_before(found[other], found[before], work.nodes, events.numbers):
                copy(found[other], found[before])
        counters[C_FOUND] = before + 1
        if now < FOREVER:
            found[before, M_AT] = now
        raise_floor(skipped_to(rules, found[before], work.nodes, events.numbers), leaves, counters)
    if counters[C_LEAVES] > 0:
        clear(groups, counters)
    return True


@compiled
def note_match(events: Events, now: int, leaf: int, key: int, leaves: Table, work: Work) -> bool:
    """Write the match of a leaf; False, and nothing, if there is no room."""
    group = leaves[standing_for(leaves, leaf)]
    if group[L_STATE] != DECIDED:  # its time is up
        return complete(events, -1, -1, leaves[leaf], now, 0, key, work)
    if not complete(events, -1, -1, leaves[leaf], group[L_AT], 0, key, work):
        return False
    work.found[work.counters[C_FOUND] - 1, M_ENDED] = group[L_ENDED]
    return True


@compiled
def raise_floor(number: int, leaves: Table, counters: Table) -> None:
    """Drop the runs that began before the event with a number."""
    while counters[C_LEAF] < counters[C_LEAVES] and leaves[counters[C_LEAF], L_START] < number:
        counters[C_LEAF] += 1
