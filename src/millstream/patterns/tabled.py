"""A shard of a row pattern whose conditions look at rows alone: matched by a table of rows and states.

What is kept of a key are the rows from the first start on whose match is not decided. In the columns
of a shard such a row is a run that is in no state: it has its number, its time, and, as what is
missing, the tests that it met. Runs that an earlier release kept are moved on one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.patterns import shard as shards
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch, Found, Numbers, Truths
from millstream.patterns.kernel import layout
from millstream.patterns.kernel.records import Carried, Events, Table
from millstream.patterns.kernel.whole import decide_tests, match_whole
from millstream.patterns.shard import Shard, Texts, by_key, ends_of, found_of, selected, together
from millstream.patterns.tables import Tables

#: The state of a run that is a row.
ROW: Final = -1
#: How many numbers a table of rows and states has at most: 256 MB. On a stream it may have more,
#: since the rows are kept anyway.
_LARGEST: Final = 2**27


def process(tables: Tables, shard: Shard, batch: Batch, watermark: int) -> tuple[Shard, Found]:
    """Return a shard after a batch of events and its watermark, and what was found."""
    old = _moving(shard)
    if old.any():
        return _apart(tables, shard, batch, watermark, old)
    if watermark >= FOREVER and not len(shard.runs) and not _fits(tables, batch):
        return shards.process(tables, shard, batch, watermark)
    keys, codes, order = _by_key(shard, batch)
    masks = np.concatenate([shard.runs[:, layout.NULLS], _decided(tables, batch)])[order]
    times = np.concatenate([shard.runs[:, layout.STARTED_AT], batch.times])[order]
    fresh = np.arange(shard.sequence, shard.sequence + len(batch))
    numbers = np.concatenate([shard.runs[:, layout.START], fresh])[order]
    owners = codes[order]
    events = _events(times, masks, ends_of(owners, len(keys)), numbers)
    decided = match_whole(tables.rules, events, _nothing(tables), watermark >= FOREVER)
    rows = shards.Rows(shard.rows.slice(0, 0), _rows(shard, batch), order)
    left = np.flatnonzero(np.arange(len(order)) >= decided.left[owners])
    kept = _kept(tables, owners[left], times[left], masks[left], numbers[left])
    used = np.unique(owners[left])
    after = replace(
        shard,
        keys=keys.take(pa.array(used)),
        runs=kept,
        nodes=np.stack([np.arange(len(left)), np.zeros_like(left), np.full_like(left, -1)], 1),
        rows=rows.take(left),
        numbers=numbers[left],
        sequence=shard.sequence + len(batch),
    )
    return after, found_of(decided.outcome, keys, rows)


def _fits(tables: Tables, batch: Batch) -> bool:
    """Tell whether a table of the rows and states of the largest key is not too large."""
    states = len(tables.rules.states)
    if len(batch) * states <= _LARGEST:
        return True
    counts = pa.compute.value_counts(batch.keys).field("counts").to_numpy()
    return int(counts.max()) * states <= _LARGEST


def _by_key(shard: Shard, batch: Batch) -> tuple[pa.Array, Numbers, Numbers]:
    """Return all keys, the key of each row, those kept first, and the order of rows by key."""
    keys, places = by_key(shard, batch)
    codes = np.concatenate([shard.runs[:, layout.KEY], places])
    return keys, codes, np.argsort(codes, kind="stable").astype(np.int64)


def _rows(shard: Shard, batch: Batch) -> pa.Table:
    """Return the rows that are kept, in the order of runs, and then the new ones."""
    if not len(shard.runs):
        return batch.rows
    places = shard.nodes[shard.runs[:, layout.NODE], layout.EVENT]
    return pa.concat_tables([shard.rows.take(pa.array(places)), batch.rows.cast(shard.rows.schema)])


def _decided(tables: Tables, batch: Batch) -> Numbers:
    """Return the tests that rows meet, those included that compare values of a row."""
    if not len(tables.rules.programs):
        return batch.masks
    texts = Texts.of(tables, pa.array([], pa.string()), batch.values)
    columns = shards.columns(tables, batch.values, np.arange(len(batch)), texts)
    masks, none = batch.masks.copy(), np.zeros(0, np.int64)
    events = Events(masks, masks, *columns, none, none, 0)
    decide_tests(tables.rules, events, _nothing(tables))
    return masks


def _events(times: Numbers, masks: Numbers, ends: Numbers, numbers: Numbers) -> Events:
    none = np.zeros((0, 0))
    return Events(
        times, masks, none.astype(np.int64), none, none.astype(np.bool_), ends, numbers, 0
    )


def _nothing(tables: Tables) -> Carried:
    """Return what a shard carries of which every row comes again."""
    none = np.zeros(0, np.int64)
    held = none.reshape(0, layout.MATCH_WIDTH)
    nodes = np.empty((64, layout.NODE_WIDTH), np.int64)
    return Carried(none.reshape(0, tables.width), none, held, none, nodes, 0)


def _kept(
    tables: Tables, owners: Numbers, times: Numbers, masks: Numbers, numbers: Numbers
) -> Table:
    """Return rows as runs that are in no state."""
    runs = np.zeros((len(owners), tables.width), np.int64)
    runs[:, layout.STATE] = ROW
    runs[:, layout.NODE] = np.arange(len(owners))
    runs[:, layout.LENGTH] = 1
    runs[:, layout.START] = numbers
    runs[:, layout.STARTED_AT] = runs[:, layout.LAST_AT] = times
    runs[:, layout.NULLS] = masks
    runs[:, layout.KEY] = np.unique(owners, return_inverse=True)[1]
    return runs


# Runs of earlier releases


def _moving(shard: Shard) -> Truths:
    """Return which keys have runs that are moved on one by one."""
    old = np.zeros(len(shard.keys), np.bool_)
    old[shard.runs[shard.runs[:, layout.STATE] != ROW, layout.KEY]] = True
    old[shard.held[:, layout.M_KEY]] = True
    return old


def _apart(
    tables: Tables, shard: Shard, batch: Batch, watermark: int, old: Truths
) -> tuple[Shard, Found]:
    """Match keys that have such runs, and those that have none."""
    keys = shard.keys.filter(pa.array(old))
    own = pa.compute.is_in(batch.keys.cast(shard.keys.type), value_set=keys).to_numpy(
        zero_copy_only=False
    )
    moved, found = shards.process(tables, selected(shard, old), batch.select(own), watermark)
    rest, others = process(tables, selected(shard, ~old), batch.select(~own), watermark)
    return (
        replace(together(moved, rest), sequence=shard.sequence + len(batch)),
        found.joined(others),
    )
