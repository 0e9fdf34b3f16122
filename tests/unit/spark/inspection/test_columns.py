"""State as columns, and columns as state."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.inspection.columns import Layout, from_table, layout_of, merged, to_table

MOMENT = datetime(2024, 5, 4, 9, 8, 18, 400, UTC)


def table(states: list[Any]) -> pa.Table:
    keys = [[f"k{number}"] for number in range(len(states))]
    return to_table(layout_of(["k"], keys, states), keys, states)


def test_a_mapping_is_columns_by_name() -> None:
    found = table([{"n": 1, "mean": 0.5}, {"n": 2, "mean": 3}])
    assert found.to_pylist() == [
        {"k": "k0", "n": 1, "mean": 0.5},
        {"k": "k1", "n": 2, "mean": 3.0},
    ]
    assert found.schema.types == [pa.string(), pa.int64(), pa.float64()]


def test_what_is_no_mapping_is_one_column() -> None:
    assert table([3, None]).to_pylist() == [{"k": "k0", "value": 3}, {"k": "k1", "value": None}]


def test_nested_values_of_one_shape_are_structs_and_lists_and_others_are_json() -> None:
    found = table(
        [
            {"same": {"a": 1, "b": ["x"]}, "other": {"a": 1}, "mixed": 1},
            {"same": {"a": 2, "b": []}, "other": {"b": 1}, "mixed": "1"},
        ]
    )
    assert pa.types.is_struct(found.schema.field("same").type)
    assert found.column("other").to_pylist() == ['{"a": 1}', '{"b": 1}']
    assert found.column("mixed").to_pylist() == ["1", '"1"']


def test_a_column_of_the_state_that_the_key_has_too_gets_another_name() -> None:
    assert table([{"k": 1}]).column_names == ["k", "state.k"]


def test_moments_are_moments() -> None:
    assert table([{"at": MOMENT}]).schema.field("at").type == pa.timestamp("us", tz="UTC")


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.just(MOMENT)
)
values = st.recursive(
    scalars,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "$time", ""]), inside, max_size=3)
        | st.dictionaries(st.integers(0, 3), inside, max_size=2)
    ),
    max_leaves=6,
)
key = st.tuples(scalars, scalars).map(list)


@given(st.lists(st.tuples(key, values), max_size=6), st.integers(0, 6))
def test_state_comes_back_from_a_file_as_it_was(rows: list[tuple[Any, Any]], cut: int) -> None:
    layout: Layout | None = None
    parts = [part for part in (rows[:cut], rows[cut:]) if part] or [[]]
    for part in parts:
        layout = merged(layout, layout_of(["x", "y"], [k for k, _ in part], [v for _, v in part]))
    assert layout is not None
    tables = [to_table(layout, [k for k, _ in part], [v for _, v in part]) for part in parts]
    pq.write_table(pa.concat_tables(tables), file := io.BytesIO())
    keys, states = from_table(layout, pq.read_table(io.BytesIO(file.getvalue())))
    assert keys == [k for k, _ in rows]
    assert states == [v for _, v in rows]
    # A whole number among fractions is a fraction, and nothing else changes.
    for before, after in zip([v for _, v in rows], states, strict=True):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(after)) == before
