from __future__ import annotations

import pyarrow as pa

from millstream.spark.stages.match_state import _series
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
        assert _series(column).tolist() == expected
