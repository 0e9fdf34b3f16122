"""Matching that moves all runs of a state at once, where an event leads them to one state at most.

Where conditions look at one event alone, the runs of a key that are in one state have the same
future. They are a *group*, and an event moves groups: its cost is that of the states, however many
runs there are. Histories grow at their ends, which a group shares, so nodes here point forward:

    a1 --+
         +--> join --> b3 --+
    a2 --+                  +--> join --> c6        a1 b3 c6, a2 b3 c6, a4 b5 c6
    a4 -------------> b5 ---+

A run is its first node, a *leaf*. Leaves stand in the order of their starts, so those whose time is
up are the first ones; which group one is in, union-find tells. A match is written as a chain that
points back, as elsewhere. A run that is kept is a row of length 0, whose node is its leaf; one that
was kept with its length has a chain that points back, and is turned around.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millstream.patterns.kernel.compiled import allocating, compiled, entry
from millstream.patterns.kernel.edges import is_open
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.records import Carried, Events, Outcome, Rules, Table, Work
from millstream.patterns.kernel.space import (
    count,
    first,
    is_full,
    larger,
    outcome,
    with_rows,
    workspace,
)

#: The block of a node where histories of several groups join.
JOIN = -1
#: The state of a group whose runs have ended.
ENDED = -1


class Groups(NamedTuple):
    """The runs of a key: its leaves, and for each state the leaf that stands for its group.

    `after` are the groups after an event, `opened` the edges that it opens and by which runs go on,
    -1 for none.
    """

    leaves: Table
    now: Table
    after: Table
    opened: Table


@entry
def match_sharing(rules: Rules, events: Events, carried: Carried, watermark: int) -> Outcome:
    """Match the events of a shard, key after key."""
    groups, work = new_groups(rules, carried), workspace(rules, carried)
    while not match_keys(rules, events, carried, watermark, groups, work):
        groups, work = larger_groups(groups, work), larger(work)
    return outcome(work)


@allocating
def new_groups(rules: Rules, carried: Carried) -> Groups:
    """Return groups without runs, with room for those of any key."""
    states = rules.states.shape[0]
    return Groups(
        np.empty((64 + carried.runs.shape[0] + carried.held.shape[0], LEAF_WIDTH), np.int64),
        np.full(states, -1, np.int64),
        np.full(states, -1, np.int64),
        np.full(states, -1, np.int64),
    )


@allocating
def larger_groups(groups: Groups, work: Work) -> Groups:
    """Return groups with room for the leaves that were wanted last."""
    rows = work.counters[C_LEAVES] + work.counters[C_WANTED]
    return Groups(with_rows(groups.leaves, rows), groups.now, groups.after, groups.opened)


@compiled
def is_crowded(groups: Groups, work: Work, more: int) -> bool:
    """Tell whether there is no room for so many more leaves, nodes and matches."""
    return is_full(work, more) or groups.leaves.shape[0] < work.counters[C_LEAVES] + more


# How far matching is, `work.counters` say: where one of these returns False a table is full, and it
# goes on from there when it is called again, with larger ones.


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
        counters[C_WANTED] = counters[C_LEAVES] - counters[C_LEAF]
        if work.runs_left.shape[0] < counters[C_RUNS_LEFT] + counters[C_WANTED]:
            return False
        leave(key, watermark, groups, work)
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
            if is_crowded(groups, work, room):
                return False
            if not expire(rules, events, key, events.times[event], groups, work):
                return False
            open_edges(rules, events.masks[event], groups)
            counters[C_MOVING], counters[C_PLACE], counters[C_MEMBER] = 1, 0, -1
            counters[C_PLACE_END] = 0
        if not complete_groups(rules, events, event, key, groups, work):
            return False
        if is_crowded(groups, work, room):
            return False
        move_groups(rules, events, event, groups, work)
        begin_run(rules, events, event, key, groups, work)
        counters[C_MOVING] = 0
        counters[C_EVENT] += 1
    return True


@compiled
def open_edges(rules: Rules, mask: int, groups: Groups) -> None:
    """Note the edge by which runs go on for each state that has some, and for the start."""
    for state in range(groups.now.shape[0]):
        groups.opened[state] = -1
        if groups.now[state] < 0 and state < groups.now.shape[0] - 1:
            continue
        for place in range(rules.states[state, FIRST_EDGE], rules.states[state, EDGE_END]):
            if rules.edges[place, TARGET] >= 0 and is_open(rules.edges[place], mask, 0):
                groups.opened[state] = place
                break


# Runs that come and go


@compiled
def has_room(carried: Carried, key: int, groups: Groups, work: Work) -> bool:
    """Tell whether there is room for the runs of a key, and for histories that are turned around."""
    runs, more = count(carried.run_ends, key), turned(carried, key)
    work.counters[C_WANTED] = max(runs, more)
    return (
        groups.leaves.shape[0] >= work.counters[C_LEAVES] + runs
        and work.nodes.shape[0] >= work.counters[C_NODES] + more
    )


@compiled
def turned(carried: Carried, key: int) -> int:
    """Return how many nodes the runs of a key need to be turned around: all must be, or none."""
    at, more = first(carried.run_ends, key), int64(0)
    while at < carried.run_ends[key] and carried.runs[at, LENGTH] > 0:
        more += carried.runs[at, LENGTH] + 1
        at += 1
    return more


@compiled
def enter(carried: Carried, key: int, groups: Groups, work: Work) -> None:
    """Bring in the runs of a key."""
    for state in range(groups.now.shape[0]):
        groups.after[state] = -1
    for at in range(first(carried.run_ends, key), carried.run_ends[key]):
        enter_run(carried.runs[at], groups, work)
    for state in range(groups.now.shape[0]):
        groups.now[state] = groups.after[state]


@compiled
def enter_run(run: Table, groups: Groups, work: Work) -> None:
    """Bring in a run that was kept."""
    leaf = add_leaf(groups, work.counters, run[NODE], run[START], run[STARTED_AT])
    if run[LENGTH] > 0:
        turn_around(groups.leaves[leaf], work)
        join(groups, leaf, run[STATE], work)
    elif groups.after[run[STATE]] < 0:
        groups.leaves[leaf, L_END] = end_of(work.nodes, run[NODE])
        join(groups, leaf, run[STATE], work)
    else:
        unite(groups.leaves, groups.after[run[STATE]], leaf)


@compiled
def add_leaf(groups: Groups, counters: Table, node: int, start: int, started_at: int) -> int:
    """Return a new leaf, which is a group of its own."""
    leaf = counters[C_LEAVES]
    counters[C_LEAVES] += 1
    row = groups.leaves[leaf]
    row[L_NODE], row[L_START], row[L_STARTED_AT] = node, start, started_at
    row[L_ABOVE], row[L_NEXT], row[L_LAST] = leaf, -1, leaf
    row[L_END], row[L_STATE] = node, ENDED
    return leaf


@compiled
def turn_around(leaf: Table, work: Work) -> None:
    """Make a history that points forward of one that points back."""
    node, after = leaf[L_NODE], int64(-1)
    while node >= 0:
        made = add_node(work, work.nodes[node, EVENT], work.nodes[node, BLOCK])
        work.nodes[made, BEFORE_NODE] = after
        if after < 0:
            leaf[L_END] = made
        node, after = work.nodes[node, BEFORE_NODE], made
    leaf[L_NODE] = after


@compiled
def end_of(nodes: Table, node: int) -> int:
    """Return the last node of a history that points forward."""
    while nodes[node, BEFORE_NODE] >= 0:
        node = nodes[node, BEFORE_NODE]
    return node


@compiled
def leave(key: int, watermark: int, groups: Groups, work: Work) -> None:
    """Take the runs of a key out, to what is left of the keys before."""
    counters, leaves = work.counters, groups.leaves
    for leaf in range(counters[C_LEAF], counters[C_LEAVES]):
        state = leaves[standing_for(leaves, leaf), L_STATE]
        if state == ENDED or watermark >= FOREVER:
            continue
        leave_run(leaves[leaf], state, key, work)
    counters[C_LEAF], counters[C_LEAVES] = 0, 0
    for state in range(groups.now.shape[0]):
        groups.now[state] = -1


@compiled
def leave_run(leaf: Table, state: int, key: int, work: Work) -> None:
    """Write a run that is kept."""
    run = work.runs_left[work.counters[C_RUNS_LEFT]]
    work.counters[C_RUNS_LEFT] += 1
    for column in range(run.shape[0]):
        run[column] = 0
    run[STATE], run[NODE], run[KEY] = state, leaf[L_NODE], key
    run[START], run[STARTED_AT] = leaf[L_START], leaf[L_STARTED_AT]
    run[LAST_AT] = run[STARTED_AT]


# Groups


@compiled
def add_node(work: Work, event: int, block: int) -> int:
    """Return a new node, which ends its history."""
    node = work.counters[C_NODES]
    work.counters[C_NODES] += 1
    work.nodes[node, EVENT], work.nodes[node, BLOCK], work.nodes[node, BEFORE_NODE] = (
        event,
        block,
        -1,
    )
    return node


@compiled
def standing_for(leaves: Table, leaf: int) -> int:
    """Return the leaf that stands for the group of another."""
    while leaves[leaf, L_ABOVE] != leaf:
        leaves[leaf, L_ABOVE] = leaves[leaves[leaf, L_ABOVE], L_ABOVE]
        leaf = leaves[leaf, L_ABOVE]
    return leaf


@compiled
def unite(leaves: Table, group: int, other: int) -> None:
    """Make two groups one, for which the first stands."""
    leaves[other, L_ABOVE] = group
    leaves[leaves[group, L_LAST], L_NEXT] = other
    leaves[group, L_LAST] = leaves[other, L_LAST]


@compiled
def join(groups: Groups, group: int, state: int, work: Work) -> None:
    """Put a group into a state, in which there may be another one."""
    leaves, nodes, other = groups.leaves, work.nodes, groups.after[state]
    leaves[group, L_STATE] = state
    if other < 0:
        groups.after[state] = group
        return
    end, other_end = leaves[group, L_END], leaves[other, L_END]
    if nodes[other_end, BLOCK] == JOIN:
        nodes[end, BEFORE_NODE] = other_end
    elif nodes[end, BLOCK] == JOIN:
        nodes[other_end, BEFORE_NODE] = end
        leaves[other, L_END] = end
    else:
        made = add_node(work, nodes[end, EVENT], JOIN)
        nodes[end, BEFORE_NODE] = nodes[other_end, BEFORE_NODE] = made
        leaves[other, L_END] = made
    unite(leaves, other, group)


@compiled
def move_groups(rules: Rules, events: Events, event: int, groups: Groups, work: Work) -> None:
    """Move every group along the edge that an event opens."""
    leaves, states = groups.leaves, groups.now.shape[0]
    for state in range(states):
        groups.after[state] = -1
    for state in range(states - 1):
        group, opened = groups.now[state], groups.opened[state]
        if group < 0:
            continue
        target = int64(ENDED) if opened < 0 else rules.edges[opened, TARGET]
        if target < 0:
            leaves[group, L_STATE] = ENDED
            continue
        if rules.edges[opened, TAKE] >= 0:
            node = add_node(work, events.base + event, rules.edges[opened, TAKE])
            work.nodes[leaves[group, L_END], BEFORE_NODE] = node
            leaves[group, L_END] = node
        join(groups, group, target, work)
    for state in range(states):
        groups.now[state] = groups.after[state]


@compiled
def begin_run(
    rules: Rules, events: Events, event: int, key: int, groups: Groups, work: Work
) -> None:
    """Begin a run if an event opens an edge of the start."""
    start, number = groups.opened.shape[0] - 1, events.numbers[events.base + event]
    place, at = events.base + event, events.times[event]
    leaf = add_leaf(groups, work.counters, int64(-1), number, at)
    for opened in range(rules.states[start, FIRST_EDGE], rules.states[start, EDGE_END]):
        edge = rules.edges[opened]
        if edge[COMPLETES] == 1 and is_open(edge, events.masks[event], 0):
            node = add_node(work, place, edge[TAKE])
            note(groups.leaves[leaf], node, 1, at, number, 0, key, work)
    opened = groups.opened[start]
    if opened < 0:
        work.counters[C_LEAVES] -= 1
        return
    node = add_node(work, place, rules.edges[opened, TAKE])
    groups.leaves[leaf, L_NODE] = groups.leaves[leaf, L_END] = node
    join(groups, leaf, rules.edges[opened, TARGET], work)
    for state in range(start):
        groups.now[state] = groups.after[state]


# Matches


@compiled
def complete_groups(
    rules: Rules, events: Events, event: int, key: int, groups: Groups, work: Work
) -> bool:
    """Note the matches of the groups that an event completes."""
    counters = work.counters
    while counters[C_PLACE] < groups.now.shape[0] - 1:
        state = rules.states[counters[C_PLACE]]
        group = groups.now[counters[C_PLACE]]
        counters[C_PLACE_END] = max(counters[C_PLACE_END], state[FIRST_EDGE])
        while group >= 0 and counters[C_PLACE_END] < state[EDGE_END]:
            edge = rules.edges[counters[C_PLACE_END]]
            opened = edge[COMPLETES] == 1 and is_open(edge, events.masks[event], 0)
            if opened and not complete_group(
                events, event, edge[TAKE], group, key, groups.leaves, work
            ):
                return False
            counters[C_PLACE_END] += 1
        counters[C_PLACE] += 1
    return True


@compiled
def complete_group(
    events: Events, event: int, block: int, group: int, key: int, leaves: Table, work: Work
) -> bool:
    """Note the matches of a group whose last event a block takes, or none."""
    counters, at = work.counters, events.times[event]
    if counters[C_MEMBER] < 0:
        counters[C_MEMBER] = group
    while counters[C_MEMBER] >= 0:
        leaf = counters[C_MEMBER]
        alive = leaf >= counters[C_LEAF]
        if alive and not complete(events, event, block, leaves[leaf], at, 0, key, work):
            return False
        skip_ended(leaves, leaf, group, counters[C_LEAF])
        counters[C_MEMBER] = leaves[leaf, L_NEXT]
    return True


@compiled
def skip_ended(leaves: Table, leaf: int, group: int, first_left: int) -> None:
    """Take the leaves behind one whose time is up out of the list of their group."""
    after = leaves[leaf, L_NEXT]
    while after >= 0 and after < first_left:
        after = leaves[after, L_NEXT]
    leaves[leaf, L_NEXT] = after
    if after < 0:
        leaves[group, L_LAST] = leaf


@compiled
def complete(
    events: Events, event: int, block: int, leaf: Table, at: int, late: int, key: int, work: Work
) -> bool:
    """Note that a run is complete or late, with a history that points back; False without room.

    An event that a block takes is its last; without one its own last event is.
    """
    counters, nodes = work.counters, work.nodes
    before, length, last, node = counters[C_NODES], int64(0), int64(-1), leaf[L_NODE]
    while node >= 0:
        if nodes.shape[0] < counters[C_NODES] + 2:
            counters[C_WANTED], counters[C_NODES] = counters[C_NODES] - before + 2, before
            return False
        if nodes[node, BLOCK] != JOIN:
            made = add_node(work, nodes[node, EVENT], nodes[node, BLOCK])
            nodes[made, BEFORE_NODE] = last
            last, length = made, length + 1
        node = nodes[node, BEFORE_NODE]
    if block >= 0:
        made = add_node(work, events.base + event, block)
        nodes[made, BEFORE_NODE] = last
        last, length = made, length + 1
    if work.found.shape[0] < counters[C_FOUND] + 1:
        counters[C_WANTED], counters[C_NODES] = 1, before
        return False
    ended = events.numbers[nodes[last, EVENT] if event < 0 else events.base + event]
    note(leaf, last, length, at, ended, late, key, work)
    return True


@compiled
def note(
    leaf: Table, node: int, length: int, at: int, ended: int, late: int, key: int, work: Work
) -> None:
    """Write a match, or a run that is late, whose history ends with a node."""
    match = work.found[work.counters[C_FOUND]]
    work.counters[C_FOUND] += 1
    match[M_KEY], match[M_NODE], match[M_LENGTH] = key, node, length
    match[M_START], match[M_STARTED_AT] = leaf[L_START], leaf[L_STARTED_AT]
    match[M_AT], match[M_ENDED], match[M_LATE] = at, ended, late


@compiled
def expire(rules: Rules, events: Events, key: int, now: int, groups: Groups, work: Work) -> bool:
    """End the runs whose time is up: those of a pending state match, the others are late."""
    counters, leaves, within = work.counters, groups.leaves, rules.settings[WITHIN]
    if within < 0:
        return True
    while counters[C_LEAF] < counters[C_LEAVES]:
        leaf = counters[C_LEAF]
        at = leaves[leaf, L_STARTED_AT] + within
        if at > now:
            return True
        state = leaves[standing_for(leaves, leaf), L_STATE]
        if state != ENDED and not end_run(rules, events, state, at, leaves[leaf], key, work):
            return False
        counters[C_LEAF] += 1
    return True


@compiled
def end_run(
    rules: Rules, events: Events, state: int, at: int, leaf: Table, key: int, work: Work
) -> bool:
    """Note what becomes of a run whose time is up; False, and nothing, if there is no room."""
    counters, pending = work.counters, rules.states[state, PENDING]
    found, nodes = counters[C_FOUND], counters[C_NODES]
    noted = pending == 0 or complete(events, -1, -1, leaf, at, 0, key, work)
    if noted and pending != 1 and rules.settings[LATE_WANTED] == 1:
        noted = complete(events, -1, -1, leaf, at, 1, key, work)
    if not noted:
        counters[C_WANTED] += counters[C_NODES] - nodes + counters[C_FOUND] - found
        counters[C_FOUND], counters[C_NODES] = found, nodes
    return noted
