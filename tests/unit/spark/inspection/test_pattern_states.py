"""What a pattern keeps by key, whichever matcher keeps it, in one piece or in many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.clock import moment_of
from millstream.errors import NotThere
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import met, micros
from millstream.patterns.matcher import Matcher, PlainMatcher, matcher
from millstream.patterns.outputs import Lag
from millstream.patterns.partition import PartitionMatcher
from millstream.spark.inspection.key_states import KeyStates
from millstream.spark.inspection.pattern_states import manifest_of
from millstream.spark.stages.match_pieces import Pieces, Sizes
from millstream.state import ShardState, StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder

PATTERN = ms.Pattern("p").begin("a", "x = 1").followed_by("b", "x = 2").within("1 hour")
AUTOMATON = compile_pattern(PATTERN)
KERNEL, PLAIN = matcher(AUTOMATON, []), PlainMatcher(AUTOMATON)
LAGS = (Lag("x", "x", 1),)
MATCHERS = {
    "kernel": KERNEL,
    "plain": PLAIN,
    "numbered": PartitionMatcher(KERNEL, LAGS, numbered=True),
    "numbered_plain": PartitionMatcher(PLAIN, LAGS, numbered=True),
}


def batch(keys: list[str], values: list[int]) -> Batch:
    at = pa.array(range(1_000_000, 1_000_000 * (len(keys) + 1), 1_000_000), pa.int64())
    x = pa.array(values, pa.int64())
    rows = pa.table({"x": x, "at": at.cast(pa.timestamp("us", "UTC"))})
    masks = met(AUTOMATON, rows).astype(np.int64)
    return Batch(pa.array(keys), micros(rows.column("at")), masks, [], rows)


def stored(made: Matcher, given: Batch, files: StateFiles, sizes: Sizes) -> bytes:
    data = b""
    for _ in range(2):  # the second time nothing happens, but that all is read
        kept = Pieces(
            ShardState(load(data), files),
            [made],
            [made.empty(pa.string(), given.rows.schema)],
            sizes,
        )
        (before,) = kept.load([given.keys], 0)
        after = before if data else made.process(before, given, 0)[0]
        data = kept.commit([after])[0] or data
    return data


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(100, 0, 0)], ids=["whole", "cut"])
@pytest.mark.parametrize("name", list(MATCHERS))
def test_the_runs_of_a_key_are_counted(name: str, sizes: Sizes, tmp_path: Path) -> None:
    files = StateFiles(Folder(tmp_path), "p", retain=0, inline=300)
    keys = ["a", "b", "a", "c", "c", *(f"k{n}" for n in range(30))]
    given = batch(keys, [1, 1, 1, 1, 2, *([1] * 30)])
    data = stored(MATCHERS[name], given, files, sizes)
    found = KeyStates("p", "match", ("k",), 7, {0: data}, files)
    rows: list[dict[str, Any]] = found.head(100).to_pylist()
    expected = {"k": "a", "runs": 2, "since": moment_of(1_000_000), "last_at": moment_of(3_000_000)}
    assert rows[0] == expected
    assert found.head(9, "b").to_pylist() == [
        {"k": "b", "runs": 1, "since": moment_of(2_000_000), "last_at": moment_of(2_000_000)}
    ]
    # The run of c is complete; where matches are counted, it is known.
    known = 32 + name.startswith("numbered")
    assert (found.keys, sum(row["runs"] for row in rows)) == (known, 33)


def test_several_columns_of_a_key_are_told_apart(tmp_path: Path) -> None:
    files = StateFiles(Folder(tmp_path), "p", retain=0)
    data = stored(KERNEL, batch(['{"k":"a","n":7}'], [1]), files, Sizes())
    found = KeyStates("p", "match", ("k", "n"), 7, {0: data}, files)
    assert found.plain(1, "a,7")[0]["n"] == 7
    assert KeyStates("p", "match", (), 7, {0: data}, files).plain(1)[0]["runs"] == 1


def test_the_manifest_is_told_from_rows_that_wait_and_from_what_was_kept_before() -> None:
    mark = (16).to_bytes(4, "little")
    assert manifest_of([b"W" + mark + b"rows", b"M" + mark + b"ab", b"M" + mark + b"c"]) == b"abc"
    assert manifest_of([b"W" + mark + b"rows"]) == b""
    for old in (b"K" + mark, b"N" + mark, b"k"):
        with pytest.raises(NotThere, match="earlier release"):
            manifest_of([old + b"runs"])
