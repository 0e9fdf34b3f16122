"""BoboCEP's own vectors: how many complex events its compatibility mode finds."""

from __future__ import annotations

import pytest

from millstream.patterns.compile import compile_pattern
from millstream.patterns.pattern import Pattern
from support.bobocep import builder, completed
from unit.patterns.matching import numbers, run

fb1 = Pattern().begin("one", "x = 1")
several = ["x = 21", "x = 22", "x = 23"]
three = "x = 3"

VECTORS = [
    (fb1.followed_by("two", "x = 2").followed_by("three", three), [1, 2, 3], 1),
    (fb1.not_followed_by("two", "x = 2").followed_by("three", three), [1, 6, 3], 1),
    (fb1.not_followed_by("two", "x = 2").followed_by("three", three), [1, 2, 6, 3], 1),
    (fb1.followed_by("two", several).followed_by("three", three), [1, 22, 3], 1),
    (fb1.followed_by("two", several).followed_by("three", three), [1, 6, 23, 3], 1),
    (fb1.not_followed_by("two", several).followed_by("three", three), [1, 2, 3], 1),
    (fb1.not_followed_by("two", several).followed_by("three", three), [1, 21, 22, 23, 2, 3], 1),
    (fb1.next("two", "x = 2").next("three", three), [1, 2, 3], 1),
    (fb1.next("two", "x = 2").next("three", three), [1, 6, 3], 0),
    (fb1.not_next("two", "x = 2").next("three", three), [1, 6, 3], 1),
    (fb1.not_next("two", "x = 2").next("three", three), [1, 2, 3], 0),
    (
        fb1.followed_by("two", "x = 2").followed_by("three", three).precondition("x > 0"),
        [1, 0, 2, 3],
        0,
    ),
    (fb1.followed_by("two", "x = 2").followed_by("three", three).halt("x = 10"), [1, 10, 2, 3], 0),
    (fb1.followed_by("two", "x = 2").times(3).followed_by("three", three), [1, 2, 2, 2, 3], 1),
    (fb1.followed_by("two", "x = 2").zero_or_more().followed_by("three", three), [1, 3], 1),
    (fb1.followed_by("two", "x = 2").zero_or_more().followed_by("three", three), [1, 2, 3], 1),
    (
        fb1.followed_by("two", "x = 2").zero_or_more().followed_by("three", three),
        [1, *[2] * 10, 3],
        1,
    ),
    (fb1.followed_by("two", "x = 2").optional().followed_by("three", three), [1, 3], 1),
    (fb1.followed_by("two", "x = 2").optional().followed_by("three", three), [1, 2, 3], 1),
    (fb1.followed_by("two", "x = 2").followed_by("three", three).singleton(), [1, 2, 1, 3], 1),
    (fb1.followed_by("two", "x = 2").followed_by("three", three).singleton(), [1, 2, 1, 3] * 2, 2),
]


@pytest.mark.parametrize(("pattern", "values", "count"), VECTORS)
def test_a_vector_of_bobocep_gives_its_number_of_complex_events(pattern, values, count):
    assert len(run(compile_pattern(pattern, compat="bobocep"), numbers(*values))[0]) == count

    def meets(text, event, history):
        return event in several_values(text)

    def several_values(text):
        return {int(text[4:])} if text.startswith("x = ") else set(range(1, 100))

    assert len(completed(builder(pattern, meets), list(values))) == count
