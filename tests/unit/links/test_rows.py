"""A user's rows become a batch, or are refused with who is to blame."""

from __future__ import annotations

import enum
import math
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from millstream.errors import RowsRefused
from millstream.flow.schema import Schema
from millstream.links.rows import to_batch

ORDERS = Schema.parse("item string, count bigint, price double, at timestamp").arrow()
NINE = datetime(2024, 5, 4, 9, tzinfo=UTC)


@dataclass
class Order:
    item: str
    count: int | None = None


def of(kind: str, *values: Any) -> list[Any]:
    """Return what a column of that type holds after these values were sent to it."""
    rows = [{"x": value} for value in values]
    batch = to_batch(rows, Schema.parse(f"x {kind}").arrow(), source="orders")
    return list(batch.column(0).to_pylist())


def refusal(
    rows: Any, ddl: str = "item string, count bigint, price double, at timestamp"
) -> RowsRefused:
    with pytest.raises(RowsRefused) as caught:
        to_batch(rows, Schema.parse(ddl).arrow(), source="orders")
    return caught.value


# what rows may be


def generated() -> Iterator[dict[str, Any]]:
    yield {"item": "bread", "count": 2}
    yield {"count": 3, "item": "rolls"}


@pytest.mark.parametrize(
    "rows",
    [
        [{"item": "bread", "count": 2}, {"item": "rolls", "count": 3}],
        ({"item": "bread", "count": 2}, {"item": "rolls", "count": 3}),
        generated(),
        [Order("bread", 2), Order("rolls", 3)],
        [Order("bread", 2), {"item": "rolls", "count": 3}],
        [OrderedDict(item="bread", count=2), MappingProxyType({"item": "rolls", "count": 3})],
        pd.DataFrame({"count": [2, 3], "item": ["bread", "rolls"]}, index=[7, 7]),
        pd.DataFrame({"count": [2, 3], "item": ["bread", "rolls"]}).convert_dtypes(),
        pd.DataFrame({"count": [2, 3], "item": ["bread", "rolls"]}).convert_dtypes(
            dtype_backend="pyarrow"
        ),
        pd.DataFrame({"count": [2, 3], "item": pd.Categorical(["bread", "rolls"])}),
        pa.table({"item": ["bread", "rolls"], "count": [2, 3]}),
        pa.concat_tables(
            [
                pa.table({"item": ["bread"], "count": [2]}),
                pa.table({"item": ["rolls"], "count": [3]}),
            ]
        ),
        pa.record_batch({"item": ["bread", "rolls"], "count": pa.array([2, 3], pa.int8())}),
        pa.table({"item": ["bread", "rolls"], "count": [2, 3]}).to_reader(),
        pa.array([{"item": "bread", "count": 2}, {"item": "rolls", "count": 3}]),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_come_in_many_forms(rows: Any) -> None:
    batch = to_batch(rows, ORDERS, source="orders")
    assert batch.schema.equals(ORDERS)
    nothing = {"price": None, "at": None}
    assert batch.to_pylist() == [
        {"item": "bread", "count": 2, **nothing},
        {"item": "rolls", "count": 3, **nothing},
    ]


@pytest.mark.parametrize(
    "row", [{"item": "bread"}, Order("bread"), MappingProxyType({"item": "bread"})]
)
def test_one_row_is_a_batch_of_one(row: Any) -> None:
    assert to_batch(row, ORDERS, source="orders").to_pylist() == [
        {"item": "bread", "count": None, "price": None, "at": None}
    ]


@pytest.mark.parametrize(
    "rows", [[], pd.DataFrame(), pa.table({}), pd.DataFrame({"item": []}), iter(())]
)
def test_no_rows_are_an_empty_batch(rows: Any) -> None:
    batch = to_batch(rows, ORDERS, source="orders")
    assert (batch.num_rows, batch.schema) == (0, ORDERS)


def test_a_row_without_fields_is_a_row_of_nulls() -> None:
    assert to_batch([{}, {}], ORDERS, source="orders").num_rows == 2


@pytest.mark.parametrize("rows", ["text", b"bytes", 5, None, Order, object()])
def test_what_is_not_rows_is_refused(rows: Any) -> None:
    assert 'source "orders" takes rows' in refusal(rows).message


@pytest.mark.parametrize("row", [5, None, ("bread", 2), "bread", Order])
def test_a_row_that_is_not_one_is_refused_with_its_number(row: Any) -> None:
    error = refusal([{"item": "bread"}, row])
    assert error.message.startswith('row 1 for source "orders" is ')
    assert error.hint == "a row is a dict or a dataclass instance"


# columns


@pytest.mark.parametrize(
    "rows", [[{"item": "a"}, {"item": "b", "prise": 2.5}], [Order("a"), {"prise": 1}]]
)
def test_an_unknown_field_is_refused_with_its_row_and_what_was_meant(rows: Any) -> None:
    error = refusal(rows)
    assert (
        error.message
        == 'row 1 for source "orders" has column "prise", which the source does not have'
    )
    assert error.hint == 'did you mean "price"? its columns are item, count, price, at'


def test_case_matters_and_the_hint_knows_the_right_one() -> None:
    error = refusal({"ITEM": "bread"})
    assert error.hint is not None
    assert 'did you mean "item"?' in error.hint


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"zebra": [1]}),
        pd.DataFrame({"zebra": [1]}),
        pd.DataFrame([[1]]),
        pa.record_batch({"zebra": [1]}),
    ],
)
def test_an_unknown_column_of_a_table_is_refused(rows: Any) -> None:
    error = refusal(rows)
    assert error.message.startswith('what was given for source "orders" has column ')
    assert error.hint == "its columns are item, count, price, at"


