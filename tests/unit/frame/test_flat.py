"""Whether a benchmark's series grows: thirds, blocks, noise."""

from __future__ import annotations

import random

from benchmarks.flat import Limit, verdict

NONE = Limit(0.0, 0.0)


def points(value: object) -> list[tuple[float, float]]:
    assert callable(value)
    return [(float(at), float(value(at))) for at in range(3600)]


def test_a_constant_is_flat() -> None:
    assert verdict(points(lambda _: 5.0), NONE).flat


def test_a_slow_leak_is_not_flat() -> None:
    chance = random.Random(1)
    found = verdict(points(lambda at: 1000 + at / 36 + chance.gauss(0, 20)), NONE)
    assert not found.flat
    assert 90 < found.per_hour < 110


def test_noise_and_the_teeth_of_a_saw_are_flat() -> None:
    chance = random.Random(1)
    assert verdict(points(lambda _: 1000 + chance.gauss(0, 200)), NONE).flat
    assert verdict(points(lambda at: at % 211), NONE).flat


def test_what_grows_in_the_first_third_only_is_flat() -> None:
    assert verdict(points(lambda at: min(at, 1100)), NONE).flat


def test_growth_below_the_limit_is_flat() -> None:
    found = points(lambda at: 1000 + at / 120)
    assert verdict(found, Limit(0.0, 0.05)).flat
    assert verdict(found, Limit(20.0, 0.0)).flat
    assert not verdict(found, NONE).flat


def test_a_few_points_or_none_say_nothing() -> None:
    assert verdict([], NONE).flat
    assert verdict([(0.0, 1.0)], NONE).flat
