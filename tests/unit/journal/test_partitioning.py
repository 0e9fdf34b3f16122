from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import UnplaceableKey
from millstream.journal.partitioning import NOWHERE, grouped, place, places, split


def test_keys_have_the_place_that_spark_gives_them() -> None:
    # What Spark says for pmod of xxhash64 with 3.
    assert [place(key, 3) for key in ("JFK", "LGA", "EWR")] == [2, 1, 2]
    assert places(pa.array(["JFK", "LGA", "EWR", "JFK"]), 3).tolist() == [2, 1, 2, 2]


def test_null_keys_have_no_place() -> None:
    assert places(pa.array(["JFK", None]), 3).tolist() == [2, NOWHERE]
    assert places(pa.array([None, None], pa.string()), 3).tolist() == [NOWHERE, NOWHERE]
    assert places(pa.array([], pa.string()), 3).tolist() == []


def test_numbers_and_booleans_are_placed_by_their_text() -> None:
    assert places(pa.array([12, -3]), 7).tolist() == [place("12", 7), place("-3", 7)]
    assert places(pa.array([True, False]), 7).tolist() == [place("true", 7), place("false", 7)]
    assert places(pa.array([0], pa.date32()), 7).tolist() == [place("1970-01-01", 7)]


def test_keys_whose_text_differs_between_systems_are_refused() -> None:
    with pytest.raises(UnplaceableKey, match="double"):
        places(pa.array([1.5]), 3)


def test_encoded_and_sliced_keys_are_placed_alike() -> None:
    keys = pa.array(["JFK", None, "LGA", "EWR"])
    assert places(keys.slice(2), 3).tolist() == [1, 2]
    assert places(keys.dictionary_encode(), 3).tolist() == [2, NOWHERE, 1, 2]
    nulls = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 2]), pa.array([None, "JFK", "LGA"])
    )
    assert places(nulls, 3).tolist() == [2, NOWHERE, NOWHERE, 1]


KEYS = ["", "JFK", "LGA", "EWR", "Zürich", "42", "-7", "true", "東京", "2026-01-31"]
#: By number of partitions, as the first release placed them: stored rows stay where they are.
RECORDED = {
    2: [0, 0, 1, 0, 0, 1, 0, 0, 1, 0],
    3: [0, 2, 1, 2, 0, 1, 2, 1, 1, 2],
    7: [3, 2, 2, 0, 5, 4, 5, 2, 6, 2],
    64: [4, 56, 61, 62, 22, 63, 26, 50, 63, 2],
}


@pytest.mark.parametrize("partitions", RECORDED)
def test_a_key_keeps_its_partition_from_release_to_release(partitions: int) -> None:
    recorded = RECORDED[partitions]
    assert [place(key, partitions) for key in KEYS] == recorded
    assert places(pa.array(KEYS), partitions).tolist() == recorded


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@given(st.lists(st.integers(0, 40_000) | st.integers(0, 5)))
def test_a_split_has_every_row_once_in_its_partition_and_in_order(
    kind: type[np.signedinteger], numbers: list[int]
) -> None:
    at = np.array(numbers, dtype=kind)
    batch = pa.RecordBatch.from_pydict({"row": pa.array(range(len(numbers)), pa.int64())})
    expected: dict[int, list[int]] = {}
    for row, partition in enumerate(numbers):
        expected.setdefault(partition, []).append(row)
    assert {partition: rows.tolist() for partition, rows in grouped(at)} == expected
    found = list(split(batch, at))
    assert [partition for partition, _, _ in found] == sorted(expected)
    for partition, rows, part in found:
        assert rows.tolist() == part.column("row").to_pylist() == expected[partition]


def test_rows_without_a_key_go_where_the_caller_says() -> None:
    assert places(pa.array(["JFK", None]), 3, keyless=0).tolist() == [2, 0]


TEXTS = st.text(max_size=12) | st.text("ab", min_size=24, max_size=140) | st.none()


@given(st.lists(TEXTS, max_size=9), st.integers(0, 3), st.sampled_from((1, 2, 3, 64)))
def test_many_keys_at_once_are_placed_as_one(
    few: list[str | None], begin: int, partitions: int
) -> None:
    keys = few * 70  # many of a length are hashed together, few one by one
    array = pa.array([*keys, "one", "a" * 300], pa.string())[begin:]
    expected = [NOWHERE if key is None else place(key, partitions) for key in array.to_pylist()]
    assert places(array, partitions).tolist() == expected


def test_a_null_that_has_bytes_is_still_null() -> None:
    names = pa.array(["JFK", "LGA"] * 100)
    valid = pa.py_buffer(np.packbits([1, 0] * 100, bitorder="little"))
    array = pa.Array.from_buffers(pa.string(), 200, [valid, *names.buffers()[1:]])
    assert places(array, 3).tolist() == [2, NOWHERE] * 100
