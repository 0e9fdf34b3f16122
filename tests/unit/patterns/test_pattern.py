"""The language: what is built, and what is refused while building, with the block, the place and a hint."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import (
    DuplicateName,
    FlowError,
    ImpossiblePattern,
    InvalidCondition,
    InvalidDuration,
    InvalidName,
    InvalidOption,
    InvalidSql,
    PatternError,
    UnknownBlock,
)
from millstream.flow.stages.match import Match
from millstream.patterns.pattern import Pattern, Phenomenon, Skip


def begun() -> Pattern:
    return Pattern().begin("a", "x = 1")


def test_a_call_returns_a_new_pattern_and_leaves_the_old_one_alone():
    first = begun()
    longer = first.followed_by("b", "x = 2").times(3).within("2 hours")
    assert [block.name for block in first.blocks] == ["a"]
    assert [block.name for block in longer.blocks] == ["a", "b"]
    assert (longer.blocks[1].least, longer.blocks[1].most) == (3, 3)
    assert longer.span == timedelta(hours=2)


def test_patterns_are_data_that_compares_and_hashes():
    assert begun().next("b", "x = 2") == begun().next("b", "x = 2")
    assert hash(begun()) == hash(begun())
    assert begun().next("b", "x = 2") != begun().followed_by("b", "x = 2")


def test_each_way_to_go_on_has_its_contiguity():
    pattern = begun().next("b", "x=2").followed_by("c", "x=3").followed_by_any("d", "x=4")
    assert [block.contiguity for block in pattern.blocks[1:]] == ["strict", "relaxed", "any"]


def test_a_list_of_conditions_is_met_by_any():
    assert begun().next("b", ["x = 2", "x = 3"]).blocks[1].conditions == ("x = 2", "x = 3")


def test_a_group_is_a_block_with_a_body():
    group = Pattern().begin("b", "x = 2").next("c", "x = 3")
    pattern = begun().followed_by(group).one_or_more()
    assert [[block.name for block in body] for body in pattern.blocks[1].body] == [["b", "c"]]
    assert pattern.blocks[1].most is None


def test_alternatives_are_a_block_with_several_bodies():
    pattern = begun().followed_by(
        Pattern.either(Pattern().begin("b", "x=2"), Pattern().begin("c", "x=3"))
    )
    assert [[block.name for block in body] for body in pattern.blocks[1].body] == [["b"], ["c"]]


def test_what_holds_for_the_whole_is_kept():
    pattern = (
        begun()
        .singleton()
        .key("card")
        .precondition("x > 0")
        .halt("x = 10")
        .skip_to_last("A")
        .emit("a.x as x")
    )
    assert (pattern.one_at_a_time, pattern.keys, pattern.output) == (True, ("card",), "a.x as x")
    assert (pattern.required, pattern.halting) == (("x > 0",), ("x = 10",))
    assert pattern.skip == Skip("to_last", "a")


def test_a_phenomenon_names_its_patterns_and_gives_them_its_columns():
    found = Phenomenon(
        "outage", (begun(), begun().emit("a.x as y"), Pattern("silent").begin("b")), emit="a.x as z"
    )
    assert [one.name for one in found.patterns] == ["outage", "outage1", "silent"]
    assert [one.output for one in found.patterns] == ["a.x as z", "a.x as y", "a.x as z"]


def _refusals():
    yield lambda: Pattern().next("a", "x"), ImpossiblePattern, "does not begin"
    yield lambda: begun().begin("b"), ImpossiblePattern, "begins twice"
    yield lambda: Pattern().begin(""), InvalidName, "no name"
    yield lambda: Pattern().begin("a b"), InvalidName, 'block "a b"'
    yield lambda: begun().next("A", "x = 2"), DuplicateName, 'two blocks "A"'
    yield lambda: begun().next("b", "x = = 2"), InvalidSql, 'block "b" has a wrong condition'
    yield lambda: begun().next("b", 3), InvalidCondition, 'block "b" has int'
    yield lambda: begun().next("b", []), InvalidCondition, "empty list"
    yield lambda: begun().next("b", lambda: True), InvalidCondition, "predicate"
    yield lambda: begun().not_next("b", None), InvalidCondition, 'block "b" has no condition'
    yield (
        lambda: begun().not_next("b", "x = 2").optional(),
        ImpossiblePattern,
        'block "b" is negated and is optional',
    )
    yield lambda: begun().times(3, 2), InvalidOption, 'block "a" is taken 3 to 2 times'
    yield lambda: begun().times_or_more(0), InvalidOption, "0 times or more"
    yield lambda: begun().greedy(), ImpossiblePattern, 'block "a" is greedy and is no loop'
    yield lambda: begun().until("x = 2"), ImpossiblePattern, "no loop"
    yield (
        lambda: begun().next(Pattern().begin("b")).one_or_more().greedy(),
        ImpossiblePattern,
        "is a group",
    )
    yield lambda: begun().within("soon"), InvalidDuration, "wrong within"
    yield lambda: begun().within("0 s"), InvalidOption, "no time"
    yield (
        lambda: begun().next("b", "x = 2", within="x"),
        InvalidDuration,
        'block "b" has a wrong within',
    )
    yield lambda: begun().skip_to_first("c"), UnknownBlock, 'block "c"'
    yield (
        lambda: begun().next(begun().within("1 s")),
        ImpossiblePattern,
        "options of a whole pattern",
    )
    yield lambda: begun().next(Pattern()), ImpossiblePattern, "no blocks"
    yield lambda: Pattern.either(), ImpossiblePattern, "alternatives"
    yield lambda: Pattern().optional(), ImpossiblePattern, "no block yet"
    yield lambda: Phenomenon("p", ()), PatternError, "no patterns"
    yield lambda: Phenomenon("p", (Pattern("q").begin("a"),) * 2), DuplicateName, 'two patterns "q"'


@pytest.mark.parametrize(("build", "error", "said"), list(_refusals()))
def test_a_mistake_is_refused_where_it_is_made_with_a_hint(build, error, said):
    with pytest.raises(error, match=said) as caught:
        build()
    assert isinstance(caught.value, FlowError)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert caught.value.hint or error is InvalidSql


def test_a_condition_may_have_a_percent_sign() -> None:
    rows = ms.Flow("f").source(
        "rows", ms.inbox("k string, v long, at timestamp"), time="at", key="k"
    )
    odd = ms.Pattern().begin("a", "v % 2 = 1").next("b", "k LIKE '%d'").within("5 s")
    assert rows.match("odd", odd, emit="k, a.v AS odd").columns == ("k", "odd", "at")


def test_the_plan_says_whether_runs_are_shared():
    pattern = Pattern().begin("a", "x = 1").followed_by("b", "x = 2").within("2 hours")
    assert Match("m", "in", pattern, ("k",)).bounded_state == "shared runs, at most 2 h"
    other = Pattern().begin("a", "x = 1").followed_by("b", "x > a.x")
    assert Match("m", "in", other, ("k",)).bounded_state == "runs"
    wrong = Pattern().begin("a", "x = 1").followed_by("b", "count(distinct a.x) > 1")
    assert Match("m", "in", wrong, ("k",)).bounded_state == "runs"
    both = Phenomenon("both", (pattern, pattern.within("1 hour")))
    assert Match("m", "in", both, ("k",)).bounded_state == "shared runs, at most 2 h"
