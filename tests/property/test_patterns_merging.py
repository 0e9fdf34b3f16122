"""Runs of one history are one run: an automaton that merges them finds what one finds that forks."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.errors import ImpossiblePattern
from millstream.patterns.automaton import Automaton, Key, advance, step
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import events
from millstream.patterns.pattern import Pattern
from property.patterns_random import patterns, reluctant_patterns, streams, table

FAR = 2**61


def found(automaton: Automaton, rows, *, once: bool) -> tuple[Counter, Counter]:
    """Return the matches and the runs whose time was up; with `once`, no history is there twice."""
    key, matches, late = Key(), Counter(), Counter()

    def note(some, ended):
        matches.update((shown(one.history), one.at) for one in some)
        late.update(shown(one.history) for one in ended)

    for event in events(automaton, table(rows), "at"):
        key, some, ended = step(automaton, key, event)
        note(some, ended)
        if once:
            histories = [shown(run.history) for run in key.runs]
            assert len(histories) == len(set(histories))
    _, some, ended = advance(automaton, key, FAR)
    note(some, ended)
    return matches, late


def shown(history) -> tuple:
    return tuple((block, event.number) for block, event in history)


def limited(automaton: Automaton) -> bool:
    """Tell whether a block has a limit of its own: ways that end at other times stay apart."""
    return any(edge.before is not None for state in automaton.states for edge in state.edges)


def check(pattern: Pattern, rows) -> None:
    try:
        merges = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise
    forks = compile_pattern(pattern, merges=False)
    assert [state.name for state in merges.states[: len(forks.states)]] == [
        state.name for state in forks.states
    ], "a run that was kept before would be in another state"
    ours, late = found(merges, rows, once=not limited(merges))
    theirs, theirs_late = found(forks, rows, once=False)
    assert ours == theirs
    assert set(late) <= set(theirs_late)
    if not limited(merges):
        assert set(late) == set(theirs_late)
        assert set(late.values()) <= {1}


@settings(max_examples=300)
@given(pattern=patterns(), rows=streams(), data=st.data())
def test_runs_that_were_kept_when_they_forked_go_on(pattern, rows, data):
    try:
        merges = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise
    forks, cut = compile_pattern(pattern, merges=False), data.draw(st.integers(0, len(rows)))
    key, matches = Key(), Counter()
    for place, event in enumerate(events(merges, table(rows), "at")):
        key, some, _ = step(forks if place < cut else merges, key, event)
        matches.update((shown(one.history), one.at) for one in some)
    matches.update((shown(one.history), one.at) for one in advance(merges, key, FAR)[1])
    assert matches == found(forks, rows, once=False)[0]


@settings(max_examples=500)
@given(pattern=patterns(), rows=streams())
def test_merged_runs_find_what_forked_ones_find(pattern, rows):
    check(pattern, rows)


@settings(max_examples=150)
@given(pattern=reluctant_patterns(), rows=streams())
def test_merged_runs_of_reluctant_loops_find_what_forked_ones_find(pattern, rows):
    check(pattern, rows)