def test_a_key_that_is_not_text_is_an_unknown_column() -> None:
    assert 'has column "1"' in refusal([{1: "bread"}]).message


@pytest.mark.parametrize(
    "rows",
    [
        pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["item", "item"]),
        pd.DataFrame([["a", "b"]], columns=["item", "item"]),
    ],
)
def test_two_columns_of_one_name_are_refused(rows: Any) -> None:
    assert refusal(rows).message == 'what was given for source "orders" has two columns "item"'


@pytest.mark.parametrize(
    "rows", [[{"x": 1}, {"x": None}], [{"x": 1}, {}], pa.table({"x": [1, None]})]
)
def test_a_null_where_none_may_be_is_refused(rows: Any) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(RowsRefused, match='row 1 for source "orders" has no value in column "x"'):
        to_batch(rows, schema, source="orders")


# values


class Size(enum.IntEnum):
    SMALL = 1


def zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    ("kind", "given", "held"),
    [
        ("bigint", [1, None, -(2**63), 2**63 - 1], [1, None, -(2**63), 2**63 - 1]),
        ("bigint", [np.int8(1), np.uint64(5), Size.SMALL], [1, 5, 1]),
        ("tinyint", [-128, 127], [-128, 127]),
        (
            "double",
            [1.5, 2, None, np.float32(0.5), np.int64(3), math.inf],
            [1.5, 2.0, None, 0.5, 3.0, math.inf],
        ),
        ("float", [1.5, 2], [1.5, 2.0]),
        ("boolean", [True, None, np.bool_(False)], [True, None, False]),
        ("string", ["", "ü", None, np.str_("x")], ["", "ü", None, "x"]),
        ("binary", [b"", b"\xff", bytearray(b"x"), memoryview(b"y")], [b"", b"\xff", b"x", b"y"]),
        (
            "decimal(10,2)",
            [Decimal("1.2"), 5, np.int64(6), None],
            [Decimal("1.20"), Decimal(5), Decimal(6), None],
        ),
        (
            "date",
            [date(2024, 5, 4), "2024-05-04", None],
            [date(2024, 5, 4), date(2024, 5, 4), None],
        ),
        ("bigint", [pd.NA, pd.NaT, None, 1], [None, None, None, 1]),
        (
            "array<bigint>",
            [[1, 2], (3,), [], None, np.array([4]), [None]],
            [[1, 2], [3], [], None, [4], [None]],
        ),
        ("array<array<bigint>>", [[[1], None], []], [[[1], None], []]),
        (
            "map<string,bigint>",
            [{"a": 1}, {}, None, [("b", 2)]],
            [[("a", 1)], [], None, [("b", 2)]],
        ),
        (
            "struct<item:string,count:bigint>",
            [{"item": "a", "count": 1}, {"count": 2}, None, Order("b")],
            [
                {"item": "a", "count": 1},
                {"item": None, "count": 2},
                None,
                {"item": "b", "count": None},
            ],
        ),
        (
            "array<struct<at:timestamp>>",
            [[{"at": "2024-05-04T09:00:00Z"}, None]],
            [[{"at": NINE}, None]],
        ),
    ],
)
def test_good_values_are_held_as_they_are(kind: str, given: list[Any], held: list[Any]) -> None:
    assert of(kind, *given) == held


