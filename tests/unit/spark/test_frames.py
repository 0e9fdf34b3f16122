"""Results of stages as the frames that Spark takes: the same values, whatever way they go."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.spark.io.result_rows import RESULTS, opened
from millstream.spark.stages.frames import frame_of, packed_frame, plain_types

NOON = datetime(2024, 5, 4, 12, tzinfo=UTC)
ELSEWHERE = NOON.astimezone(timezone(timedelta(hours=5)))

CASES: list[tuple[DataType, list[Any]]] = [
    (LongType(), [1, None, -(2**63)]),
    (IntegerType(), [None, None]),
    (DoubleType(), [1.5, float("inf"), None, 3]),
    (StringType(), ["", None, "Zürich"]),
    (BooleanType(), [True, None, False]),
    (TimestampType(), [NOON, None, ELSEWHERE]),
    (ArrayType(LongType()), [[1, 2], None, []]),
    (StructType([StructField("a", LongType())]), [{"a": 1}, None]),
    (DateType(), [NOON.date(), None]),
]


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def as_spark_takes_it(frame: Any, schema: StructType) -> list[dict[str, Any]]:
    whole = StructType([StructField("_0", schema)])
    batch = PandasToArrowConversion.convert([frame], whole, timezone="UTC", arrow_cast=True)
    rows: list[dict[str, Any]] = batch.column(0).to_pylist()
    return rows


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_plain_values_are_what_they_were_as_objects(kind: DataType, values: list[Any]) -> None:
    schema = schema_of(v=kind)
    rows = [{"v": value} for value in values]
    plain = frame_of(rows, ["v"], plain_types(schema))
    objects = frame_of(rows, ["v"])
    assert as_spark_takes_it(plain, schema) == as_spark_takes_it(objects, schema)


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_packed_values_are_what_spark_would_have_made_of_them(
    kind: DataType, values: list[Any]
) -> None:
    schema = schema_of(v=kind, n=LongType())
    rows = [{"v": value, "n": number} for number, value in enumerate(values)]
    expected = as_spark_takes_it(frame_of(rows, ["v", "n"]), schema)
    table = pa.Table.from_pylist(expected, to_arrow_schema(schema, timezone="UTC"))
    for given in (rows, table):
        messages = packed_frame(given, schema, plain_types(schema))
        packed = pa.RecordBatch.from_pydict({RESULTS: messages[RESULTS].tolist()})
        found = pa.Table.from_batches(opened(iter([packed])))
        assert found.schema.equals(table.schema)
        assert found.to_pylist() == expected


def test_a_row_that_makes_up_what_it_lacks_is_not_asked() -> None:
    schema, rows = schema_of(a=LongType(), b=LongType()), [Counter(a=1), Counter(b=2)]
    frame = frame_of([*rows], ["a", "b"], plain_types(schema))
    assert as_spark_takes_it(frame, schema) == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert rows == [{"a": 1}, {"b": 2}]


def test_a_column_that_some_rows_lack_is_null_there() -> None:
    schema = schema_of(n=LongType(), t=StringType())
    for rows in ([{"n": 1, "t": "a"}, {"n": 2}], [{"t": "b"}]):
        frame = frame_of(rows, ["n", "t"], plain_types(schema))
        assert as_spark_takes_it(frame, schema) == [{"n": None, "t": None, **row} for row in rows]


def test_values_of_another_type_than_declared_are_left_to_spark() -> None:
    schema = schema_of(n=LongType(), t=StringType())
    rows = [{"n": "7", "t": 7}, {"n": "8", "t": None}]
    frame = frame_of(rows, ["n", "t"], plain_types(schema))
    assert [one.dtype for _, one in frame.items()] == [object, object]


def test_nan_is_no_null() -> None:
    frame = frame_of([{"v": float("nan")}, {}], ["v"], plain_types(schema_of(v=DoubleType())))
    found = pa.Array.from_pandas(frame["v"], type=pa.float64())
    assert repr(found.to_pylist()) == "[nan, None]"
