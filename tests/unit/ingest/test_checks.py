from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from millstream.flow.schema import Schema
from millstream.ingest.checks import Rules, check
from millstream.ingest.rows import Refused, Rows, numbered

NOW = datetime(2013, 3, 8, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1e6)
SCHEMA = Schema.parse("origin string, at timestamp").arrow()
RULES = Rules(time="at", key="origin", ahead=timedelta(hours=1))


def rows(*values: tuple[str | None, datetime | None]) -> Rows:
    return numbered(
        pa.RecordBatch.from_pylist([{"origin": o, "at": at} for o, at in values], schema=SCHEMA),
        100,
    )


def test_rows_that_keep_to_the_rules_pass_as_they_are() -> None:
    good = rows(("JFK", NOW), ("LGA", NOW + timedelta(hours=1)))
    assert check(good, RULES, NOW_US) is good


def test_each_broken_rule_is_named_with_the_place_and_the_record() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    checked = check(
        rows(
            ("A", None),
            ("B", epoch),
            ("C", NOW + timedelta(hours=1, seconds=1)),
            (None, NOW),
            ("E", NOW),
        ),
        RULES,
        NOW_US,
    )
    assert checked.batch.column("origin").to_pylist() == ["E"]
    assert checked.numbers.tolist() == [104]
    assert [(one.number, one.reason) for one in checked.refused] == [
        (100, 'time "at" is null'),
        (101, 'time "at" is 1970-01-01 00:00:00, at or before 1970'),
        (102, 'time "at" is 2013-03-08 13:00:01, more than 1 h ahead'),
        (103, 'key "origin" is null'),
    ]
    assert json.loads(checked.refused[2].record)["origin"] == "C"


def test_a_row_that_breaks_two_rules_is_refused_once() -> None:
    assert [one.reason for one in check(rows((None, None)), RULES, NOW_US).refused] == [
        'time "at" is null'
    ]


def test_what_was_refused_before_stays_refused_in_order() -> None:
    before = rows(("A", NOW), ("B", None))
    before = Rows(
        before.batch,
        before.numbers,
        (Refused(99, "malformed", "{"), Refused(105, "malformed", "{")),
    )
    assert [one.number for one in check(before, RULES, NOW_US).refused] == [99, 101, 105]


def test_a_time_beyond_all_calendars_is_refused_and_not_an_error() -> None:
    far = pa.RecordBatch.from_arrays(
        [pa.array(["A"]), pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))],
        schema=SCHEMA,
    )
    checked = check(Rows(far, np.array([0])), RULES, NOW_US)
    assert "more than 1 h ahead" in checked.refused[0].reason


def test_a_source_without_time_and_key_takes_everything() -> None:
    anything = rows((None, None))
    assert check(anything, Rules(), NOW_US) is anything