@pytest.mark.parametrize(
    "moment",
    [
        NINE,
        NINE.replace(tzinfo=None),
        NINE.astimezone(zone(-5)),
        "2024-05-04T09:00:00Z",
        "2024-05-04 09:00",
        "2024-05-04T11:00:00+02:00",
        "20240504T090000",
        "2024-05-04T09:00:00.000000000Z",
        pd.Timestamp("2024-05-04 09:00", tz="UTC"),
        pd.Timestamp("2024-05-04 11:00", tz="Europe/Paris"),
        np.datetime64("2024-05-04T09:00", "m"),
        np.datetime64("2024-05-04T09:00", "ns"),
    ],
)
def test_a_moment_may_be_said_in_many_ways(moment: Any) -> None:
    assert of("timestamp", moment, None, NINE) == [NINE, None, NINE]


@pytest.mark.parametrize("day", [date(2024, 5, 4), "2024-05-04", np.datetime64("2024-05-04", "D")])
def test_a_day_is_its_first_moment(day: Any) -> None:
    assert of("timestamp", day) == [NINE.replace(hour=0)]


def test_nan_stays_nan_and_is_not_null() -> None:
    found = of("double", math.nan, None)
    assert math.isnan(found[0])
    assert found[1] is None


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        ("bigint", 1.5, "round it"),
        ("bigint", 1.0, "round it"),
        ("bigint", np.float64(1), "round it"),
        ("bigint", math.nan, "round it"),
        ("bigint", True, "True and False are not numbers"),
        ("bigint", np.bool_(True), "True and False are not numbers"),
        ("bigint", "1", "text is not read as a number"),
        ("bigint", 2**63, "int too"),
        ("bigint", Decimal(1), None),
        ("bigint", [1], None),
        ("bigint", {"a": 1}, None),
        ("tinyint", 128, "too large"),
        ("double", "1.5", "text is not read as a number"),
        ("double", True, "True and False are not numbers"),
        ("double", 2**53 + 1, "exactly representable"),
        ("double", Decimal("1.5"), None),
        ("boolean", 1, None),
        ("boolean", "true", None),
        ("string", 5, None),
        ("string", b"x", "decode it first"),
        ("string", math.nan, None),
        ("string", "\ud800", "surrogates"),
        ("binary", "x", "encode it first"),
        ("decimal(10,2)", Decimal("1.234"), "data loss"),
        ("decimal(10,2)", Decimal("123456789.12"), "precision"),
        ("decimal(10,2)", Decimal("NaN"), "NaN"),
        ("decimal(10,2)", 1.5, "use decimal.Decimal"),
        ("decimal(10,2)", "1.5", "text is not read as a number"),
        ("decimal(10,2)", True, "True and False are not numbers"),
        ("timestamp", 5, "has no unit"),
        ("timestamp", np.int64(5), "has no unit"),
        ("timestamp", 1.5, "has no unit"),
        ("timestamp", True, "has no unit"),
        ("timestamp", "yesterday", "ISO 8601"),
        ("timestamp", "", "ISO 8601"),
        ("timestamp", "2024-13-01", "ISO 8601"),
        ("timestamp", "2024-05-04T09:00:00.0000001Z", "more digits"),
        ("timestamp", pd.Timestamp("2024-05-04 09:00:00.000000001"), "more digits"),
        ("timestamp", np.datetime64("2024-05-04T09:00:00.000000001", "ns"), "more digits"),
        ("date", datetime(2024, 5, 4, 9, tzinfo=UTC), "send its .date()"),
        ("date", pd.Timestamp("2024-05-04"), "send its .date()"),
        ("date", 5, "has no unit"),
        ("date", "2024-05-04T09:00", "ISO 8601"),
        ("array<bigint>", 5, None),
        ("array<bigint>", {1}, None),
        ("array<string>", "text", None),
        ("array<bigint>", np.array(5), None),
        ("map<string,bigint>", [1, 2], None),
        ("map<string,bigint>", 5, None),
        ("struct<a:bigint>", (1,), None),
        ("struct<a:bigint>", 5, None),
    ],
)
def test_a_value_that_means_something_else_is_refused_with_row_and_type(
    kind: str, value: Any, hint: str | None
) -> None:
    error = refusal([{}, {"x": None}, {"x": value}, {"x": value}], f"x {kind}")
    assert error.message.startswith('row 2 for source "orders" has ')
    assert error.message.endswith(f' in column "x", which is {kind}')
    assert hint is None or (error.hint is not None and hint in error.hint)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("array<bigint>", [1, "2"], "has '2' in column \"x[]\", which is bigint"),
        ("map<string,bigint>", {"a": 1.5}, 'has 1.5 in column "x[]", which is bigint'),
        ("map<string,bigint>", {1: 1}, 'has 1 in column "x[key]", which is string'),
        ("map<string,bigint>", [(None, 1)], 'has None in column "x[key]", which is string'),
        (
            "struct<a:struct<b:bigint>>",
            {"a": {"b": "z"}},
            "has 'z' in column \"x.a.b\", which is bigint",
        ),
        (
            "array<struct<a:tinyint>>",
            [{"a": 1}, {"a": 300}],
            'has 300 in column "x[].a", which is tinyint',
        ),
    ],
)
def test_inside_a_nested_value_the_place_is_named(kind: str, value: Any, said: str) -> None:
    assert refusal([{"x": value}], f"x {kind}").message == f'row 0 for source "orders" {said}'


