"""Patterns in flows: the stage, its columns and key, and what is refused while building."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import (
    DuplicateName,
    InvalidCondition,
    InvalidFunction,
    InvalidOption,
    NoTime,
    NotLoadable,
    PatternError,
    UnboundedState,
    UnknownColumn,
)
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.yaml import load
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.groups import plan as plan_of

meltdown = (
    ms.Pattern()
    .begin("first", "delay > 60")
    .followed_by("worse", "delay > first.delay")
    .times(3)
    .not_followed_by("ok", "delay <= 0")
    .within("2 hours")
)
EMIT = "origin, first.at as began, count(worse.*) as n, max(worse.delay) as peak"


def departures() -> ms.Stream:
    schema = "origin string, delay double, at timestamp"
    return ms.Flow("flights").source("departures", ms.inbox(schema), time="at", key="origin")


def test_a_match_has_the_columns_that_it_emits_and_the_time():
    stream = departures().match("meltdown", meltdown, emit=EMIT)
    assert (
        stream.schema.ddl == "origin string, began timestamp, n bigint, peak double, at timestamp"
    )
    assert (stream.time, stream.key) == ("at", "origin")


def test_without_emit_it_has_the_key_and_the_blocks():
    assert departures().match("meltdown", meltdown).columns == ("origin", "first", "worse", "at")


def test_the_key_is_the_call_s_then_the_pattern_s_then_the_stream_s():
    def by(pattern, **options):
        stream = departures()
        stream.match("x", pattern, **options)
        return stream.flow.stages["x"].by

    assert by(meltdown.emit("count(*) as n")) == ("origin",)
    assert by(meltdown.key().emit("count(*) as n")) == ()
    assert by(meltdown.emit("count(*) as n"), by=[]) == ()
    assert by(meltdown.key("delay").emit("count(*) as n"), by="ORIGIN") == ("origin",)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (
            lambda s: s.match("x", "delay > 60"),
            InvalidOption,
            "is given str where a pattern should be",
        ),
        (
            lambda s: s.match("x", meltdown, by="airport"),
            UnknownColumn,
            'matches by column "airport"',
        ),
        (
            lambda s: s.match("x", ms.Pattern().begin("a", "dealy > 1")),
            UnknownColumn,
            'block "a" reads column "dealy"',
        ),
        (lambda s: s.match("x", meltdown, emit="delay"), PatternError, 'emits column "delay"'),
        (lambda s: s.match("x", meltdown, emit="first.at as at"), DuplicateName, 'output "at"'),
        (
            lambda s: s.match("x", meltdown, emit="first.at as a, worse.at as A"),
            DuplicateName,
            'two outputs "a"',
        ),
        (lambda s: s.match("x", meltdown, emit="count(worse.*)"), PatternError, "without a name"),
        (
            lambda s: s.match("x", meltdown, emit="sum(worse.origin) as s"),
            InvalidCondition,
            "is text and no number",
        ),
        (lambda s: s.match("x", meltdown, shards=0), InvalidOption, "over 0 shards"),
        (
            lambda s: s.match("x", a.followed_by("b"), strict=True),
            UnboundedState,
            'stage "x" .* may live for ever',
        ),
    ],
)
def test_a_mistake_is_found_while_building(make, error, said):
    with pytest.raises(error, match=said) as caught:
        make(departures())
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_a_stream_without_time_has_no_matches():
    stream = ms.Flow("f").source("rows", ms.inbox("k string"))
    with pytest.raises(NoTime, match="is a match"):
        stream.match("x", ms.Pattern().begin("a", "k = 'a'"))


def test_the_plan_knows_its_state_and_reach():
    stream = departures().match("meltdown", meltdown, emit=EMIT)
    stream.sink("alerts", ms.memory())
    (group,) = plan_of(stream.flow).groups
    assert (group.stateful, group.horizon, group.handed_over) == (True, timedelta(hours=2), ())


def test_another_layout_means_the_same_and_another_condition_does_not():
    def of(pattern):
        stream = departures().match("m", pattern, emit="origin")
        stream.sink("out", ms.memory())
        return fingerprint(plan_of(stream.flow), "out")

    one = of(ms.Pattern().begin("a", "delay>60"))
    assert difference(one, of(ms.Pattern().begin("a", "delay  >  60"))) == []
    assert difference(one, of(ms.Pattern().begin("a", "delay > 61")))
    limit = 60
    asking = of(ms.Pattern().begin("a", lambda event, history: event["delay"] > limit))
    limit = 61
    assert difference(
        asking, of(ms.Pattern().begin("a", lambda event, history: event["delay"] > limit + 1))
    )


def test_a_pattern_is_described():
    stream = departures().match("meltdown", meltdown, emit=EMIT)
    stream.sink("alerts", ms.memory())
    described = describe(stream.flow)["stages"][1]
    assert described["kind"] == "match"
    assert described["pattern"]["within"] == "2 h"
    assert [block["name"] for block in described["pattern"]["blocks"]] == ["first", "worse", "ok"]


a = ms.Pattern().begin("a", "delay > 1")
pair = ms.Pattern().begin("x", "delay > 2").next("y", ["delay > 3", "delay < 0"])
other = ms.Pattern().begin("z", "delay > 4")


@pytest.mark.parametrize(
    "pattern",
    [
        meltdown,
        a.next("b", "delay > 2")
        .optional()
        .followed_by_any("c")
        .one_or_more()
        .combinations()
        .greedy(),
        a.followed_by(pair).times(2, 3).consecutive().within("5 minutes").skip_to_last("y"),
        a.followed_by("pair", pair).zero_or_more().followed_by("d", "delay = 0", within="1 minute"),
        a.followed_by(ms.Pattern.either(pair, other)).skip_to_next().singleton(),
        a.one_or_more()
        .reluctant()
        .until("delay > 9")
        .not_next("n", "delay < 1")
        .next("e", "delay = 5")
        .skip_past_last(),
        a.followed_by("b")
        .precondition("delay > 0")
        .halt("delay > 100")
        .halt("delay = 50")
        .timeouts()
        .within("1 h"),
    ],
)
def test_a_pattern_comes_back_from_yaml_as_it_was(tmp_path, pattern):
    stream = departures().match("m", pattern, emit="origin")
    stream.sink("alerts", ms.memory())
    (tmp_path / "flow.yaml").write_text(dump(stream.flow))
    assert load(tmp_path / "flow.yaml").stages["m"] == stream.flow.stages["m"]


def test_a_phenomenon_comes_back_from_yaml_as_it_was(tmp_path):
    up, down = (
        ms.Pattern("up").begin("a", "delay > 1").next("b").within("1 h"),
        ms.Pattern("down").begin("b", "delay < 1"),
    )
    stream = departures()
    stream.match(
        "m",
        ms.Phenomenon(
            "m", (up, down.emit("origin, b.delay as d")), emit="origin, b.delay + 1 as d"
        ),
    )
    found = stream.match(
        "n", ms.Phenomenon("n", (up, down)), emit="origin, b.delay as d", shards=40
    )
    found.sink("alerts", ms.memory())
    (tmp_path / "flow.yaml").write_text(dump(stream.flow))
    assert load(tmp_path / "flow.yaml") == stream.flow


def test_what_yaml_cannot_hold_is_said():
    for pattern in (
        ms.Pattern().begin("a", lambda e, h: True),
        ms.Pattern("p").begin("a"),
        a.key("origin"),
    ):
        stream = departures().match("m", pattern, emit="origin")
        stream.sink("alerts", ms.memory())
        with pytest.raises(InvalidFunction, match="has a wrong pattern"):
            dump(stream.flow)


@pytest.mark.parametrize(
    ("blocks", "error", "said", "line"),
    [
        ("match: delay > 60", NotLoadable, "not a list of blocks", 9),
        (
            "match:\n      - {begin: a, were: delay > 60}",
            NotLoadable,
            '"were", which means nothing',
            12,
        ),
        (
            "match:\n      - {begin: a, where: dealy > 60}",
            UnknownColumn,
            'block "a" reads column "dealy"',
            12,
        ),
        ("match:\n      - {where: delay > 60}", NotLoadable, "does not say what it is", 12),
        (
            "match:\n      - {begin: a, python: checks.late}",
            NotLoadable,
            'condition in Python, "python"',
            12,
        ),
        (
            "match:\n      - {begin: a, where: 'checks:late'}",
            NotLoadable,
            'condition in Python, "checks:late"',
            12,
        ),
        (
            "match:\n      - {begin: a, times: many}",
            NotLoadable,
            '"times: many", which is no number',
            12,
        ),
        ("phenomenon: {}", NotLoadable, 'stage "m" names no patterns', 9),
        (
            "phenomenon:\n      up: {match: [{begin: a, where: dealy > 1}]}",
            UnknownColumn,
            'column "dealy"',
            12,
        ),
        (
            "phenomenon:\n      up: {match: [{begin: a}], wihtin: 1 h}",
            NotLoadable,
            '"wihtin", which means nothing',
            12,
        ),
        (
            "match:\n      - {begin: a}\n    skip: over",
            NotLoadable,
            '"skip" of stage "m" is "over"',
            9,
        ),
    ],
)
def test_a_mistake_in_yaml_has_its_place(tmp_path, blocks, error, said, line):
    head = dump(departures().flow).rstrip()
    text = f"{head}\nstages:\n  m:\n    from: departures\n    {blocks}\nsinks:\n  out: {{from: m, memory: }}\n"
    (tmp_path / "flow.yaml").write_text(text)
    with pytest.raises(error, match=said) as caught:
        load(tmp_path / "flow.yaml")
    assert caught.value.where.line == text[: text.index("  m:\n")].count("\n") + 1 + line - 9


def test_the_plan_warns_of_runs_that_may_live_for_ever():
    stream = departures().match(
        "m", ms.Pattern().begin("a", "delay > 1").followed_by("b"), emit="origin"
    )
    stream.sink("out", ms.memory())
    (warning,) = plan_of(stream.flow).warnings
    assert warning.startswith('stage "m": the pattern waits for an event that may never come')
