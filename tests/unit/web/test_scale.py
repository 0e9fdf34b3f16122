import doctest
from datetime import UTC, datetime

import pytest

from millstream.web import scale


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(scale).failed == 0


@pytest.mark.parametrize(
    ("high", "end"), [(0, 1), (0.9, 1), (5, 5), (5.1, 6), (336_776, 400_000), (41, 50)]
)
def test_an_axis_ends_on_a_step_that_holds_the_highest_value(high, end):
    assert scale.rounded_up(high) == pytest.approx(end)


def test_numbers_get_round_ticks_that_stay_inside():
    assert [tick.label for tick in scale.ticks("number", 0, 400_000, 5)] == [
        "0",
        "100k",
        "200k",
        "300k",
        "400k",
    ]


def test_ticks_below_zero_are_there_too():
    assert [tick.at for tick in scale.ticks("number", -10, 20, 5)] == [-10, 0, 10, 20]


def test_a_year_gets_months_and_names_the_year_in_january():
    low, high = (
        datetime(2013, 1, 1, tzinfo=UTC).timestamp(),
        datetime(2014, 1, 2, tzinfo=UTC).timestamp(),
    )
    labels = [tick.label for tick in scale.ticks("date", low, high, 20)]
    assert labels[0] == "Jan 2013"
    assert labels[1:12] == [
        "Feb",
        "Mar",
        "Apr",
        "May",
        "Jun",
        "Jul",
        "Aug",
        "Sep",
        "Oct",
        "Nov",
        "Dec",
    ]
    assert labels[-1] == "Jan 2014"


def test_a_few_weeks_get_days():
    low = datetime(2013, 1, 1, tzinfo=UTC).timestamp()
    labels = [tick.label for tick in scale.ticks("date", low, low + 5 * 86_400, 6)]
    assert labels == ["1 Jan", "2 Jan", "3 Jan", "4 Jan", "5 Jan", "6 Jan"]


@pytest.mark.parametrize("kind", ["date", "elapsed", "hour", "number"])
def test_an_axis_without_length_still_has_ticks_that_can_be_drawn(kind):
    assert len(scale.ticks(kind, 0, 0)) <= 1


def test_elapsed_time_is_cut_into_even_steps():
    assert [tick.label for tick in scale.ticks("elapsed", 0, 95, 4)] == [
        "0 s",
        "30 s",
        "1:00 min",
        "1:30 min",
    ]
