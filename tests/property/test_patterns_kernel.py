"""The kernel finds what the automaton finds, however the stream is cut into batches, through bytes and back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.errors import ImpossiblePattern
from millstream.patterns import events
from millstream.patterns.automaton import Automaton, Key, advance, step
from millstream.patterns.batches import Batch, Found
from millstream.patterns.compile import compile_pattern
from millstream.patterns.matcher import KernelMatcher, Matcher, PlainMatcher, matcher
from millstream.patterns.pattern import Pattern
from millstream.patterns.sharing import shares
from millstream.patterns.tables import tables
from property.patterns_random import patterns, shared_patterns, streams, table

FAR = 2**61


def batch_of(automaton: Automaton, rows: pa.Table) -> Batch:
    masks = events.met(automaton, rows).astype(np.int64)
    values = events.values(automaton, rows)
    return Batch(
        rows.column("key").combine_chunks(), events.micros(rows.column("at")), masks, values, rows
    )


def shown(automaton: Automaton, found: Found) -> Counter:
    numbers = found.rows.column("number").to_pylist()
    for started, first in zip(found.started.tolist(), found.starts.tolist(), strict=True):
        assert started == found.rows.column("at")[first].value
    return Counter(
        (
            key,
            at,
            late,
            tuple(
                (automaton.blocks[b], n)
                for b, n in zip(found.blocks[a:z], numbers[a:z], strict=True)
            ),
        )
        for key, at, late, a, z in zip(
            found.keys.to_pylist(),
            found.at.tolist(),
            found.late.tolist(),
            found.starts,
            found.ends,
            strict=True,
        )
    )


def in_batches(automaton: Automaton, made: Matcher, rows: pa.Table, cuts: list[int]) -> Counter:
    kept = made.empty(pa.string(), rows.schema)
    found: Counter = Counter()
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows.slice(first, last - first)
        watermark = int(events.micros(part.column("at")).max()) - 1 if len(part) else 0
        kept, some = made.process(kept, batch_of(automaton, part), watermark)
        found += shown(automaton, some)
        kept = made.load(made.dump(kept))
    kept, some = made.process(kept, batch_of(automaton, rows.slice(0, 0)), FAR)
    assert (kept.live, kept.idle, len(kept.rows)) == (0, True, 0)
    return found + shown(automaton, some)


def by_the_automaton(automaton: Automaton, rows: pa.Table) -> Counter:
    keys: dict[str, Key] = {}
    found: Counter = Counter()

    def note(name, matches):
        for one in matches:
            taken = tuple((automaton.blocks[block], event.number) for block, event in one.history)
            found[name, one.at, one.timed_out, taken] += 1

    for event in events.events(automaton, rows, "at"):
        name = event.row["key"]
        keys[name], matches, late = step(automaton, keys.get(name, Key()), event)
        note(name, [*matches, *late])
    for name, key in keys.items():
        _, matches, late = advance(automaton, key, FAR)
        note(name, [*matches, *late])
    return found


@settings(max_examples=300)
@given(pattern=patterns(), rows=streams(14), data=st.data())
def test_the_kernel_finds_what_the_automaton_finds(pattern, rows, data):
    if data.draw(st.integers(0, 4)) == 0:
        pattern = pattern.singleton()
    keyed = [{**row, "key": data.draw(st.sampled_from("kl"))} for row in rows]
    events_table = table(keyed, key=True).append_column(
        "number", pa.array(range(len(rows)), pa.int64())
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    try:
        automaton = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise
    check(automaton, events_table, cuts, data)


def check(automaton, events_table, cuts, data) -> None:
    kernel = matcher(automaton, [pa.int64()] * len(automaton.values), late=True)
    assert kernel.compiled
    expected = by_the_automaton(automaton, events_table)
    assert in_batches(automaton, kernel, events_table, cuts) == expected
    if data.draw(st.integers(0, 3)) == 0:
        assert (
            in_batches(automaton, PlainMatcher(automaton, late=True), events_table, cuts)
            == expected
        )


@settings(max_examples=300)
@given(pattern=shared_patterns(), rows=streams(14), data=st.data())
def test_runs_that_share_what_they_wait_for_find_what_the_automaton_finds(pattern, rows, data):
    """Also where the first batches were matched run by run, as an earlier release did."""
    check_sharing(pattern, rows, data)


@settings(max_examples=200)
@given(rows=streams(20), data=st.data())
def test_matches_that_wait_for_earlier_runs_are_held_and_handed_over(rows, data):
    """A run that begins with 1 needs another 1 before 0 and 2: those that begin with 0 overtake it."""
    pattern = Pattern().begin("a", "x = 1").times(2).optional().greedy()
    pattern = pattern.followed_by("b", "x = 0").followed_by("c", "x = 2")
    pattern = data.draw(st.sampled_from([pattern, pattern.times(1, 2), pattern.one_or_more()]))
    pattern = pattern.greedy() if pattern.blocks[-1].most != 1 else pattern
    skips = [
        pattern.skip_to_next(),
        pattern.skip_past_last(),
        pattern.skip_to_first("c"),
        pattern.skip_to_last("c"),
    ]
    check_sharing(data.draw(st.sampled_from(skips)).within("15 seconds"), rows, data)


def check_sharing(pattern, rows, data) -> None:
    keyed = [{**row, "key": data.draw(st.sampled_from("kkl"))} for row in rows]
    whole = table(keyed, key=True).append_column("number", pa.array(range(len(rows)), pa.int64()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    try:
        automaton = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise
    late = data.draw(st.booleans())
    assume(shares(automaton, late=late))
    made = tables(automaton, [], late=late)
    ours, alone = (KernelMatcher(one, automaton) for one in (made, replace(made, shares=False)))
    old = data.draw(st.integers(0, len(cuts)))
    found, kept = Counter(), ours.empty(pa.string(), whole.schema)
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        part, one = whole.slice(first, last - first), alone if number < old else ours
        watermark = int(events.micros(part.column("at")).max()) - 1 if len(part) else 0
        kept, some = one.process(kept, batch_of(automaton, part), watermark)
        found += shown(automaton, some)
        kept = one.load(one.dump(kept))
    kept, some = ours.process(kept, batch_of(automaton, whole.slice(0, 0)), FAR)
    assert (kept.live, kept.idle, len(kept.rows)) == (0, True, 0)
    expected = by_the_automaton(automaton, whole)
    if not late:
        expected = Counter({one: times for one, times in expected.items() if not one[2]})
    assert found + shown(automaton, some) == expected
