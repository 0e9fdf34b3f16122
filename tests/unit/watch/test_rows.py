"""Events as they come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from millstream.errors import EventRefused
from millstream.flow.schema import Schema
from millstream.watch.rows import Columns, decoded

TYPED = Columns(Schema.parse("sensor string, t double, at timestamp"), "at")
NINE = datetime(2026, 11, 16, 9, tzinfo=UTC)
NOW = int(NINE.timestamp()) * 1_000_000


def test_json_and_dicts_become_rows_of_the_columns_types() -> None:
    given = decoded(b'{"sensor": "s1", "t": 95, "at": "2026-11-16T10:00:00+01:00"}')
    assert TYPED.row(given, 0) == (NOW, {"sensor": "s1", "t": 95.0, "at": NINE})


def test_without_a_time_column_events_are_stamped() -> None:
    columns = Columns(Schema.parse("sensor string"))
    assert columns.row({"sensor": "s1"}, NOW) == (NOW, {"sensor": "s1", "at": NINE})
    assert columns.whole is not None
    assert columns.whole.names == ("sensor", "at")


def test_without_a_schema_values_are_taken_as_they_come() -> None:
    columns = Columns(time="when")
    at, row = columns.row({"x": [1, "a"], "when": "2026-11-16T09:00:00"}, 0)
    assert (row["x"], at) == ([1, "a"], NOW)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"sensor": "s1"}', "no time"),
        (b'{"at": 17}', "at"),
        (b'{"at": "2026-11-16T09:00:00Z", "t": "hot"}', '"t"'),
        (b'{"at": "2026-11-16T09:00:00Z", "sensor": 7}', '"sensor"'),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(given: bytes, part: str) -> None:
    with pytest.raises(EventRefused, match=part):
        TYPED.row(decoded(given), 0)


@pytest.mark.parametrize(
    ("value", "expected"), [(7, ("n", 7)), ("x-7", ("n x-7", 0)), (0, ("n", 0))]
)
def test_an_event_has_the_id_that_its_column_says_on_every_device(
    value: Any, expected: tuple[str, int]
) -> None:
    assert Columns(id="n").event_id({"n": value}) == expected


@pytest.mark.parametrize("value", [None, -1, 1.5, True, "", [1], "x" * 201])
def test_what_is_no_id_is_refused(value: Any) -> None:
    with pytest.raises(EventRefused, match="no id"):
        Columns(id="n").event_id({"n": value})
