"""The state of a stage as of one committed batch, one row per key.

Spark's own `statestore` source reads a version of its files, which are never changed: a job that
runs is not disturbed, and what is read belongs to one batch. Stages keep a manifest per shard in there
(`millstream.state`), which holds the keys of the shard or names files that do. Of a pattern (`match`)
the number of runs is shown, and since when they wait.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from millstream.clock import MICROSECOND, moment_of
from millstream.errors import NotThere, RunError
from millstream.flow import durations
from millstream.journal.plain import rows_of
from millstream.spark.inspection.columns import Layout, layout_of, merged, to_table
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.state_files import stage_operator
from millstream.spark.io.packed import SHARD
from millstream.spark.session.session import FORMAT
from millstream.spark.stages.coding import decode
from millstream.state import StateFiles, entries
from millstream.state.importing import current, imported
from millstream.state.manifest import joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The kinds of stages whose state is a value per key.
KINDS: Final = ("fold", "distinct", "match")
#: The column of `distinct`: the time of the first row of a key.
FIRST_AT: Final = "first_at"
#: The list in which a stage keeps its manifest.
_LISTS: Final = {"match": "pieces"}

Rows = tuple[list[list[Any]], list[Any]]


@dataclass(frozen=True)
class KeyStates:
    """The state of a stage, as of a batch; decoded a shard at a time."""

    stage: str
    kind: str
    by: tuple[str, ...]
    batch: int
    #: The manifest of each shard.
    shards: Mapping[int, bytes]
    files: StateFiles
    #: What was put at or before this event time is forgotten.
    expired_us: int | None = None

    def rows(self, key: str | None = None) -> Iterator[Rows]:
        """Yield keys with their states, some at a time; with `key`, only that of this key."""
        for data in self.shards.values():
            found: list[tuple[Any, Any]]
            if self.kind == "match":
                from millstream.spark.inspection.pattern_states import key_rows

                found = list(key_rows(data, self.files, self.by))
            else:
                kept = entries(data, self.files.open, self.expired_us)
                found = [(decode(one), value) for one, value, _ in kept]
            if self.kind == "distinct":
                # Earlier versions have stored no time beside the value, which is one.
                found = [
                    (one, {FIRST_AT: moment_of(at)})
                    for one, at in found
                    if self.expired_us is None or at > self.expired_us
                ]
            if key is not None:
                found = [(one, value) for one, value in found if names_key(key, one)]
            if found:
                yield [one for one, _ in found], [value for _, value in found]

    @cached_property
    def layout(self) -> Layout:
        """The columns of all keys together."""
        return self.layout_of(self.rows())

    def layout_of(self, rows: Iterable[Rows]) -> Layout:
        found: Layout | None = None
        for keys, states in rows:
            found = merged(found, layout_of(self.by, keys, states))
        return found or layout_of(self.by, [], [])

    @cached_property
    def keys(self) -> int:
        """How many keys there are."""
        return sum(len(keys) for keys, _ in self.rows())

    def tables(self, key: str | None = None) -> Iterator[pa.Table]:
        """Yield the rows as tables of the same columns."""
        layout = self.layout if key is None else self.layout_of(self.rows(key))
        for keys, states in self.rows(key):
            yield to_table(layout, keys, states)

    def head(self, limit: int, key: str | None = None) -> pa.Table:
        """Return the first rows, in the order of their keys' texts."""
        found = [
            (one, state)
            for keys, states in self.rows(key)
            for one, state in zip(keys, states, strict=True)
        ]
        found = sorted(found, key=lambda row: json.dumps(row[0], default=str))[:limit]
        keys, states = [one for one, _ in found], [state for _, state in found]
        return to_table(layout_of(self.by, keys, states), keys, states)

    def plain(self, limit: int, key: str | None = None) -> list[dict[str, Any]]:
        """Return the first rows as JSON has them."""
        table = self.head(limit, key).combine_chunks()
        return [row for batch in table.to_batches() for row in rows_of(batch)]


