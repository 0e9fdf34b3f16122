from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.errors import UnplaceableKey
from millstream.journal.hashing import NOWHERE, place, places


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
