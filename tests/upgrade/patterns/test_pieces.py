"""What a pattern keeps in pieces, as this release has stored it, still goes on.

`python -m upgrade.patterns.test_pieces`, with tests on the path, writes it; a saved file never changes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.events import met, micros, values
from millstream.patterns.matcher import PlainMatcher, matcher
from millstream.patterns.outputs import Lag
from millstream.patterns.partition import PartitionMatcher
from millstream.spark.stages.match_pieces import Pieces, Sizes
from millstream.state import ShardState
from millstream.state.manifest import load

FOLDER = Path(__file__).parent / "pieces_1"
KEYS = [f"key {number}" for number in range(20)]
PATTERN = (
    ms.Pattern("p").begin("a", "x > 0").followed_by("b", "x > a.x and t > a.t").within("1 hour")
)
AUTOMATON = compile_pattern(PATTERN)
KINDS = [pa.string() if value == "t" else pa.int64() for value in AUTOMATON.values]
KERNEL, PLAIN = matcher(AUTOMATON, KINDS, late=True), PlainMatcher(AUTOMATON, late=True)
MATCHERS = {
    "kernel": KERNEL,
    "plain": PLAIN,
    "remembering": PartitionMatcher(KERNEL, (Lag("x", "x", 1),), numbered=True),
}
SIZES = {"whole": Sizes(), "cut": Sizes(100, 0, 0)}


def batch(x: list[int], texts: list[str | None], first: int) -> Batch:
    at = pa.array(np.arange(len(x)) * 1_000_000 + first, pa.int64()).cast(pa.timestamp("us"))
    rows = pa.table({"x": pa.array(x, pa.int64()), "t": pa.array(texts), "at": at})
    masks = met(AUTOMATON, rows).astype(np.int64)
    keys = pa.array(KEYS[: len(x)])
    return Batch(keys, micros(rows.column("at")), masks, values(AUTOMATON, rows), rows)


def pieces(name: str, sizes: str, data: bytes, given: Batch) -> Pieces:
    made = MATCHERS[name]
    empty = made.empty(pa.string(), given.rows.schema)
    return Pieces(ShardState(load(data)), [made], [empty], SIZES[sizes])


def saved(name: str, sizes: str) -> bytes:
    given = batch(list(range(20)), [None if n % 5 == 4 else "abc"[n % 3] for n in range(20)], 0)
    kept = pieces(name, sizes, b"", given)
    (before,) = kept.load([given.keys], 0)
    data, _ = kept.commit([MATCHERS[name].process(before, given, 0)[0]])
    assert data is not None
    return data


@pytest.mark.parametrize("sizes", list(SIZES))
@pytest.mark.parametrize("name", list(MATCHERS))
def test_pieces_go_on_matching(name: str, sizes: str) -> None:
    data = (FOLDER / f"{name}_{sizes}").read_bytes()
    given = batch([n + (n % 2) for n in range(20)], ["c"] * 20, 60_000_000)
    kept = pieces(name, sizes, data, given)
    assert kept.outline.bits > 0 or sizes == "whole"
    (before,) = kept.load([given.keys], 0)
    after, found = MATCHERS[name].process(before, given, 0)
    expected = [KEYS[n] for n in range(1, 20, 2) if n % 5 != 4 and n % 3 != 2]
    assert found.keys.to_pylist() == sorted(expected, key=found.keys.to_pylist().index)
    first = KEYS.index(found.keys[0].as_py())
    shown = [None, first] if name == "remembering" else [first, first + 1]  # of the row before
    assert found.rows.column("x").to_pylist()[:2] == shown
    following, _ = kept.commit([after])
    kept = pieces(name, sizes, following or b"", given)
    (before,) = kept.load([given.keys.slice(0, 0)], 10**12)
    _, late = MATCHERS[name].process(before, batch([], [], 0), 10**12)
    assert late.late.all()
    assert len(late) == 19 - len(expected) + 19


if __name__ == "__main__":
    FOLDER.mkdir()
    for matcher_name in MATCHERS:
        for sizes_name in SIZES:
            (FOLDER / f"{matcher_name}_{sizes_name}").write_bytes(saved(matcher_name, sizes_name))