def names_key(text: str, key: Sequence[Any]) -> bool:
    """Tell whether a text names a key: its values with commas in between, or JSON of them."""
    if text == ",".join(str(value) for value in key):
        return True
    try:
        given = json.loads(text)
    except ValueError:
        return False
    return (given if isinstance(given, list) else [given]) == list(key)


def read_states(
    spark: SparkSession, found: Opened, stage: str, batch: int | None = None
) -> KeyStates:
    """Read the state of a stage as of the last committed batch, or of an earlier one.

    Raises:
        NotThere: The stage has no state, or no such batch is there (any more).
        RunError: The files cannot be read.
    """
    committed = found.committed(batch)
    if committed is None:
        msg = f'group "{found.checkpoint.group}" has not committed a batch yet'
        raise NotThere(msg, hint="ask again when it has")
    operator = stage_operator(found, stage)
    if operator.kind not in KINDS:
        msg = f'the state of stage "{stage}" ({operator.kind}) cannot be shown by key'
        raise NotThere(msg, hint=f"that of {' and '.join(KINDS)} can; checkpoint show has its size")
    meaning = found.checkpoint.description["stages"][stage]
    files = StateFiles(found.files, stage, retain=0)
    shards = read_shards(spark, found, operator.id, committed.batch, operator.kind)
    decision = imported(files.storage, stage)
    if decision is not None and (batch is None or batch > decision.batch):
        shards = current(files, decision, shards)
    return KeyStates(
        stage,
        operator.kind,
        tuple(meaning["by"]),
        committed.batch,
        shards,
        files,
        None if operator.kind == "match" else _expired(meaning, committed.watermark_ms),
    )


def _expired(meaning: Mapping[str, Any], watermark_ms: int) -> int | None:
    keep = kept_for(meaning)
    return None if keep is None or watermark_ms <= 0 else watermark_ms * 1000 - keep


def kept_for(meaning: Mapping[str, Any]) -> int | None:
    """Return for how many microseconds a stage keeps the state of a key; None is permanently."""
    keep = meaning.get("within") or meaning.get("keep")
    return None if keep is None else durations.duration(keep) // MICROSECOND


def read_shards(
    spark: SparkSession, found: Opened, operator: int, batch: int, kind: str = "fold"
) -> dict[int, bytes]:
    """Return the manifests of all shards of an operator, as of a batch.

    Raises:
        RunError: The files cannot be read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    # In the format in which the query has written it: its reader asks the session, not the files.
    spark.conf.set(FORMAT, found.checkpoint.state_format)
    pieces = "transform(list_value, one -> one.data) AS pieces"
    try:
        with _plainly_named(found.checkpoint.spark_location) as path:
            rows = (
                spark.read.format("statestore")
                .option("path", path)
                .option("operatorId", operator)
                .option("batchId", batch)
                .option("stateVarName", _LISTS.get(kind, "keys"))
                .option("flattenCollectionTypes", "false")
                .load()
                .selectExpr(f"key.{SHARD} AS shard", pieces)
                .collect()
            )
    except (PySparkException, Py4JJavaError) as error:
        java = getattr(error, "java_exception", None)  # of those that Spark does not translate
        said = (str(error) if java is None else java.toString()).strip().split("\n")[0]
        msg = (
            f'the state of batch {batch} of group "{found.checkpoint.group}" cannot be read: {said}'
        )
        hint = "a job that runs keeps the last 10 batches or so: try again"
        raise RunError(msg, hint=hint) from error
    manifests = {row.shard: _whole(kind, [bytes(one) for one in row.pieces]) for row in rows}
    return {shard: data for shard, data in sorted(manifests.items()) if data}


def _whole(kind: str, pieces: list[bytes]) -> bytes:
    if kind != "match":
        return joined(pieces)
    from millstream.spark.inspection.pattern_states import manifest_of

    return manifest_of(pieces)


@contextmanager
def _plainly_named(location: str) -> Iterator[str]:
    """Yield a path of a checkpoint that Spark's reader of state finds.

    It looks for "a b" in "a%20b".
    """
    if "://" in location or quote(location) == location:
        yield location
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "checkpoint"
        link.symlink_to(location)
        yield str(link)
