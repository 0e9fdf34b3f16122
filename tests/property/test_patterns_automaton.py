"""The automaton finds what a naive matcher finds, for random patterns and streams."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from millstream.errors import ImpossiblePattern
from millstream.patterns.automaton import Automaton, Key, Match, advance, step
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import events
from millstream.patterns.pattern import Pattern
from property.patterns_naive import Naive
from property.patterns_random import meets, patterns, reluctant_patterns, streams, table

FAR = 2**61


def found(automaton: Automaton, rows) -> list[Match]:
    key, matches = Key(), []
    for event in events(automaton, table(rows), "at"):
        key, some, _ = step(automaton, key, event)
        matches += some
    return matches + advance(automaton, key, FAR)[1]


def shown(automaton: Automaton, matches: list[Match]) -> list[tuple]:
    return [
        (
            tuple((automaton.blocks[block], event.number) for block, event in match.history),
            match.at // 10**6,
        )
        for match in matches
    ]


def check(pattern: Pattern, rows) -> None:
    try:
        automaton = compile_pattern(pattern)
    except ImpossiblePattern:
        assert Naive(pattern, rows, meets).matches() == []
        return
    ours = shown(automaton, found(automaton, rows))
    naive = Naive(pattern, rows, meets).matches()
    if pattern.skip.kind == "none":
        assert Counter(ours) == Counter((one.taken, one.known_at) for one in naive)
    else:
        # With a skip strategy a match may be known later than it ends, and the order counts.
        assert [taken for taken, _ in ours] == [one.taken for one in naive]


@settings(max_examples=600)
@given(pattern=patterns(), rows=streams())
def test_the_automaton_finds_what_the_naive_matcher_finds(pattern, rows):
    check(pattern, rows)


@settings(max_examples=150)
@given(pattern=patterns(skips=False), rows=streams())
def test_a_singleton_begins_only_where_no_run_lives(pattern, rows):
    check(pattern.singleton(), rows)


@settings(max_examples=150)
@given(pattern=reluctant_patterns(), rows=streams())
def test_a_reluctant_loop_takes_no_event_that_what_follows_can_take(pattern, rows):
    check(pattern, rows)
