"""Declared folds and `distinct`, by vectors: exactly what a plain function makes of the same rows, whatever the batches."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import dumps

from millstream.flow.declared import AnyFold, CompiledFold, DeclaredFold, DeclaredStep
from millstream.spark.io.packed import to_bytes
from millstream.spark.io.source import PLACE
from millstream.spark.stages.compiled_fold import Step
from millstream.spark.stages.declared_fold import DeclaredFolding
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import Rule, _Shard
from millstream.state import StateFiles
from millstream.storage import Folder
from property.test_ordered import Handle, Times

KEEP = 5
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int64())),
        ("at", pa.timestamp("us", "UTC")),
        (PLACE, pa.int64()),
    ]
)
TYPES = {
    "n": "int",
    "x": "double",
    "f": "float",
    "s": "string",
    "b": "boolean",
    "t": "timestamp",
    "l": "array<bigint>",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def damped(known: float, x: float, n: int) -> float:
    return 0.9 * known + x - n


def flips(known: bool, b: bool) -> bool:
    return known != b


def mixed(known: int, n: int, f: float, b: bool) -> int:
    return known * 31 + n if f > 0 or b else known - n


def own() -> list[AnyFold]:
    """Return folds by functions, as Spark gets them."""
    return [
        CompiledFold(one.__name__, Step(dumps(one), (kind, *kinds)), columns, initial, type_)
        for one, kind, kinds, columns, initial, type_ in (
            (damped, "float64", ("float64", "int64"), ("x", "n"), 0.5, "double"),
            (flips, "boolean", ("boolean",), ("b",), False, "boolean"),
            (mixed, "int64", ("int64", "float64", "boolean"), ("n", "f", "b"), 7, "bigint"),
        )
    ]


def declared() -> tuple[AnyFold, ...]:
    found: list[AnyFold] = [DeclaredFold("rows", "count", None, "bigint"), *own()]
    for column, kind in TYPES.items():
        found.append(DeclaredFold(f"count_{column}", "count", column, "bigint"))
        functions = ["first", "last"] if column == "l" else ["first", "last", "min", "max"]
        found += [DeclaredFold(f"{name}_{column}", name, column, kind) for name in functions]
    for column, kind in {"n": "bigint", "x": "double", "f": "double"}.items():
        found.append(DeclaredFold(f"sum_{column}", "sum", column, kind))
        found.append(DeclaredFold(f"ewma_{column}", "ewma", column, "double", 0.3))
    return tuple(found)


FOLDS = declared()
TAKEN = ("k", "at")
STATES = tuple((one.name, ((one.function, one.type),)) for one in FOLDS)
INITIAL = {one.name: {one.function: None} for one in FOLDS}
NAMES = [*TAKEN, *(one.name for one in FOLDS)]

moments = st.integers(-(10**15), 10**15).map(lambda us: EPOCH + timedelta(microseconds=us))
values = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
        "x": st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.5, 0.1, math.nan]),
        "f": st.none() | st.floats(width=32),
        "s": st.none()
        | st.text(max_size=2)
        | st.sampled_from(["a", "\u00e9", "\U0001f600", "\uffff"]),
        "b": st.none() | st.booleans(),
        "t": st.none() | moments,
        "l": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=2),
    }
)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[dict[str, Any]], int]]:
    """Draw batches of rows that are never late, each with its watermark in milliseconds."""
    found, highest, place = [], 10, 0
    names = st.sampled_from(["a", "b", None, *(f"k{n}" for n in range(draw(st.integers(0, 30))))])
    for _ in range(draw(st.integers(1, 4))):
        rows, floor = [], highest - 3
        for _ in range(draw(st.integers(0, 12))):
            at = draw(st.integers(floor, highest + 4))
            own = {"k": draw(names), "at": EPOCH + timedelta(milliseconds=at), PLACE: place}
            rows.append({**draw(values), **own})
            highest, place = max(highest, at), place + 1
        found.append((rows, floor - 1))
    return [*found, ([], 10**9)]


def run(rule: Rule, given_: list[tuple[list[dict[str, Any]], int]], names: list[str]) -> Any:
    """Return what comes out, and what is kept in the end, with a shard of its own for each batch."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        handle, shards = Handle(), None
        for number, (rows, watermark) in enumerate(given_):
            # Every other run has files, and a worker that knows nothing of the batches before.
            files = StateFiles(Folder(Path(folder)), "f", 4, inline=1)
            shard = _Shard(rule, "at", names, wait=True, files=files)
            shard.init(handle)  # type: ignore[arg-type]
            if shards is not None:
                shard._waiting, shard._keys, shard._alarm = shards
            shards = shard._waiting, shard._keys, shard._alarm
            results += fed(shard, handle, rows, watermark)
            assert number < 10
        data = [one for (one,) in shards[1].get()] if shards else []
        kept = ended(data, StateFiles(Folder(Path(folder)), "f", 4, inline=1))
    return results, kept


