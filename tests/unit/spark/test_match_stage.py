"""What the match stage does with rows and with its state, without a Spark session."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import GroupChanged
from millstream.patterns.compile import compile_pattern
from millstream.spark import match
from millstream.spark.io.packed import GATHERED_BYTES, SHARD, from_bytes, packing
from millstream.spark.io.source import PLACE
from millstream.spark.stages import match_state
from millstream.spark.stages.match_rows import KEY, ORDER, TIME, in_order
from millstream.spark.stages.match_state import OLD_SHARDS, MatchShard

MOMENT = pa.timestamp("us", "UTC")


def rows(events: list[tuple[int, str, int]], *, placed: bool) -> pa.Table:
    times, keys, masks = ([event[at] for event in events] for at in range(3))
    columns = {
        KEY: pa.array(keys, pa.string()),
        TIME: pa.array(times, pa.int64()).cast(MOMENT),
        "__mask0": pa.array(masks, pa.int64()),
    }
    places = {PLACE: pa.array(range(len(events), 0, -1), pa.int64())} if placed else {}
    return pa.table({**columns, **places})


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"]), st.integers(0, 3)), max_size=30
    ),
    st.booleans(),
)
def test_rows_are_in_order_of_time_then_of_place_or_content(
    events: list[tuple[int, str, int]], placed: bool
) -> None:
    table = rows(events, placed=placed)
    keys = [TIME, PLACE] if placed else [TIME, KEY, "__mask0"]
    expected = table.sort_by([(name, "ascending") for name in keys])
    assert in_order(table).to_pylist() == expected.to_pylist()


def test_a_hash_of_the_content_comes_before_what_a_pattern_says_of_rows() -> None:
    table = rows([(1, "a", 3), (1, "a", 0), (1, "b", 1)], placed=False)
    hashed = table.append_column(ORDER, pa.array([7, 9, 8], pa.int64()))
    assert in_order(hashed).column("__mask0").to_pylist() == [3, 1, 0]


def test_rows_that_have_waited_since_before_there_was_a_hash_have_none() -> None:
    table = rows([(1, "a", 3), (2, "a", 0)], placed=False)
    schema = pa.schema([*table.schema, (ORDER, pa.int64())])
    fitted = match_state._fitted(table, schema)
    assert (fitted.schema, fitted.column(ORDER).null_count) == (schema, 2)
    assert in_order(fitted).column("__mask0").to_pylist() == [3, 0]


def shard(shards: int, *, renumbered: bool = False) -> MatchShard:
    stage: Any = SimpleNamespace(shards=shards, renumbered=renumbered)
    return MatchShard(stage)


def opened(piece: bytes, shards: int, *, renumbered: bool = False) -> tuple[bytes, bytes]:
    return shard(shards, renumbered=renumbered)._opened(piece)


def test_state_says_over_how_many_shards_keys_are_spread() -> None:
    piece = shard(300)._marked(match_state.KEPT, b"content")
    assert opened(piece, 300) == (match_state.KEPT, b"content")
    with pytest.raises(GroupChanged, match="spread over 300 shards, not over 16") as caught:
        opened(piece, 16)
    assert "shards=300" in str(caught.value.__notes__)


def test_state_from_before_shards_were_noted_is_read_with_as_many_as_there_were() -> None:
    assert opened(b"kcontent", OLD_SHARDS) == (match_state.KEPT, b"content")
    assert opened(b"wcontent", OLD_SHARDS) == (match_state._WAITING, b"content")
    with pytest.raises(GroupChanged, match="64 shards"):
        opened(b"wcontent", 16)


def test_runs_of_a_pattern_whose_states_were_others_are_refused() -> None:
    """They would be read as runs in other states."""
    new = shard(16, renumbered=True)
    assert new._opened(new._marked(b"N", b"content")) == (match_state.KEPT, b"content")
    waiting = new._marked(match_state._WAITING, b"rows")
    assert new._opened(waiting) == (match_state._WAITING, b"rows")
    for piece, shards in ((shard(16)._marked(match_state.KEPT, b"old"), 16), (b"kold", 64)):
        with pytest.raises(GroupChanged, match="in another way"):
            opened(piece, shards, renumbered=True)


@pytest.mark.parametrize(
    ("pattern", "renumbered"),
    [
        (ms.Pattern("p").begin("a", "v > 1").followed_by("b", "v > 2"), False),
        (ms.Pattern("p").begin("a", "v > 1").followed_by("b", "v > 2").zero_or_more(), False),
        (
            ms.Pattern("p").begin("a", "v > 1").followed_by("b", "v > 2").one_or_more().greedy(),
            False,
        ),
        (
            ms.Pattern("p").begin("a", "v > 1").followed_by("b", "v > 2").zero_or_more().greedy(),
            True,
        ),
    ],
    ids=["sequence", "loop", "greedy", "greedy_optional"],
)
def test_a_pattern_knows_whether_its_states_were_others(
    pattern: ms.Pattern, renumbered: bool
) -> None:
    assert compile_pattern(pattern).renumbered == renumbered


def test_rows_of_many_shards_are_packed_apart() -> None:
    numbers = np.array([3, 70_000, 3, 0], np.int32)
    batch = pa.record_batch({SHARD: numbers, "n": pa.array(range(4))})
    (packed,) = packing(None)(iter([batch]))
    unpacked = [from_bytes(data.as_py()).column("n").to_pylist() for data in packed.column("rows")]
    assert dict(zip(packed.column(0).to_pylist(), unpacked, strict=True)) == {
        0: [3],
        3: [0, 2],
        70_000: [1],
    }


def test_few_large_rows_are_packed_as_many_small_ones_are() -> None:
    large = pa.record_batch({SHARD: pa.array([0], pa.int32()), "n": ["x" * GATHERED_BYTES]})
    small = pa.record_batch({SHARD: pa.array([0], pa.int32()), "n": ["x"]})
    assert len(list(packing(None)(iter([small] * 5)))) == 1
    assert len(list(packing(None)(iter([small, large, large, small])))) == 3


def test_another_python_of_local_workers_is_noticed(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    for python, master, expected in (
        (str(other), "local[2]", str(other)),
        (str(other), "spark://host:7077", None),
        (sys.executable, "local[*]", None),
        ("no-such-python", "local[*]", None),
    ):
        context: Any = SimpleNamespace(pythonExec=python, master=master)
        assert match._other_python(context) == expected
