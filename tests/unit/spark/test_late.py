"""When rows that were late are worth a sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.spark.run.late import late_notice

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("late", "rows", "lateness", "expected"),
    [
        (0, 100, timedelta(0), None),
        (1, 1_000, timedelta(0), '1 of 1,000 rows were late; the lateness of source "a" is 0'),
        (9, 1_000, MINUTE, None),
        (10, 1_000, MINUTE, '10 of 1,000 rows were late; the lateness of source "a" is 1 min'),
    ],
)
def test_late_rows_are_reported_where_it_matters(
    late: int, rows: int, lateness: timedelta, expected: str | None
) -> None:
    assert late_notice("a", late, rows, lateness) == expected