def test_an_unknown_field_inside_a_struct_is_refused() -> None:
    error = refusal([{"x": None}, {"x": {"itm": 1}}], "x struct<item:bigint>")
    assert (
        error.message
        == 'row 1 for source "orders" has field "itm" in column "x", which has none of that name'
    )
    assert error.hint == 'did you mean "item"? its fields are item'


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal({"count": "x" * 10_000}).message) < 200


def test_of_several_bad_rows_the_first_is_blamed() -> None:
    rows = [{"count": n} for n in range(1000)]
    rows[700]["count"] = rows[300]["count"] = "x"  # type: ignore[assignment]
    assert refusal(rows).message.startswith("row 300 ")


# tables


def test_columns_of_the_right_type_are_not_copied() -> None:
    table = pa.table({name: pa.nulls(3, ORDERS.field(name).type) for name in ORDERS.names})
    given = table.set_column(1, "count", pa.array([1, 2, 3]))
    found = to_batch(given, ORDERS, source="orders")
    assert found.column(1).buffers()[1].address == given.column(1).chunk(0).buffers()[1].address


def test_a_frame_s_numbers_are_not_copied() -> None:
    frame = pd.DataFrame({"price": np.arange(100.0)})
    found = to_batch(frame, ORDERS, source="orders")
    assert found.column(2).buffers()[1].address == frame["price"].to_numpy().ctypes.data


