"""Patterns in flows: the stage, its columns and key, and what is refused while building."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import DuplicateName, InvalidFunction, InvalidOption, NoTime, PatternError, UnknownColumn
from millstream.flow.describe import describe
from millstream.flow.dump import dump
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
    assert stream.schema.ddl == "origin string, began timestamp, n bigint, peak double, at timestamp"
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
        (lambda s: s.match("x", "delay > 60"), InvalidOption, "is given str where a pattern should be"),
        (lambda s: s.match("x", meltdown, by="airport"), UnknownColumn, 'matches by column "airport"'),
        (lambda s: s.match("x", ms.Pattern().begin("a", "dealy > 1")), UnknownColumn, 'block "a" reads column "dealy"'),
        (lambda s: s.match("x", meltdown, emit="delay"), PatternError, 'puts out column "delay"'),
        (lambda s: s.match("x", meltdown, emit="first.at as at"), DuplicateName, 'output "at"'),
        (lambda s: s.match("x", meltdown, emit="first.at as a, worse.at as A"), DuplicateName, 'two outputs "a"'),
        (lambda s: s.match("x", meltdown, emit="count(worse.*)"), PatternError, "without a name"),
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
    assert difference(asking, of(ms.Pattern().begin("a", lambda event, history: event["delay"] > limit + 1)))


def test_a_pattern_is_described_and_not_written_as_yaml():
    stream = departures().match("meltdown", meltdown, emit=EMIT)
    stream.sink("alerts", ms.memory())
    described = describe(stream.flow)["stages"][1]
    assert described["kind"] == "match"
    assert described["pattern"]["within"] == "2 h"
    assert [block["name"] for block in described["pattern"]["blocks"]] == ["first", "worse", "ok"]
    with pytest.raises(InvalidFunction, match="matches a pattern"):
        dump(stream.flow)
