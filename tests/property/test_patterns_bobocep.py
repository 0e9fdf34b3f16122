"""In its compatibility mode a pattern finds what BoboCEP finds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.patterns.compile import compile_pattern
from millstream.patterns.pattern import Pattern
from property.patterns_random import PLAIN, meets, streams
from property.test_patterns_automaton import found, shown
from support.bobocep import builder, completed


@st.composite
def middle(draw, pattern: Pattern, name: str) -> Pattern:
    kind = draw(
        st.sampled_from(
            ["next", "followed_by", "not_next", "not_followed_by", "times", "loop", "optional"]
        )
    )
    before = pattern.blocks[-1]
    if kind in ("loop", "optional") and (before.optional or before.most is None):
        kind = "followed_by"  # a loop behind a loop or an optional block is one of the quirks that we leave out
    tests = draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=2, unique=True))
    if kind in ("next", "not_next"):
        return getattr(pattern, kind)(name, tests[0])
    if kind == "not_followed_by":
        return pattern.not_followed_by(name, tests)
    added = pattern.followed_by(name, tests)
    return {
        "followed_by": added,
        "times": added.times(2),
        "loop": added.zero_or_more(),
        "optional": added.optional(),
    }[kind]


@st.composite
def bobo_patterns(draw) -> Pattern:
    pattern = Pattern().begin("a", draw(st.sampled_from(PLAIN)))
    for name in ["b", "c", "d"][: draw(st.integers(0, 3))]:
        pattern = draw(middle(pattern, name))
    pattern = draw(st.sampled_from([pattern.next, pattern.followed_by]))(
        "z", draw(st.sampled_from(PLAIN))
    )
    if draw(st.integers(0, 4)) == 0:
        pattern = pattern.precondition(draw(st.sampled_from(PLAIN)))
    if draw(st.integers(0, 4)) == 0:
        pattern = pattern.halt(draw(st.sampled_from(PLAIN)))
    return pattern.singleton() if draw(st.integers(0, 2)) == 0 else pattern


@settings(max_examples=300)
@given(pattern=bobo_patterns(), rows=streams(12))
def test_the_compatibility_mode_finds_what_bobocep_finds(pattern, rows):
    automaton = compile_pattern(pattern, compat="bobocep")
    ours = Counter(taken for taken, _ in shown(automaton, found(automaton, rows)))
    assert ours == Counter(completed(builder(pattern, meets), rows))
