"""Shards that have taken state over are woken once, so that they set their timers.

Runs that came over may have a time limit, and perhaps no row of their shard comes before it. Spark lets
a shard set a timer only when it has a row: in the first batches behind the decision each shard that
was carried over gets one without content. Which batches these are is part of the decision, so a
batch that is run again does the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from millstream.spark.io.packed import SHARD, Packing
from millstream.state import StateFiles
from millstream.state.importing import Imported, imported

#: In so many batches, the first of which may have no rows to be packed.
_BATCHES: Final = 2
_BATCH_ID: Final = "streaming.sql.batchId"
#: What was decided, by token: it does not change.
_decisions: dict[str, Imported] = {}


def waking(packing: Packing, files: StateFiles) -> Packing:
    """Return what packs rows, and wakes the shards of a stage when they have taken state over."""

    # Spark counts the parameters: an object with `__call__` has one too many.
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from packing(batches)
        if shards := _woken(files):
            empty = pa.array([b""] * len(shards), pa.binary())
            numbers = pa.array(shards, pa.int32())
            yield pa.RecordBatch.from_arrays([numbers, empty], names=[SHARD, "rows"])

    return pack


def _woken(files: StateFiles) -> tuple[int, ...]:
    decision = _decisions.get(files.imported)
    if decision is None:
        decision = imported(files.storage, files.stage)
        if decision is None or decision.promised or decision.token != files.imported:
            return ()
        _decisions[files.imported] = decision
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if decision.wake is None or batch is None:
        return ()
    return decision.shards if 0 < int(batch) - decision.wake <= _BATCHES else ()