def test_a_frame_s_missing_values_are_null_except_nan_among_floats() -> None:
    frame = pd.DataFrame(
        {
            "item": ["a", None, math.nan],
            "count": [1.0, math.nan, 3.0],
            "price": [1.0, math.nan, 3.0],
            "at": [pd.Timestamp("2024-05-04 09:00"), pd.NaT, pd.NaT],
        }
    )
    found = to_batch(frame, ORDERS, source="orders").to_pydict()
    assert found["item"] == ["a", None, None]
    assert found["count"] == [1, None, 3]
    assert math.isnan(found["price"][1])
    assert found["at"] == [NINE, None, None]


def test_a_frame_s_column_of_objects_is_read_as_python_values() -> None:
    frame = pd.DataFrame(
        {"price": [1, None, math.nan], "at": ["2024-05-04T09:00Z", NINE, pd.NaT]}, dtype=object
    )
    found = to_batch(frame, ORDERS, source="orders").to_pydict()
    assert found["price"][:2] == [1.0, None]
    assert math.isnan(found["price"][2])
    assert found["at"] == [NINE, NINE, None]
    assert "row 1 " in refusal(pd.DataFrame({"count": [1, "2"]})).message


@pytest.mark.parametrize(
    ("kind", "given", "held"),
    [
        ("bigint", pa.array([1, None], pa.int8()), [1, None]),
        ("bigint", pa.array([1.0, 2.0]), [1, 2]),
        ("double", pa.array([1, 2]), [1.0, 2.0]),
        ("timestamp", pa.array([NINE.replace(tzinfo=None)], pa.timestamp("ns")), [NINE]),
        ("timestamp", pa.array([NINE], pa.timestamp("s", "Europe/Paris")), [NINE]),
        ("timestamp", pa.array(["2024-05-04T09:00", "2024-05-04T09:00Z"]), [NINE, NINE]),
        ("timestamp", pa.array([date(2024, 5, 4)]), [NINE.replace(hour=0)]),
        ("string", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("struct<a:bigint,b:bigint>", pa.array([{"b": 1}]), [{"a": None, "b": 1}]),
    ],
)
def test_a_table_s_columns_are_cast_where_nothing_is_lost(
    kind: str, given: pa.Array, held: list[Any]
) -> None:
    batch = to_batch(pa.table({"x": given}), Schema.parse(f"x {kind}").arrow(), source="orders")
    assert batch.column(0).to_pylist() == held


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("bigint", pa.array([1.0, 1.5]), "row 1 "),
        ("bigint", pa.array([1.0, math.nan]), "row 1 "),
        ("tinyint", pa.array([*range(100), 300, 400]), "row 100 "),
        ("double", pa.array([1, 2**53 + 1]), "row 1 "),
        ("timestamp", pa.array([0, 1], pa.timestamp("ns")), "row 1 "),
        ("timestamp", pa.array(["2024-05-04T09:00Z", "soon"]), "row 1 "),
        ("bigint", pa.array(["1", "x"]), "row 1 "),
        ("date", pa.array([NINE]), 'column "x" '),
        ("decimal(10,2)", pa.array([1.255]), 'column "x" '),
        ("struct<a:bigint>", pa.array([{"a": 1, "z": 2}]), 'column "x" '),
        ("array<struct<a:bigint>>", pa.array([[{"a": 1, "z": 2}]]), 'column "x" '),
        ("bigint", pa.array([[1]]), 'column "x" '),
    ],
)
def test_a_cast_that_would_lose_something_is_refused(kind: str, given: pa.Array, said: str) -> None:
    error = refusal(pa.table({"x": given}), f"x {kind}")
    assert error.message.startswith(said)
    assert 'source "orders"' in error.message
    assert error.hint


def test_rows_are_taken_while_another_thread_imports_pandas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    schema = pa.schema([("n", pa.int64())])
    assert to_batch([{"n": 1}], schema, source="f.s").to_pylist() == [{"n": 1}]


def test_a_column_whose_name_is_no_text_is_refused() -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"zzzz": [1]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes().replace(b"zzzz", b"\xf3zzz")
    with pa.ipc.open_stream(stream) as opened, pytest.raises(RowsRefused, match="not UTF-8"):
        to_batch(opened.read_next_batch(), ORDERS, source="orders")
