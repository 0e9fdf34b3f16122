"""Shards of a pattern's stage as they are carried over to a changed one, without a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.flow.schema import Schema
from millstream.flow.stages.state_fit import StateFit
from millstream.patterns.recipe import recipe
from millstream.spark.stages.match_carry import PatternCarry
from millstream.spark.stages.match_pieces import Pieces
from millstream.spark.stages.match_rows import KEY, TIME, ShardMatcher
from millstream.state import ShardState, StateFiles
from millstream.state.files import imported_name
from millstream.state.manifest import load
from millstream.storage import Folder

COLUMNS = Schema.of(("k", "string"), ("v", "bigint"), ("at", "timestamp"))
SECOND = 1_000_000
MOMENT = pa.timestamp("us", "UTC")


def stage(pattern: Any, emit: str) -> ShardMatcher:
    made = recipe(pattern, COLUMNS, time="at", key=["k"], emit=emit)
    types = {"k": pa.string(), "v": pa.int64()}
    fields = [(KEY, pa.string()), (TIME, MOMENT), ("__mask0", pa.int64())]
    fields += [(f"__value{place}", types[sql]) for place, sql in enumerate(made.values)]
    shown = tuple(f"__out{place}" for place in range(len(made.rows)))
    fields += [(name, types[sql]) for name, sql in zip(shown, made.rows, strict=True)]
    return ShardMatcher(made, pa.schema(fields), pa.schema([]), (), shown)


def rows(made: ShardMatcher, events: list[tuple[str, int, int, int]]) -> pa.Table:
    """Return events (key, second, value, mask) as Spark prepares them."""
    values = {"k": [one[0] for one in events], "v": [one[2] for one in events]}
    sql = {f"__value{n}": one for n, one in enumerate(made.recipe.values)}
    sql |= {f"__out{n}": one for n, one in enumerate(made.recipe.rows)}
    columns: dict[str, Any] = {KEY: values["k"], "__mask0": [one[3] for one in events]}
    columns[TIME] = pa.array([one[1] * SECOND for one in events], pa.int64()).cast(MOMENT)
    columns |= {name: values[one] for name, one in sql.items()}
    return pa.table({name: columns[name] for name in made.rows.names}, schema=made.rows)


@pytest.fixture
def places(tmp_path: Path) -> tuple[StateFiles, StateFiles]:
    old, new = (StateFiles(Folder(tmp_path / name), name, 4, inline=50) for name in ("old", "new"))
    return old, new


def kept(made: ShardMatcher, files: StateFiles, events: list[tuple[str, int, int, int]]) -> bytes:
    """Return the manifest of a shard after events."""
    pieces = Pieces(ShardState(load(b""), files, 2), made.matchers, made.empty())
    batches = made.batches(rows(made, events))
    before = pieces.load((one.keys for one in batches), -1)
    after = [
        one.process(part, batch, events[-1][1] * SECOND)[0]
        for one, part, batch in zip(made.matchers, before, batches, strict=True)
    ]
    return pieces.commit(after)[0] or b""


def found(made: ShardMatcher, files: StateFiles, events: list[tuple[str, int, int, int]]) -> Any:
    """Return the kept columns of the matches that a shard finds that has taken its state over."""
    manifest = load(files.storage.read(imported_name(files.stage, "t", 2)) or b"")
    assert manifest.imported == "t"
    pieces = Pieces(ShardState(manifest, files, 2), made.matchers, made.empty())
    batches = made.batches(rows(made, events))
    before = pieces.load((one.keys for one in batches), -1)
    pairs = zip(made.matchers, before, batches, strict=True)
    return [one.process(*both, events[-1][1] * SECOND)[1].rows.to_pylist() for one, *both in pairs]


PATTERN = ms.Pattern("p").begin("a", "v = 1").followed_by("b", "v = 2").skip_past_last()
LATER = ms.Pattern("p").begin("a", "v = 1").followed_by("b", "v >= a.v").skip_past_last()


def test_runs_go_on_under_a_condition_that_asks_for_a_kept_column(places: Any) -> None:
    old, new = stage(PATTERN, "k, a.v as low"), stage(LATER, "k, b.v as high")
    data = kept(old, places[0], [("x", 1, 1, 1), ("y", 2, 1, 1)])
    work = PatternCarry(old, new, 3 * SECOND, StateFit(remade=True))
    work.shard(*places, "t", 2, data)
    assert work.remark == "runs carried over: 2"
    (matches,) = found(new, places[1], [("x", 4, 7, 2)])
    assert [row["__out1"] for row in matches] == [1, 7]


def test_runs_of_an_unchanged_pattern_are_copied(places: Any) -> None:
    old, new = stage(PATTERN, "k, a.v as low"), stage(PATTERN, "k, a.v as low")
    data = kept(old, places[0], [("x", 1, 1, 1)])
    work = PatternCarry(old, new, 3 * SECOND, StateFit())
    work.shard(*places, "t", 2, data)
    assert work.remark == ""
    assert len(found(new, places[1], [("x", 4, 2, 2)])[0]) == 2


def test_runs_at_a_block_that_is_gone_are_counted(places: Any) -> None:
    other = ms.Pattern("p").begin("c", "v = 1").followed_by("b", "v = 2").skip_past_last()
    old, new = stage(PATTERN, "k, a.v as low"), stage(other, "k, c.v as low")
    data = kept(old, places[0], [("x", 1, 1, 1)])
    dropped = PatternCarry(old, new, 3 * SECOND, StateFit(dropped=("a",), remade=True))
    dropped.shard(*places, "t", 2, data)
    assert dropped.remark == 'dropped with "a": 1'
    renamed = PatternCarry(old, new, 3 * SECOND, StateFit(renamed=(("a", "c"),), remade=True))
    renamed.shard(*places, "t", 2, data)
    assert renamed.remark == "runs carried over: 1"


def test_the_patterns_of_a_phenomenon_go_over_by_their_names(places: Any) -> None:
    second = ms.Pattern("q").begin("a", "v = 1").followed_by("c", "v = 3").skip_past_last()
    both, rest = ms.Phenomenon("both", [PATTERN, second]), ms.Phenomenon("both", [second])
    old, new = stage(both, "k, a.v as low"), stage(rest, "k, a.v as low")
    # Of the first pattern the tests are bits 0 and 1, of the second 2 and 3.
    data = kept(old, places[0], [("x", 1, 1, 0b0101)])
    work = PatternCarry(old, new, 3 * SECOND, StateFit(remade=True))
    work.shard(*places, "t", 2, data)
    assert work.remark == 'runs carried over: 1, dropped with "p": 1'
    assert len(found(new, places[1], [("x", 4, 3, 0b10)])[0]) == 2
