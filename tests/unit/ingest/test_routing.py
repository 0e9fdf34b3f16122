from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.routing import first_sequence, route
from millstream.ingest.rows import Rows, numbered


def rows(keys: list[str], first: int = 0) -> Rows:
    return numbered(pa.RecordBatch.from_pydict({"key": keys}), first)


def test_a_key_decides_the_partition() -> None:
    parts = {
        p: r.batch.column("key").to_pylist()
        for p, r in route(rows(["JFK", "LGA", "EWR", "JFK"]), "key", 3)
    }
    assert parts == {1: ["LGA"], 2: ["JFK", "EWR", "JFK"]}


def test_without_a_key_rows_take_turns_by_their_place() -> None:
    parts = {p: r.numbers.tolist() for p, r in route(rows(["a"] * 5, first=3), None, 2)}
    assert parts == {0: [4, 6], 1: [3, 5, 7]}


def test_one_partition_takes_all() -> None:
    everything = rows(["a", "b"])
    assert list(route(everything, "key", 1)) == [(0, everything)]
    assert list(route(rows([]), "key", 3)) == []


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(1, 20))
def test_appends_numbered_by_their_last_place_never_overlap_and_end_at_it(
    places: set[int], size: int
) -> None:
    numbers = np.array(sorted(places), dtype=np.int64)
    highest = -1
    for at in range(0, len(numbers), size):
        part = numbers[at : at + size]
        batch = pa.RecordBatch.from_pydict({"key": ["a"] * len(part)})
        first = first_sequence(Rows(batch, part))
        assert first > highest
        highest = first + len(part) - 1
        assert highest == part[-1]
