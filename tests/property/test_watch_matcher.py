"""The matcher at the edge finds what the automaton finds; the order of events does not matter."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.errors import FlowError
from millstream.patterns import across
from millstream.patterns.automaton import FOREVER, Event, Key, advance, step
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.matcher import Matcher
from millstream.watch.messages import RunId
from millstream.watch.runs import Run
from property.patterns_random import patterns, reluctant_patterns, streams

SECOND = 1_000_000


def edge(pattern: Pattern) -> EdgePattern:
    try:
        return EdgePattern.of(pattern, schema=None, time="at", key=())
    except FlowError:
        assume(False)
        raise


def seen(pattern: EdgePattern, rows: list[dict[str, Any]]) -> list[Any]:
    found = (
        pattern.seen(("sensor", number), row["at"] * SECOND, row) for number, row in enumerate(rows)
    )
    return [one for one in found if one is not None]


def by_the_automaton(pattern: EdgePattern, rows: list[dict[str, Any]]) -> Counter[Any]:
    key, found = Key(), []
    for one in seen(pattern, rows):
        event = Event(one.id[1], one.at, one.met, one.values, one.row)
        key, matches, _ = step(pattern.automaton, key, event)
        found += matches
    found += advance(pattern.automaton, key, FOREVER)[1]
    return Counter((m.at, tuple((block, e.number) for block, e in m.history)) for m in found)


def by_the_edge(pattern: EdgePattern, rows: list[dict[str, Any]]) -> Counter[Any]:
    matcher = Matcher(pattern)
    changes = [run for one in seen(pattern, rows) for run in matcher.offer((), one)]
    changes += matcher.advance(FOREVER)
    assert matcher.live == 0 or pattern.span is None
    return Counter(_shown(run) for run in changes if run.completed)


def _shown(run: Run) -> tuple[int, tuple[tuple[int, int], ...]]:
    return run.at, tuple((block, one.id[1]) for block, one in run.link.history)


@given(st.one_of(patterns(skips=False), reluctant_patterns()), streams())
def test_it_finds_what_the_automaton_finds(pattern: Pattern, rows: list[dict[str, Any]]) -> None:
    made = edge(pattern)
    assert by_the_edge(made, rows) == by_the_automaton(made, rows)


@st.composite
def exact_patterns(draw: Any) -> Pattern:
    for _ in range(25):  # one of ten is exact
        pattern: Pattern = draw(patterns(skips=False)).within("6 seconds")
        if not across.unsound(pattern) and not across.inexact(pattern):
            return pattern
    assume(False)
    raise AssertionError


def completed(matcher: Matcher) -> dict[RunId, tuple[tuple[int, int], ...]]:
    return {run.id: _shown(run)[1] for run in matcher if run.completed}


@given(exact_patterns(), streams(most=7), st.randoms(use_true_random=False))
def test_in_whatever_order_events_come_the_matches_are_those_of_their_times(
    pattern: Pattern, rows: list[dict[str, Any]], random: Any
) -> None:
    made = edge(pattern)
    events = seen(made, rows)
    random.shuffle(events)
    matcher = Matcher(made, "A", replicated=True)
    published: Counter[RunId] = Counter()
    for one in events:
        changes = matcher.offer((), one)
        published.update(run.id for run in changes if run.completed and not run.again)
    want = Counter(taken for _, taken in by_the_automaton(made, rows).elements())
    assert Counter(completed(matcher).values()) == want
    assert set(published) == set(completed(matcher))
    assert max(published.values(), default=1) == 1, "a run completes once"


@given(exact_patterns(), streams(most=7), st.randoms(use_true_random=False))
def test_devices_that_merge_each_others_runs_know_what_one_would_know(
    pattern: Pattern, rows: list[dict[str, Any]], random: Any
) -> None:
    made = edge(pattern)
    devices = [Matcher(made, name, replicated=True) for name in "ABC"]
    changed: list[tuple[int, Run]] = []
    for one in seen(made, rows):
        place = random.randrange(3)
        changed += [(place, run) for run in devices[place].offer((), one)]
        if random.random() < 0.3:
            _exchange(devices, changed, random)
    while changed:
        _exchange(devices, changed, random)
    want = Counter(taken for _, taken in by_the_automaton(made, rows).elements())
    for device in devices:
        assert Counter(completed(device).values()) == want


def _exchange(devices: list[Matcher], changed: list[tuple[int, Run]], random: Any) -> None:
    """Merge every change into the other devices, in any order, some of them twice."""
    waiting = [(place, run) for place, run in changed for _ in range(random.choice([1, 1, 2]))]
    changed.clear()
    random.shuffle(waiting)
    for sender, run in waiting:
        for place, device in enumerate(devices):
            if place != sender:
                changed += [(place, other) for other in device.merge(run)]
