"""Which patterns are sound across devices, option by option."""

from __future__ import annotations

import inspect

import pytest

from millstream.patterns.across import inexact, unsound
from millstream.patterns.pattern import Pattern

A = Pattern("p").begin("a", "x = 1").within("1 hour")
LOOP = A.followed_by("b", "x = 2").one_or_more()
B, C = ("b", "x = 2"), ("c", "x = 3")

#: For each method of a pattern, what it makes and the reasons why that is not sound.
OPTIONS = {
    "begin": (A, []),
    "next": (A.next(*B), ['block "b" is next: another event may come between']),
    "followed_by": (A.followed_by(*B), []),
    "followed_by_any": (A.followed_by_any(*B), []),
    "not_next": (A.not_next(*B).followed_by(*C), ['block "b" is not_next: the very next event']),
    "not_followed_by": (
        A.not_followed_by(*B).followed_by(*C),
        ['block "b" is not_followed_by: an event that meets it'],
    ),
    "either": (A.followed_by(Pattern.either(Pattern().begin(*B), Pattern().begin(*C))), []),
    "optional": (A.followed_by(*B).optional().followed_by(*C), []),
    "times": (A.followed_by(*B).times(2, 3), []),
    "one_or_more": (LOOP, []),
    "zero_or_more": (A.followed_by(*B).zero_or_more().followed_by(*C), []),
    "times_or_more": (A.followed_by(*B).times_or_more(2), []),
    "greedy": (LOOP.greedy().followed_by(*C), ['block "b" is greedy: an event that it must take']),
    "reluctant": (LOOP.reluctant().followed_by(*C), ['block "b" is reluctant: an event that ends']),
    "consecutive": (LOOP.consecutive(), ['block "b" is consecutive: another event may come']),
    "combinations": (LOOP.combinations(), []),
    "until": (LOOP.until("x = 9"), ['block "b" has an until: an event that meets it']),
    "within": (A.followed_by(*B), []),
    "singleton": (A.followed_by(*B).singleton(), ['pattern "p" is a singleton']),
    "key": (A.followed_by(*B).key("k"), []),
    "precondition": (A.precondition("x > 0"), ['pattern "p" has a precondition']),
    "halt": (A.halt("x > 9"), ['pattern "p" has a halt condition']),
    "no_skip": (A.no_skip(), []),
    "skip_to_next": (A.skip_to_next(), ['pattern "p" skips']),
    "skip_past_last": (A.skip_past_last(), ['pattern "p" skips']),
    "skip_to_first": (LOOP.skip_to_first("b"), ['pattern "p" skips']),
    "skip_to_last": (LOOP.skip_to_last("b"), ['pattern "p" skips']),
    "like_bobocep": (A.followed_by(*B).like_bobocep(), ['pattern "p" has BoboCEP\'s rules']),
    "emit": (A.emit("a.x as x"), []),
    "timeouts": (A.followed_by(*B).timeouts(), ['pattern "p" reports timeouts']),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_pattern_is_sound_unless_what_is_missing_counts(option):
    pattern, reasons = OPTIONS[option]
    found = unsound(pattern)
    assert len(found) == len(reasons)
    assert all(one.startswith(reason) for one, reason in zip(found, reasons, strict=True))


def test_every_option_of_a_pattern_was_thought_of():
    asking = {"described", "explain", "outcome"}
    methods = {
        name
        for name, method in inspect.getmembers(Pattern, inspect.isfunction)
        if not name.startswith("_")
    }
    assert set(OPTIONS) == methods - asking


def test_a_negation_at_the_end_is_named_for_what_it_is():
    trailing = unsound(A.not_followed_by(*B))
    assert trailing == (
        'block "b" must not be met until the time is up, and may be on another device',
    )


def test_a_pattern_without_a_time_is_not_sound():
    assert unsound(Pattern("p").begin("a", "x = 1"))[0].startswith('pattern "p" has no within')


def test_what_is_in_a_group_counts_too():
    group = Pattern().begin(*B).next(*C)
    assert unsound(A.followed_by("g", group)) == (
        'block "c" is next: another event may come between on another device',
    )
    assert unsound(A.next(group))[0].startswith("a group is next")


def test_several_reasons_are_all_named():
    assert len(unsound(A.next(*B).not_next(*C).followed_by("d").skip_to_next())) == 3


@pytest.mark.parametrize(
    ("pattern", "reasons"),
    [
        (A.followed_by(*B), 0),
        (A.followed_by("b", "x > a.x"), 1),
        (LOOP.followed_by("c", "x > avg(b.x)"), 1),
        (A.followed_by("b", lambda event, history: bool(history)), 1),
        (A.followed_by("b", lambda event: event["x"] == 1), 0),
        (A.followed_by("b", "x = 2", within="1 minute"), 1),
        (A.followed_by("b", Pattern.either(Pattern().begin(*C), Pattern().begin("d"))), 1),
    ],
)
def test_what_looks_back_or_counts_from_the_last_event_is_not_exact(pattern, reasons):
    assert unsound(pattern) == ()
    assert len(inexact(pattern)) == reasons
    assert all(one.startswith(('block "b"', 'block "c"')) for one in inexact(pattern))
