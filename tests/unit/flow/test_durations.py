from datetime import timedelta

import pytest

from millstream.errors import InvalidDuration
from millstream.flow.durations import duration
from millstream.flow.durations import format as shown


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1 hour", timedelta(hours=1)),
        ("90 s", timedelta(seconds=90)),
        ("500 ms", timedelta(milliseconds=500)),
        ("1 h 30 min", timedelta(hours=1, minutes=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5 days", timedelta(hours=36)),
        ("2 Weeks", timedelta(weeks=2)),
        ("7 µs", timedelta(microseconds=7)),
        ("0 s", timedelta(0)),
        (timedelta(minutes=3), timedelta(minutes=3)),
    ],
)
def test_a_duration_is_read_as_people_write_it(text, length):
    assert duration(text) == length


@pytest.mark.parametrize(
    "text",
    ["", "  ", "hour", "1", "1 fortnight", "1 month", "one hour", "1 hour and", "1:30", "1e3 s"],
)
def test_a_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(InvalidDuration):
        duration(text)


@pytest.mark.parametrize("value", [3600, 1.5, None])
def test_a_bare_number_is_refused_since_its_unit_is_not_known(value):
    with pytest.raises(InvalidDuration) as caught:
        duration(value)
    assert "1 hour" in caught.value.hint


@pytest.mark.parametrize("value", ["-1 h", timedelta(seconds=-1)])
def test_a_negative_duration_is_refused(value):
    with pytest.raises(InvalidDuration, match="negative"):
        duration(value)


def test_a_duration_longer_than_python_counts_is_refused():
    with pytest.raises(InvalidDuration, match="too long"):
        duration("99999999999 weeks")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(hours=1, minutes=30), "1 h 30 min"),
        (timedelta(days=8), "8 d"),
        (timedelta(0), "0 s"),
        (timedelta(seconds=1, microseconds=1500), "1 s 1 ms 500 us"),
        (timedelta(minutes=-5), "-5 min"),
    ],
)
def test_a_duration_is_shown_in_short_words(length, text):
    assert shown(length) == text


def test_what_is_shown_can_be_read_back_to_the_microsecond():
    length = timedelta(days=400, hours=3, minutes=59, seconds=1, microseconds=999_999)
    assert duration(shown(length)) == length
