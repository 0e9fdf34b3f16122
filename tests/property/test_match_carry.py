"""Runs that go over from one pattern to another at a cut, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.errors import ImpossiblePattern
from millstream.patterns import events as arrow_events
from millstream.patterns.automaton import Automaton, Event, Key, Match, advance, step
from millstream.patterns.carrying import Carrying, Outcome
from millstream.patterns.compile import compile_pattern
from millstream.patterns.losses import losses
from millstream.patterns.match_recognize import read
from millstream.patterns.pattern import Pattern
from property.patterns_random import patterns, reluctant_patterns, streams, table

SECOND = 1_000_000
FAR = 2**61
EVERYTHING = ("x",)
Found = Counter[tuple[int, bool, tuple[tuple[str, int], ...]]]


def shown(automaton: Automaton, matches: list[Match]) -> Found:
    return Counter(
        (one.at, one.timed_out, tuple((automaton.blocks[b], e.number) for b, e in one.history))
        for one in matches
    )


def lived(carrying: Carrying, rows: list[dict[str, Any]], cut: int) -> tuple[Found, Outcome]:
    """Return what both automata find, each in the events on its side of the cut."""
    old, new = carrying.old, carrying.new
    before = list(arrow_events.events(old, table(rows), "at"))
    after = list(arrow_events.events(new, table(rows), "at"))
    key, found = Key(), Counter[Any]()
    for event in (one for one in before if one.at < cut):
        key, *both = step(old, key, event)
        found += shown(old, [one for some in both for one in some])
    key, *both = advance(old, key, cut)
    found += shown(old, [one for some in both for one in some])

    def seen(event: Event) -> Event:
        return after[event.number]

    key, outcome = carrying.key(key, cut, seen)
    for event in (one for one in after if one.at >= cut):
        key, *both = step(new, key, event)
        found += shown(new, [one for some in both for one in some])
    _, *both = advance(new, key, FAR)
    return found + shown(new, [one for some in both for one in some]), outcome


# Sequences, in plain Python

CONDITIONS = ["x = 0", "x = 1", "x >= 1", "x <> 1", "x >= {before}.x", "x < {first}.x"]


@dataclass(frozen=True)
class Block:
    name: str
    condition: str
    strict: bool = False


@dataclass(frozen=True)
class Sequence:
    """Blocks that follow each other, and what holds for all runs."""

    blocks: tuple[Block, ...]
    within: int | None = None
    skip: str = "none"
    singleton: bool = False

    @property
    def pattern(self) -> Pattern:
        first, *rest = self.blocks
        pattern = Pattern().begin(first.name, first.condition)
        for block in rest:
            add = pattern.next if block.strict else pattern.followed_by
            pattern = add(block.name, block.condition)
        if self.within is not None:
            pattern = pattern.within(f"{self.within} seconds")
        skips = {"next": pattern.skip_to_next, "past": pattern.skip_past_last}
        pattern = skips.get(self.skip, lambda: pattern)()
        return pattern.singleton() if self.singleton else pattern

    @property
    def names(self) -> list[str]:
        return [block.name for block in self.blocks]


@dataclass
class Naive:
    """Runs and matches as lists of (block, place of an event)."""

    rows: list[dict[str, Any]]
    runs: list[list[tuple[str, int]]] = field(default_factory=list)
    held: list[tuple[list[tuple[str, int]], int]] = field(default_factory=list)
    found: Found = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def meets(self, block: Block, place: int, taken: list[tuple[str, int]]) -> bool:
        x, condition = self.rows[place]["x"], block.condition
        left, compare, right = condition.split()
        assert left == "x"
        past = {name: self.rows[at]["x"] for name, at in taken}
        other = past[right.removesuffix(".x")] if right.endswith(".x") else int(right)
        return {"=": x == other, ">=": x >= other, "<>": x != other, "<": x < other}[compare]

    def start(self, run: list[tuple[str, int]]) -> int:
        return self.rows[run[0][1]]["at"]

    def expire(self, sequence: Sequence, now: int) -> None:
        """End runs whose time is up, in the order of their deadlines."""
        while sequence.within is not None and self.runs:
            moment = min(self.start(run) for run in self.runs) + sequence.within
            if moment > now:
                return
            ended = [run for run in self.runs if self.start(run) + sequence.within == moment]
            self.runs = [run for run in self.runs if run not in ended]
            for run in ended:
                self.found[moment * SECOND, True, tuple(run)] += 1
            self.settle(sequence, moment)

    def settle(self, sequence: Sequence, now: int) -> None:
        """Let matches out that no earlier run holds up."""
        self.held.sort(key=lambda one: (one[0][0][1], one[1], [at for _, at in one[0]]))
        if sequence.skip == "none":
            for match, _ in self.held:
                self.found[now * SECOND, False, tuple(match)] += 1
            self.held = []
        while self.held and all(self.held[0][0][0][1] <= run[0][1] for run in self.runs):
            match, _ = self.held.pop(0)
            self.found[now * SECOND, False, tuple(match)] += 1
            limit = (match[0] if sequence.skip == "next" else match[-1])[1] + 1
            self.runs = [run for run in self.runs if run[0][1] >= limit]
            self.held = [one for one in self.held if one[0][0][1] >= limit]

    def take(self, sequence: Sequence, place: int) -> None:
        now = self.rows[place]["at"]
        self.expire(sequence, now)
        moved, live = [*self.runs, []], []
        for run in moved:
            if not run and sequence.singleton and live:
                continue
            block = sequence.blocks[len(run)]
            if self.meets(block, place, run):
                after = [*run, (block.name, place)]
                if len(after) < len(sequence.blocks):
                    live.append(after)
                else:
                    self.held.append((after, now))
            elif run and not block.strict:
                live.append(run)
        self.runs = live
        self.settle(sequence, now)

    def carry(self, old: Sequence, new: Sequence, renames: dict[str, str], cut: int) -> None:
        """Let runs go on whose blocks are the first ones of the new sequence too."""
        runs, held = [], []
        for run in self.runs:
            named = [(renames.get(name, name), at) for name, at in run]
            names = [name for name, _ in named]
            pairs = enumerate(zip(names, new.names, strict=False))
            other = [k for k, (name, its) in pairs if name != its]
            if other:
                self.lost[run[other[0]][0]] += 1
            elif len(names) >= len(new.names):  # the new one ends there
                self.lost[run[len(new.names) - 1][0]] += 1
            elif new.within is None or self.start(run) + new.within > cut:
                runs.append(named)
        for match, at in self.held:
            named = [(renames.get(name, name), place) for name, place in match]
            both = zip(match, named, strict=True)
            gone = [name for (name, _), (now, _) in both if now not in new.names]
            if gone or new.skip == "none":
                self.lost[gone[0] if gone else "held"] += 1
            else:
                held.append((named, at))
        self.runs, self.held = runs, held


def naive(
    old: Sequence, new: Sequence, renames: dict[str, str], rows: list[dict[str, Any]], cut: int
) -> Naive:
    made = Naive(rows)
    for place in (place for place, row in enumerate(rows) if row["at"] < cut):
        made.take(old, place)
    made.expire(old, cut)
    made.carry(old, new, renames, cut)
    for place in (place for place, row in enumerate(rows) if row["at"] >= cut):
        made.take(new, place)
    made.expire(new, FAR)
    made.runs = []  # nothing more comes
    made.settle(new, rows[-1]["at"])
    return made


@st.composite
def sequences(draw, names: str) -> Sequence:
    blocks: list[Block] = []
    for name in names:
        choice = draw(st.sampled_from(CONDITIONS if blocks else CONDITIONS[:4]))
        known = [block.name for block in blocks]
        condition = choice.format(before=known[-1:] and known[-1], first=known[:1] and known[0])
        blocks.append(Block(name, condition, bool(blocks) and draw(st.booleans())))
    skip = draw(st.sampled_from(["none", "next", "past", "past"]))
    within = draw(st.sampled_from([None, 3, 6, 12]))
    return Sequence(tuple(blocks), within, skip, draw(st.integers(0, 4)) == 0)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), rows=streams(14))
def test_runs_of_sequences_go_on_where_their_blocks_are_the_first_ones(data, rows):
    old = data.draw(sequences(data.draw(st.sampled_from(["ab", "abc", "abcd"]))))
    new = data.draw(
        sequences(data.draw(st.sampled_from(["ab", "abc", "abxc", "acb", "abcd", "ax", "ky"])))
    )
    renames = data.draw(st.sampled_from([{}, {}, {"a": "k"}, {"b": "x"}]))
    cut = data.draw(st.integers(1, 1 + rows[-1]["at"]))
    automata = compile_pattern(old.pattern), compile_pattern(new.pattern)
    carrying = Carrying(*automata, renames, kept=EVERYTHING)
    found, outcome = lived(carrying, rows, cut * SECOND)
    expected = naive(old, new, renames, rows, cut)
    assert found == expected.found
    assert outcome.lost == expected.lost
    assert set(outcome.lost) <= set(losses(carrying)), "the plan says so before"


# Any pattern


def compiled(pattern: Pattern) -> Automaton:
    try:
        return compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise


CLAUSES = [
    "PATTERN (A B+ C) DEFINE A AS x = 0, B AS x >= 1, C AS x <> 1",
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+ C?) DEFINE A AS x = 0, B AS x > 0, C AS x = 2",
    "PATTERN (A B A C) DEFINE A AS x <> 1, B AS x >= 1",
    "PATTERN (A B* C) WITHIN INTERVAL '4' SECOND DEFINE B AS x >= LAST(A.x), C AS x < A.x + 1",
]


def recognized(clause: str) -> Automaton:
    sql = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES COUNT(*) AS n {clause})"
    return read(sql)[1].automaton


automata = st.one_of(
    st.one_of(patterns(), reluctant_patterns()).map(compiled),
    st.sampled_from(CLAUSES).map(recognized),
)


@settings(max_examples=80, deadline=None)
@given(automaton=automata, rows=streams(14), cut=st.integers(1, 20))
def test_a_pattern_that_is_the_same_goes_on_as_if_there_were_no_cut(automaton, rows, cut):
    carrying = Carrying(automaton, automaton)
    assert losses(carrying) == {}
    found, outcome = lived(carrying, rows, cut * SECOND)
    assert not outcome.lost
    assert not outcome.ended
    key, whole = Key(), Counter[Any]()
    for event in arrow_events.events(automaton, table(rows), "at"):
        key, *both = step(automaton, key, event)
        whole += shown(automaton, [one for some in both for one in some])
    _, *both = advance(automaton, key, FAR)
    assert found == whole + shown(automaton, [one for some in both for one in some])


@settings(max_examples=80, deadline=None)
@given(old=automata, new=automata, rows=streams(14), cut=st.integers(1, 20), kept=st.booleans())
def test_what_may_be_lost_is_known_before(old, new, rows, cut, kept):
    carrying = Carrying(old, new, kept=EVERYTHING if kept else ())
    _, outcome = lived(carrying, rows, cut * SECOND)
    assert {name.lower() for name in outcome.lost} <= set(losses(carrying))
