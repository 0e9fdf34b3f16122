"""`distinct` by vectors: the rows that a loop over them would keep, and keys that are those of each row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.spark.stages.coding import encode
from millstream.spark.stages.row_keys import RowKeys
from millstream.spark.stages.spacing import spaced

# Few keys are looked at one by one, and so are all if their times are too far apart.
SIZES = (1, 3, 17, 60)
SPANS = (1, 9, 50, 1 << 60)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[int], list[int | None], int]:
    """Draw the keys and times of rows, what was there before, and how far rows must be apart."""
    size, span = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SPANS))
    start = draw(st.sampled_from((-5, 0, 1_700_000_000_000_000)))
    moments = st.integers(start, start + span)
    rows = draw(st.lists(st.tuples(moments, st.integers(0, size - 1)), max_size=80))
    rows.sort(key=lambda row: row[0])
    before = draw(
        st.lists(st.none() | st.integers(start - 30, start), min_size=size, max_size=size)
    )
    within = draw(st.integers(1, 20) | st.sampled_from((span, 10**15)))
    return [key for _, key in rows], [at for at, _ in rows], before, within


@given(streams())
@example(([], [], [None], 1))
@example(([0, 0], [5, 5], [None], 1))
def test_rows_are_kept_as_a_loop_over_them_keeps_them(
    given_: tuple[list[int], list[int], list[int | None], int],
) -> None:
    codes, times, before, within = given_
    last, expected = dict(enumerate(before)), []
    for place, (key, at) in enumerate(zip(codes, times, strict=True)):
        known = last[key]
        if known is None or at - known >= within:
            last[key] = at
            expected.append(place)
    found = spaced(np.array(codes, np.int64), np.array(times, np.int64), before, within)
    assert found.tolist() == expected


KINDS = {
    pa.string(): st.text(max_size=2),
    pa.int64(): st.integers(-2, 2),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(None)),
    pa.list_(pa.int64()): st.lists(st.integers(0, 1), max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw rows of some columns, in one or two pieces."""
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), max_size=3))
    count = draw(st.integers(0, 12))
    columns: dict[str, Any] = {"n": pa.array(range(count), pa.int64())}
    for number, kind in enumerate(kinds):
        some = st.lists(st.none() | KINDS[kind], min_size=count, max_size=count)
        columns[f"c{number}"] = pa.array(draw(some), kind)
    rows = pa.table(columns)
    cut = draw(st.integers(0, count))
    return pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])


@given(tables())
def test_the_key_of_a_row_does_not_depend_on_the_rows_beside_it(rows: pa.Table) -> None:
    by = tuple(rows.column_names[1:])
    expected = [encode([row[name] for name in by]) if by else b"" for row in rows.to_pylist()]
    found = RowKeys.of(rows, by)
    assert list(found) == expected
    assert len(found) == len(expected)
    assert sorted(found.known) == sorted(set(expected))
