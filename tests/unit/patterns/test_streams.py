"""Columns of any type, cut between rows and put together again, in any order of the parts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from millstream.patterns.streams import Schemas, cut_column, cut_table, join_column, join_table

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
COLUMNS: list[tuple[str, pa.DataType, list[Any]]] = [
    ("whole", pa.int64(), [1, -2, 3, 2**62]),
    ("missing", pa.int32(), [1, None, None, 4]),
    ("real", pa.float64(), [0.5, None, float("inf"), -0.0]),
    ("truth", pa.bool_(), [True, False, None, True]),
    ("text", pa.string(), ["", "a", None, "\u00fc\u00fc"]),
    ("bytes", pa.binary(), [b"\0", None, b"", b"abc"]),
    ("large", pa.large_string(), ["x", "yy", "", None]),
    ("time", pa.timestamp("us", "UTC"), [NOON, None, NOON, NOON]),
    ("day", pa.date32(), [date(2026, 1, 2), None, date(1, 1, 1), None]),
    ("decimal", pa.decimal128(20, 3), [Decimal("1.500"), None, Decimal("-2.001"), None]),
    ("list", pa.list_(pa.string()), [["a", None], None, [], ["b"]]),
    ("map", pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, [], [("b", None)]]),
    ("struct", pa.struct([("n", pa.int8())]), [{"n": 1}, None, {"n": None}, {"n": 2}]),
    ("nothing", pa.null(), [None, None, None, None]),
    ("few", pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "a"]),
]


@pytest.mark.parametrize(
    ("kind", "values"), [one[1:] for one in COLUMNS], ids=[n for n, *_ in COLUMNS]
)
def test_a_column_comes_back(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([None, *values], kind).slice(1)
    for ends in ([0, 4], [0, 0, 1, 3, 4], [0, 2, 2, 4]):
        first, second = cut_column(column, ends)
        found = join_column(kind, first, second)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (kind, column.to_pylist())
        back = join_column(kind, first[::-1], second[::-1])
        parts = [column.to_pylist()[a:z] for a, z in pairwise(ends)]
        assert back.to_pylist() == [value for part in parts[::-1] for value in part]
    assert join_column(kind, [], []).to_pylist() == []
    assert join_column(kind, *cut_column(column.slice(0, 0), [0, 0])).to_pylist() == []


def test_a_table_comes_back_with_its_schema() -> None:
    whole = pa.table({name: pa.array(values, kind) for name, kind, values in COLUMNS})
    chunked = pa.concat_tables([whole.slice(0, 3), whole.slice(3)])
    schemas = Schemas()
    number = schemas.number(chunked.schema)
    known = Schemas(list(schemas.known))
    found = join_table(known.at(number), cut_table(chunked, [0, 1, 4]))
    assert found.to_pylist() == whole.to_pylist()
    assert known.number(whole.schema.with_metadata({"a": "b"})) == number
    assert known.number(whole.schema.remove(0)) == number + 1
