"""Good rows become what Arrow makes of them; bad ones are refused and never changed."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import RowsRefused
from millstream.links.rows import to_batch

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]

_SCALARS: list[Typed] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes() | st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(10, 2), st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2)),
]


def _nested(kind: Typed) -> st.SearchStrategy[Typed]:
    inner, values = kind[0], kind[1] | st.none()
    return st.sampled_from(
        [
            kind,
            (pa.list_(inner), st.lists(values, max_size=3)),
            (
                pa.map_(pa.string(), inner),
                st.dictionaries(st.text("ab", max_size=2), values, max_size=3),
            ),
            (
                pa.struct([("a", inner), ("b", pa.int64())]),
                st.fixed_dictionaries({"a": values}, optional={"b": st.just(1)}),
            ),
        ]
    )


_kinds = st.sampled_from(_SCALARS).flatmap(_nested).flatmap(_nested)


@st.composite
def good_rows(draw: st.DrawFn) -> tuple[pa.Schema, list[dict[str, Any]]]:
    kinds = draw(st.lists(_kinds, min_size=1, max_size=4))
    schema = pa.schema([(f"c{n}", kind) for n, (kind, _) in enumerate(kinds)])
    row = st.fixed_dictionaries(
        {}, optional={f"c{n}": values | st.none() for n, (_, values) in enumerate(kinds)}
    )
    return schema, draw(st.lists(row, max_size=6))


@given(good_rows())
@settings(max_examples=150)
def test_good_rows_are_what_arrow_makes_of_them(
    case: tuple[pa.Schema, list[dict[str, Any]]],
) -> None:
    schema, rows = case
    expected = pa.RecordBatch.from_pylist(rows, schema=schema)
    assert to_batch(rows, schema, source="any").equals(expected)
    assert to_batch(iter(rows), schema, source="any").equals(expected)
    assert to_batch(expected, schema, source="any").equals(expected)


_anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.binary(max_size=3),
    st.dates(), st.datetimes(), st.decimals(allow_nan=False), st.lists(st.integers(), max_size=2),
)  # fmt: skip


@given(st.sampled_from(_SCALARS), st.lists(_anything, max_size=2))
@settings(max_examples=300)
def test_whatever_is_sent_is_held_as_it_is_or_refused(kind: Typed, values: list[Any]) -> None:
    schema = pa.schema([("x", kind[0])])
    try:
        batch = to_batch([{"x": value} for value in values], schema, source="any")
    except RowsRefused:
        return
    for value, held in zip(values, batch.column(0).to_pylist(), strict=True):
        assert held == _expected(value, kind[0]), (value, held)


def _expected(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, datetime) or not pa.types.is_timestamp(kind):
        if pa.types.is_timestamp(kind) and value is not None:
            day = datetime.fromisoformat(value if isinstance(value, str) else value.isoformat())
            return day.replace(tzinfo=UTC if kind.tz else None)
        return value
    return value.replace(tzinfo=UTC if kind.tz else None)
