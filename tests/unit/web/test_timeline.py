"""Timelines: what is drawn where, and what matches may come in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import matches
from millstream.web import Timeline, scale

SVG = "{http://www.w3.org/2000/svg}"
NINE = datetime(2024, 5, 4, 9, tzinfo=UTC)


def minute(number: float) -> datetime:
    return NINE + timedelta(minutes=number)


def drawn(picture: Timeline) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg)


def texts(picture: Timeline, kind: str) -> list[str]:
    return [one.text or "" for one in drawn(picture).iter(f"{SVG}text") if one.get("class") == kind]


def bars(picture: Timeline, kind: str = "span") -> list[tuple[float, float, float]]:
    """Return the bars as (x, y, width)."""
    found = (one for one in drawn(picture).iter(f"{SVG}rect") if one.get("class") == kind)
    return [
        (float(one.get("x", 0)), float(one.get("y", 0)), float(one.get("width", 0)))
        for one in found
    ]


def dots(picture: Timeline) -> list[tuple[str, float]]:
    """Return the events as (colour, x), without those of the legend."""
    groups = drawn(picture).iter(f"{SVG}g")
    return [
        ((dot.get("class") or "").split()[1], float(dot.get("cx", 0)))
        for one in groups
        for dot in one.iter(f"{SVG}circle")
    ]


FLAT: list[dict[str, Any]] = [
    {"card": "a", "began": minute(0), "n": 2, "at": minute(5)},
    {"card": "b", "began": minute(1), "n": 3, "at": minute(2)},
    {"card": "a", "began": minute(3), "n": 4, "at": minute(8)},
]


def test_a_bar_goes_from_the_first_event_of_a_match_to_its_last():
    (five, again, one) = bars(ms.plot(FLAT))
    assert five[2] == pytest.approx(again[2], abs=0.2)
    assert five[2] == pytest.approx(5 * one[2], abs=0.5)
    assert again[0] - five[0] == pytest.approx(3 * one[2], abs=0.5)


def test_matches_of_a_key_that_overlap_lie_below_each_other_in_its_lane():
    picture = ms.plot(FLAT)
    assert texts(picture, "lane") == ["a", "b"]
    heights = [y for _, y, _ in bars(picture)]
    assert heights == sorted(set(heights))


def test_matches_that_do_not_overlap_share_a_row():
    rows = [{"card": "a", "began": minute(n), "at": minute(n + 1)} for n in (0, 10, 20)]
    assert len({y for _, y, _ in bars(ms.plot(rows))}) == 1


def test_each_block_has_a_colour_and_each_of_its_events_a_dot():
    pattern = (
        ms.Pattern()
        .begin("small", "amount < 2")
        .one_or_more()
        .greedy()
        .next("big", "amount > 9")
        .within("1 hour")
    )
    events = [{"amount": amount, "at": minute(n)} for n, amount in enumerate([1, 1, 50])]
    (found, _) = matches(pattern, events)
    picture = ms.plot([found])
    assert [colour for colour, _ in dots(picture)] == ["c1", "c1", "c2"]
    assert "amount: 50" in picture.svg
    assert texts(picture, "lane") == [""]


SHAPES = {
    "rows": lambda rows: rows,
    "a generator": iter,
    "pandas": pd.DataFrame,
    "an Arrow table": pa.Table.from_pylist,
    "an Arrow batch": pa.RecordBatch.from_pylist,
    "rows of a JSON sink": lambda rows: [
        {
            name: f"{value:%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ],
    "times without a zone": lambda rows: [
        {
            name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ],
    "another zone": lambda rows: [
        {
            name: value.astimezone(timezone(timedelta(hours=5)))
            if isinstance(value, datetime)
            else value
            for name, value in row.items()
        }
        for row in rows
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_matches_look_the_same_whatever_they_come_in(shape):
    assert ms.plot(SHAPES[shape](FLAT)).svg == ms.plot(FLAT).svg


def test_blocks_of_pandas_and_arrow_are_events_too():
    rows = [
        {
            "card": 7,
            "a": {"x": 1, "at": minute(0)},
            "b": [{"x": 2, "at": minute(1)}],
            "at": minute(1),
        }
    ]
    assert ms.plot(pa.Table.from_pylist(rows)).svg == ms.plot(rows).svg
    assert len(dots(ms.plot(pd.DataFrame(rows)))) == 2


def test_a_match_that_is_certain_after_its_last_event_lasts_until_then():
    rows = [
        {"card": 7, "a": {"x": 1, "at": minute(0)}, "at": minute(30)},
        {"card": 8, "a": {"at": minute(30)}, "at": minute(30)},
    ]
    (quiet, _) = bars(ms.plot(rows))
    assert quiet[2] > 500


def test_a_run_that_ran_out_of_time_is_drawn_with_dashes():
    picture = ms.plot([{**FLAT[0], "timed_out": True}, {**FLAT[1], "timed_out": False}])
    assert (len(bars(picture, "open")), len(bars(picture))) == (1, 1)


def test_several_patterns_have_lanes_of_their_own():
    rows = [{**row, "pattern": "up" if place else "down"} for place, row in enumerate(FLAT)]
    assert texts(ms.plot(rows), "lane") == ["a · down", "b · up", "a · up"]


def test_the_earliest_are_drawn_if_there_are_too_many():
    picture = ms.plot(FLAT, limit=2)
    assert len(bars(picture)) == 2
    assert texts(picture, "end") == ["the first 2 matches, 4 May 2024, UTC"]


def test_no_matches_are_said_and_not_an_error():
    assert texts(ms.plot([]), "end") == ["no matches"]


def test_what_a_user_writes_stays_text():
    picture = ms.plot([{"card": "<b>&", "at": minute(0)}], title="<script>")
    assert texts(picture, "lane") == ["<b>&"]
    assert "<script>" not in picture.html


def test_a_notebook_shows_the_picture_and_a_file_holds_it(tmp_path):
    picture = ms.plot(FLAT)
    assert picture.svg in picture._repr_html_()
    assert picture.save(tmp_path / "new" / "m.svg").read_text() == picture.svg
    assert picture.svg in picture.save(str(tmp_path / "m.html")).read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.html", "new"]


def test_nothing_comes_from_outside():
    assert "http" not in ms.plot(FLAT).html.replace("http://www.w3.org/2000/svg", "")


class Stream:
    isStreaming = True


TWO = {"card": 1, "a": {"made": minute(0), "sent": minute(1)}, "at": minute(2)}
MISTAKES = [
    ((FLAT,), {"by": "crad"}, 'no column "crad"'),
    ((FLAT,), {"time": "when"}, 'no time "when"'),
    (([{"card": 1}],), {}, "a match has no time"),
    (([TWO],), {}, "events have the times made, sent"),
    ((Stream(),), {}, "a stream has no end"),
    ((7,), {}, "cannot be read from int"),
    (("out/matches",), {}, "cannot be read from str"),
    (([3],), {}, "a match is a dictionary, not int"),
    ((FLAT,), {"limit": 0}, "a plot of 0 matches"),
]


@pytest.mark.parametrize(
    ("given", "options", "said"), MISTAKES, ids=[said for *_, said in MISTAKES]
)
def test_what_cannot_be_drawn_is_said(given, options, said):
    with pytest.raises(ms.MillstreamError, match=said):
        ms.plot(*given, **options)


def test_events_with_several_times_are_drawn_at_the_one_that_is_named():
    assert len(dots(ms.plot([TWO], time="sent"))) == 1


@pytest.mark.parametrize(
    ("span", "labels"),
    [
        (0.004, ["09:00:00.000", "09:00:00.001", "09:00:00.002", "09:00:00.003", "09:00:00.004"]),
        (20, ["09:00:00", "09:00:05", "09:00:10", "09:00:15", "09:00:20"]),
        (3600, ["09:00", "09:15", "09:30", "09:45", "10:00"]),
        (86_400, ["16:00", "5 May", "08:00"]),
    ],
)
def test_less_than_a_day_gets_times_of_the_day(span, labels):
    low = NINE.timestamp()
    assert [tick.label for tick in scale.ticks("date", low, low + span, 5)] == labels


def test_midnight_is_written_as_the_day_that_begins():
    low = datetime(2024, 5, 4, 22, tzinfo=UTC).timestamp()
    assert [tick.label for tick in scale.ticks("date", low, low + 4 * 3600, 4)] == [
        "22:00",
        "23:00",
        "5 May",
        "01:00",
        "02:00",
    ]