def fed(shard: _Shard, handle: Handle, rows: list[dict[str, Any]], watermark: int) -> Iterator[Any]:
    times = Times(watermark)
    if rows:
        packed = pd.DataFrame({"rows": [to_bytes(pa.Table.from_pylist(rows, SCHEMA))]})
        for frame in shard.handleInputRows((0,), iter([packed]), times):
            yield from table_of(frame)
    for expiry in sorted(timer for timer in handle.timers if timer <= watermark):
        for frame in shard.handleExpiredTimer((0,), times, None):
            yield from table_of(frame)
        handle.timers.discard(expiry)


def table_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows, as Spark reads them."""
    kinds = {**TYPES, "k": "string", "at": "timestamp", **{one.name: one.type for one in FOLDS}}
    arrow = {"bigint": pa.int64(), "double": pa.float64(), "int": pa.int32(), "string": pa.string()}
    arrow |= {"float": pa.float32(), "boolean": pa.bool_(), "array<bigint>": pa.list_(pa.int64())}
    arrow["timestamp"] = pa.timestamp("us", "UTC")
    columns = {}
    for name in frame:
        kind = arrow[kinds[name]]
        # Of objects pandas takes NaN for a null; Spark does.
        plain = frame[name].dtype == object and not pa.types.is_nested(kind)
        made = pa.array(frame[name].tolist(), kind) if plain else None
        columns[name] = pa.Array.from_pandas(frame[name], type=kind) if made is None else made
    return pa.table(columns).to_pylist()


def ended(data: list[bytes], files: StateFiles) -> dict[bytes, Any]:
    from millstream.spark.stages.coding import decode
    from millstream.state import ShardState
    from millstream.state.manifest import joined, load

    kept = ShardState(load(joined(data)), files)
    found = kept.due((1 << 63) - 1)
    return {key: (decode(value), at) for key, (value, at) in found.items()}


def alike(one: Any, other: Any) -> bool:
    """Tell whether values are equal to the last bit, NaN too."""
    return repr(one) == repr(other)


@given(batches(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_declared_folds_are_the_plain_function_whatever_the_batches_and_restarts(
    given_: list[tuple[list[dict[str, Any]], int]], expiring: bool
) -> None:
    step = DeclaredStep(FOLDS, TAKEN)
    keep = KEEP * 1000 if expiring else None
    plain = Folding(*("f", ("k",), step, INITIAL, frozenset(NAMES), "at"), keep=keep, states=STATES)
    by_vector = DeclaredFolding(plain, FOLDS, TAKEN)
    results, kept = run(by_vector, given_, NAMES)
    expected, expected_kept = run(plain, given_, NAMES)
    for one, other in zip(results, expected, strict=True):
        differ = {
            name: (one[name], other[name]) for name in one if not alike(one[name], other[name])
        }
        assert not differ
    assert kept.keys() == expected_kept.keys()
    assert all(alike(kept[key], expected_kept[key]) for key in kept)
