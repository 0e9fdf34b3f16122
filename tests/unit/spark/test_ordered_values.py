from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.stages.coding import decode_all, encode, encode_all
from millstream.spark.stages.frames import series
from millstream.spark.stages.ordered import values


def test_maps_come_back_as_dictionaries_which_spark_takes() -> None:
    kind = pa.struct([("in", pa.map_(pa.string(), pa.int32()))])
    for type_, given, expected in (
        (
            pa.map_(pa.string(), pa.int32()),
            [[("a", 1), ("b", None)], None, []],
            [{"a": 1, "b": None}, None, {}],
        ),
        (kind, [{"in": [("a", 1)]}, {"in": None}, None], [{"in": {"a": 1}}, {"in": None}, None]),
    ):
        column = pa.chunked_array([pa.array(given, type_)])
        assert values(column) == expected
        assert series(column).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.string(), ["a", None, "\u00fc"]),
        (pa.int64(), [1, 2**62]),
        (pa.int32(), [1, None]),
        (pa.float32(), [0.1, float("inf")]),
        (pa.float64(), [0.5, None]),
        (pa.bool_(), [True, False]),
        (pa.bool_(), [True, None]),
        (pa.binary(), [b"a", None]),
        (pa.list_(pa.int8()), [[1], None]),
    ],
)
def test_values_and_their_types_are_those_of_arrow(kind: pa.DataType, given: list[Any]) -> None:
    column = pa.chunked_array([pa.array(given, kind), pa.array(given[:1], kind)])
    assert [(type(one), one) for one in values(column)] == [
        (type(one), one) for one in column.to_pylist()
    ]
    assert values(column.slice(0, 0)) == []


def test_many_values_are_encoded_and_decoded_as_each_of_them() -> None:
    given = [None, 1, "a", {"n": [1, 2.5]}, [], b"x"]
    assert encode_all(given) == [encode(one) for one in given]
    assert decode_all(encode_all(given)) == given
    assert decode_all([]) == []
