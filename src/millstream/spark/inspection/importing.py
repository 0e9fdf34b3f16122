"""State from a file, for a stage of a job that does not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from millstream.clock import micros
from millstream.errors import NotThere, SchemaConflict
from millstream.flow.kept import conformed
from millstream.spark.inspection import table_files
from millstream.spark.inspection.columns import Layout, from_table, layout_of
from millstream.spark.inspection.key_states import FIRST_AT, KeyStates, read_states
from millstream.spark.inspection.opened import Opened
from millstream.spark.stages.coding import encode
from millstream.state import NO_TIME, Entry, entries
from millstream.state.files import StateFiles, retained
from millstream.state.importing import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARD = "__shard"


class ImportedReport(msgspec.Struct, frozen=True):
    """What a stage will go on with."""

    stage: str
    batch: int
    keys: int
    #: Keys that it did not have, and those that it will not have any more.
    new: int
    gone: int


def import_states(spark: SparkSession, found: Opened, stage: str, file: Path) -> ImportedReport:
    """Let a stage go on with the state in a file, all of it; the job must not run.

    Raises:
        SchemaConflict: The file does not have the columns of the stage's state.
        RunError: The file cannot be read.
        NotThere: It is the stage of a pattern, whose runs are no values that could be edited.
    """
    states = _before(spark, found, stage)
    if states.kind == "match":
        msg = f'the state of stage "{stage}" ({states.kind}) cannot be imported'
        raise NotThere(msg, hint="that of fold and distinct can")
    table = table_files.read(file, states.layout.schema if states.keys else None)
    layout = states.layout if states.keys else _given(states.by, table)
    lines = differences(layout, table.schema)
    if lines:
        raise _conflict(stage, lines)
    keys, values = from_table(layout, table)
    meaning = found.checkpoint.description["stages"][stage]
    values = _checked(stage, meaning, values)
    known = {key: (shard, time) for shard, key, time in _known(states)}
    named = [encode(key) for key in keys]
    if len(set(named)) < len(named):
        raise _conflict(stage, ["a key is there twice"])
    shards = _placed(spark, layout, table, meaning["shards"], known, named)
    watermark = found.committed()
    fresh = NO_TIME if watermark is None else watermark.watermark_ms * 1000
    placed: dict[int, dict[bytes, Entry]] = {}
    for key, value, shard in zip(named, values, shards, strict=True):
        time = known[key][1] if key in known else fresh
        if states.kind == "distinct":
            value = time = micros(value[FIRST_AT])  # noqa: PLW2901 (as it is stored)
        placed.setdefault(shard, {})[key] = Entry(encode(value), time)
    files = StateFiles(states.files.storage, stage, retained(_BATCHES))
    put(files, states.batch, states.shards, placed)
    new, gone = set(named) - known.keys(), known.keys() - set(named)
    return ImportedReport(stage, states.batch, len(named), len(new), len(gone))


def _before(spark: SparkSession, found: Opened, stage: str) -> KeyStates:
    """Return what a stage has kept: nothing before its first batch."""
    if found.committed() is not None:
        return read_states(spark, found, stage)
    meaning = found.checkpoint.description["stages"][stage]
    files = StateFiles(found.files, stage, retain=0)
    return KeyStates(stage, meaning["kind"], tuple(meaning["by"]), -1, {}, files)


#: As many as a session keeps: see `session`.
_BATCHES = 10


def differences(layout: Layout, given: pa.Schema) -> list[str]:
    """Return how the columns of a file differ from those of a state; nothing if they fit."""
    expected = layout.schema
    lines = [f'column "{name}" is missing' for name in expected.names if name not in given.names]
    lines += [f'column "{name}" is not known' for name in given.names if name not in expected.names]
    for field in expected:
        if field.name in given.names:
            other = given.field(field.name).type
            if not _fits(other, field.type):
                lines.append(f'column "{field.name}" is {other}, and the state has {field.type}')
    return lines


def _fits(given: pa.DataType, kept: pa.DataType) -> bool:
    """Tell whether every value of a type is one of another: the same, a narrower one, or null."""
    whole, broken = pa.types.is_integer, pa.types.is_floating
    alike = (
        (pa.types.is_null, lambda _: True),
        (lambda one: whole(one) and one != pa.uint64(), whole),
        (lambda one: whole(one) or broken(one), broken),
        (lambda one: pa.types.is_timestamp(one) and one.tz is not None, pa.types.is_timestamp),
        (pa.types.is_large_string, pa.types.is_string),
        (pa.types.is_large_binary, pa.types.is_binary),
        (pa.types.is_struct, pa.types.is_struct),
        (lambda one: pa.types.is_list(one) or pa.types.is_large_list(one), pa.types.is_list),
    )
    return bool(given == kept) or any(one(given) and other(kept) for one, other in alike)


def _given(by: Sequence[str], table: pa.Table) -> Layout:
    """Return the columns of a file, for a stage that has no state yet."""
    missing = [f'column "{name}" is missing' for name in by if name not in table.column_names]
    if missing:
        raise _conflict("", missing)
    rest = [name for name in table.column_names if name not in by]
    rows = table.select(rest).to_pylist()
    plain = rest == ["value"]
    keys = [list(row.values()) for row in table.select(list(by)).to_pylist()]
    return layout_of(by, keys, [row["value"] for row in rows] if plain else rows)


def _checked(stage: str, meaning: Mapping[str, Any], values: list[Any]) -> list[Any]:
    """Return states with all columns that the stage declares."""
    declared = meaning.get("states")
    if not declared:
        return values
    kept = tuple((name, tuple(map(tuple, columns))) for name, columns in declared.items())
    try:
        return [conformed(kept, value) for value in values]
    except ValueError as error:
        raise _conflict(stage, [str(error)]) from error


def _known(states: KeyStates) -> Iterator[tuple[int, bytes, int]]:
    for shard, data in states.shards.items():
        for key, _, time in entries(data, states.files.open, states.expired_us):
            yield shard, key, NO_TIME if time is None else time


def _placed(
    spark: SparkSession,
    layout: Layout,
    table: pa.Table,
    shards: int,
    known: Mapping[bytes, tuple[int, int]],
    keys: Sequence[bytes],
) -> list[int]:
    """Return the shard of each key: where it is, or where Spark will look for it."""
    if not layout.keys:
        return [0] * len(keys)
    columns = [table.column(one.name).cast(one.arrow) for one in layout.keys]
    frame = spark.createDataFrame(pa.table(columns, names=[one.name for one in layout.keys]))
    names = ", ".join(f"cast(`{one.name}` as string)" for one in layout.keys)
    hashed = frame.selectExpr(f"cast(pmod(xxhash64({names}), {shards}) as int) AS {_SHARD}")
    found: list[int] = hashed.toArrow().column(0).to_pylist()
    pairs = list(zip(keys, found, strict=True))
    if any(key not in known for key in keys):
        # A type that a file cannot hold, such as float, has other texts: then nobody would find it.
        if any(known[key][0] != shard for key, shard in pairs if key in known):
            raise _conflict("", ["new keys of this type cannot be placed"])
        if any(one.as_json for one in layout.keys):
            raise _conflict("", ["new keys cannot be placed if keys differ in type"])
    return [known[key][0] if key in known else shard for key, shard in pairs]


def _conflict(stage: str, lines: Sequence[str]) -> SchemaConflict:
    of = f' of stage "{stage}"' if stage else ""
    return SchemaConflict(
        f"the file does not fit the state{of}:\n" + "\n".join(f"  {line}" for line in lines),
        hint="export the state, and change values in that file; nothing is imported",
    )
