"""Matching that prefers, by a table: for all rows of a key at once, from the last to the first.

Where conditions look at rows alone, what becomes of a run depends on its state and on the rows to
come, and not on how it got there. So the table says for each row and state which edge a run takes
there, if it becomes a match at all: the first open one that leads to a match. It is filled from the
last row on; the cost is that of the rows times the states, however long runs are.

On a stream rows are still to come, so a state behind the last row is *undecided*, and so is one whose
first open edge that may lead to a match leads to an undecided one. Matching ends at the first start
that is undecided: it, and the rows behind it, come again with the next batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from millstream.patterns.kernel.compiled import allocating, compiled, entry
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.machine import holds
from millstream.patterns.kernel.matches import begin, lengthen, record
from millstream.patterns.kernel.records import Carried, Events, Outcome, Rules, Table, Work
from millstream.patterns.kernel.space import count, first, is_full, larger, outcome, workspace

Choices = np.ndarray[Any, np.dtype[np.int16]]
#: What becomes of a state: no edge leads to a match, one does, or that is not known yet.
NOTHING, MATCH, UNDECIDED = range(3)


class Ways(NamedTuple):
    """What is known of the rows of a key.

    `choices` has for each row and state the edge to take, counted from the first of the state,
    doubled, and one more if the match ends there; -1 if none leads to a match, -2 if that is
    undecided. `gone` is for each row the one at which nothing that was preferred to its match is
    left; `ahead` the same for each state, for this row and the next. `leads` says what becomes of a
    state.
    """

    choices: Choices
    gone: Table
    ahead: Table
    leads: Table


class Decided(NamedTuple):
    """What was found, and for each key the first row that is undecided."""

    outcome: Outcome
    left: Table


@entry
def match_whole(rules: Rules, events: Events, carried: Carried, ended: bool) -> Decided:
    """Match all events of a shard that are not decided, key after key; `ended`, no others come."""
    work = workspace(rules, carried)
    longest = 0
    for key in range(events.ends.shape[0]):
        longest = max(longest, count(events.ends, key))
    states = rules.states.shape[0]
    ways = Ways(
        np.empty((longest, states), np.int16),
        np.empty(longest, np.int64),
        np.empty((2, states), np.int64),
        np.empty((2, states), np.int64),
    )
    left = np.empty(events.ends.shape[0], np.int64)
    for key in range(events.ends.shape[0]):
        fill(rules, events, first(events.ends, key), events.ends[key], ended, ways)
        work = walk(rules, events, key, ways, work, left)
    return Decided(outcome(work), left)


@entry
def decide_tests(rules: Rules, events: Events, carried: Carried) -> None:
    """Take the bits of tests out of the masks where what programs say of the row does not hold."""
    take_out(rules, events, workspace(rules, carried))


@compiled
def take_out(rules: Rules, events: Events, work: Work) -> None:
    """Ask the programs, test after test."""
    for test in range(rules.program_ends.shape[0] - 1):
        if rules.program_ends[test] == rules.program_ends[test + 1]:
            continue
        bit = int64(1) << test
        for event in range(events.masks.shape[0]):
            if events.masks[event] & bit != 0 and not holds(
                rules, test, events, event, work.run, work.stack
            ):
                events.masks[event] &= ~bit


@compiled
def fill(rules: Rules, events: Events, start: int, end: int, ended: bool, ways: Ways) -> None:
    """Fill the table for the rows of a key, from the last to the first."""
    states = rules.states.shape[0]
    for state in range(states):
        ways.leads[end & 1, state] = NOTHING if ended else UNDECIDED
        ways.ahead[end & 1, state] = NEVER
    for event in range(end - 1, start - 1, -1):
        for state in range(states):
            ways.choices[event - start, state] = choose(
                rules, events.masks[event], event, state, ways
            )
        ways.gone[event - start] = ways.ahead[event & 1, states - 1]


@compiled
def choose(rules: Rules, mask: int, event: int, state: int, ways: Ways) -> int:
    """Return which edge a run takes in a state at a row, and note what the next row needs."""
    now, after = event & 1, 1 - (event & 1)
    gone, found, leads = int64(event), int64(-1), int64(NOTHING)
    begun = rules.states[state, FIRST_EDGE]
    for place in range(begun, rules.states[state, EDGE_END]):
        edge = rules.edges[place]
        if edge[NEED] & ~mask != 0:
            continue
        if edge[TARGET] >= 0:
            gone = max(gone, ways.ahead[after, edge[TARGET]])
            leads = ways.leads[after, edge[TARGET]]
            if leads != NOTHING:
                found = 2 * (place - begun) if leads == MATCH else int64(-2)
                break
        if edge[COMPLETES] == 1:
            found, leads = 2 * (place - begun) + 1, int64(MATCH)
            break
    ways.ahead[now, state] = gone
    ways.leads[now, state] = leads
    return found


@allocating
def walk(rules: Rules, events: Events, key: int, ways: Ways, work: Work, left: Table) -> Work:
    """Note the matches of a key, the next where the skip of the one before leads."""
    start, states = first(events.ends, key), rules.states.shape[0]
    place, certain = start, int64(0)
    while place < events.ends[key]:
        choice = ways.choices[place - start, states - 1]
        if choice == -2:
            break
        certain = max(certain, ways.gone[place - start])
        if choice == -1:
            place += 1
            continue
        run = work.run.whole
        begin(rules, events, place, key, run)
        event, state, goes_on, landing = place, states - 1, True, int64(-1)
        while goes_on:
            if is_full(work, 2):
                work = larger(work)
            choice = ways.choices[event - start, state]
            edge = rules.edges[rules.states[state, FIRST_EDGE] + choice // 2]
            lengthen(run, events, event, edge[TAKE], work.nodes, work.counters[C_NODES])
            work.counters[C_NODES] += 1
            if (rules.settings[SKIP_BLOCKS] >> edge[TAKE]) & 1 == 1 and (
                landing < 0 or rules.settings[SKIP] == TO_LAST
            ):
                landing = event
            goes_on = choice % 2 == 0
            state = edge[TARGET]
            event += 1
        known = events.times[event - 1] if certain >= NEVER else events.times[certain]
        ended = events.numbers[events.base + event - 1]
        record(work.found, work.counters[C_FOUND], run, known, ended, 0)
        work.counters[C_FOUND] += 1
        place = next_start(rules.settings[SKIP], place, event, landing)
    left[key] = place
    return work


@compiled
def next_start(skip: int, place: int, end: int, landing: int) -> int:
    """Return where matching goes on."""
    if skip == PAST_LAST:
        return end
    return max(place + 1, landing) if skip == TO_FIRST or skip == TO_LAST else place + 1
