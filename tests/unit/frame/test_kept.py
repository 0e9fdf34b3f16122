"""`make bench` finds figures that are worse than those kept before by more than the noise."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.kept import changes, figures
from hypothesis import given
from hypothesis import strategies as st


def result(results: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"settings": settings, "results": results}


@pytest.mark.parametrize(
    ("name", "before", "after", "marked"),
    [
        ("median_s", 10.0, 11.5, "worse"),
        ("median_s", 10.0, 8.5, "better"),
        ("median_s", 10.0, 10.9, ""),
        ("events_per_s", 1_000, 850, "worse"),
        ("events_per_s", 1_000, 1_200, "better"),
        ("peak_mb", 500, 800, "worse"),
        ("times", 2.0, 1.5, "worse"),
    ],
)
def test_what_a_figure_is_called_tells_what_is_worse(
    name: str, before: float, after: float, marked: str
) -> None:
    (change,) = changes(result({name: before}), result({name: after}))
    assert (change.worse, change.better) == (marked == "worse", marked == "better")


@given(st.floats(0.0, 2.0), st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_no_change_within_the_noise_of_either_run_is_worse(
    spread: float, before: float, after: float
) -> None:
    noisy, quiet = {"spread": spread, "median_s": before}, {"spread": 0.0, "median_s": after}
    for one, other in ((noisy, quiet), (quiet, noisy)):
        (change,) = changes(result({"flow": one}), result({"flow": other}))
        lost = 1 - one["median_s"] / other["median_s"]
        assert change.worse == (lost > max(0.1, spread))


def test_turns_tell_the_noise_where_no_spread_is_given() -> None:
    found = dict(figures({"q0": {"rates": [90, 120, 100], "events_per_s": 100}}))
    assert found["q0.events_per_s"].noise == pytest.approx(0.3)


def test_other_systems_and_counts_are_no_figures_and_other_settings_are_not_compared() -> None:
    results = {"flink": {"seconds": 3.0}, "ours": {"seconds": 2.0, "matches": 7}}
    assert [name for name, _ in figures(results)] == ["ours.seconds"]
    (change,) = changes(result(results, events=1), result(results, events=2))
    assert change.before is None
    assert not change.worse
