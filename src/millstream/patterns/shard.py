"""A shard: the runs of many keys in columns, with their events, which the kernel moves on.

Its bytes hold, for each live run, nine numbers of 8 bytes and one more for each register (two for a
first or an average), and for each event of a history, shared by the runs that forked, 12 bytes and
the columns that the output needs. A key is there once, while it has runs; so is a text that a run
remembers. All of it is compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InternalError
from millstream.patterns.batches import Batch, Found, Numbers, Truths, table_bytes, table_of
from millstream.patterns.kernel import layout
from millstream.patterns.kernel.forking import match_forking
from millstream.patterns.kernel.matches import mark_reachable, unroll
from millstream.patterns.kernel.preferring import match_preferring
from millstream.patterns.kernel.records import Carried, Events, Outcome, Rules, Table
from millstream.patterns.kernel.sharing import match_sharing
from millstream.patterns.kernel.skipping import match_skipping
from millstream.patterns.tables import Tables

#: What the bytes of a shard begin with: a mark and the version of what follows.
MARK: Final = b"MSPS"
VERSION: Final = 3
#: The version before pressed nothing; it is still read.
PLAIN_VERSION: Final = 2


@dataclass(frozen=True)
class Shard:
    """What is kept between two batches; texts in registers are places in `words`, in order."""

    keys: pa.Array
    runs: Table
    held: Table
    nodes: Table
    rows: pa.Table
    numbers: Numbers
    words: pa.Array
    sequence: int

    @property
    def live(self) -> int:
        """How many runs are live."""
        return len(self.runs)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to keep."""
        return not len(self.runs) and not len(self.held)

    @property
    def count(self) -> int:
        """How many keys something is kept of."""
        return len(self.keys)


def empty(tables: Tables, keys: pa.DataType, rows: pa.Schema) -> Shard:
    """Return a shard without runs."""
    none = np.zeros(0, np.int64)
    return Shard(
        pa.array([], keys),
        none.reshape(0, tables.width),
        none.reshape(0, layout.MATCH_WIDTH),
        none.reshape(0, 3),
        rows.empty_table(),
        none,
        pa.array([], pa.string()),
        0,
    )


def process(tables: Tables, shard: Shard, batch: Batch, watermark: int) -> tuple[Shard, Found]:
    """Return a shard after a batch of events and its watermark, and what was found."""
    keys, places = by_key(shard, batch)
    order = np.argsort(places, kind="stable").astype(np.int64)
    ends = ends_of(places[order], len(keys))
    texts = Texts.of(tables, shard.words, batch.values)
    numbers = np.concatenate([shard.numbers, shard.sequence + order])
    events = Events(
        np.ascontiguousarray(batch.times[order]),
        np.ascontiguousarray(batch.masks[order]),
        *columns(tables, batch.values, order, texts),
        ends=ends,
        numbers=numbers,
        base=len(shard.numbers),
    )
    runs, held = texts.entered(shard.runs), shard.held
    run_ends = ends_of(runs[:, layout.KEY], len(ends))
    held_ends = ends_of(held[:, layout.M_KEY], len(ends))
    if tables.shares:
        runs = _by_start(runs, run_ends, layout.LENGTH, layout.START, layout.KEY)
        held = _by_start(held, held_ends, layout.M_LENGTH, layout.M_START, layout.M_KEY)
    carried = Carried(runs, run_ends, held, held_ends, _roomy(shard.nodes), len(shard.nodes))
    outcome = _kernel(tables)(tables.rules, events, carried, watermark)
    rows = Rows(shard.rows, batch.rows, order)
    results = found_of(outcome, keys, rows)
    kept = _kept(outcome, keys, rows, numbers)
    words = texts.left(kept[1])
    return Shard(*kept, words, shard.sequence + len(batch)), results


def _kernel(tables: Tables) -> Callable[[Rules, Events, Carried, int], Outcome]:
    """Return the way to match."""
    if tables.prefers:
        return match_preferring
    if not tables.shares:
        return match_forking
    return match_skipping if tables.rules.settings[layout.SKIP] else match_sharing


def _by_start(table: Table, ends: Numbers, length: int, start: int, key: int) -> Table:
    """Return runs, or matches, by key and start; `ends` says where those of each key end.

    Those with a length were moved one by one, by an earlier release, and are in another order: all
    of a key, or none.
    """
    firsts = np.append(0, ends[:-1])[: len(ends)]
    if not (table[firsts[firsts < ends], length] > 0).any():
        return table
    return table[np.lexsort((table[:, start], table[:, key]))]


def by_key(shard: Shard, batch: Batch) -> tuple[pa.Array, Numbers]:
    """Return all keys, known ones first, and the place of each event's key among them."""
    both = pa.concat_arrays([shard.keys, batch.keys.cast(shard.keys.type)]).dictionary_encode()
    places: Numbers = both.indices.to_numpy()[len(shard.keys) :].astype(np.int64)
    return both.dictionary, places


def ends_of(keys: Numbers, count: int) -> Numbers:
    """Return where the rows of each key end, given the keys in order."""
    found: Numbers = np.searchsorted(keys, np.arange(count), side="right").astype(np.int64)
    return found


def _roomy(nodes: Table) -> Table:
    """Return the nodes with room for some more."""
    room = np.empty((len(nodes) + 64, 3), np.int64)
    room[: len(nodes)] = nodes
    return room


def columns(
    tables: Tables, values: Sequence[pa.Array], order: Numbers, texts: Texts
) -> tuple[Table, Any, Any]:
    """Return the values as whole and real numbers, and which are missing; programs' texts last."""
    rows = len(order)
    whole = np.zeros((len(values) + len(tables.texts), rows), np.int64)
    real = np.zeros((len(values), rows), np.float64)
    missing = np.zeros((len(values) + len(tables.texts), rows), np.bool_)
    for place, (kind, column) in enumerate(zip(tables.kinds, values, strict=True)):
        if column.null_count:
            missing[place] = column.is_null().to_numpy(zero_copy_only=False)[order]
        if kind in ("x", "t"):
            continue  # only counted: what it is does not matter, or a text
        plain = column.cast(pa.int64() if kind == "i" else pa.float64())
        filled = (pc.fill_null(plain, 0) if column.null_count else plain).to_numpy(
            zero_copy_only=False
        )
        (whole if kind == "i" else real)[place] = filled[order]
    for place in tables.text_values:
        whole[place] = texts.places(values[place])[order]
    if tables.texts:
        whole[len(values) :] = texts.places(pa.array(tables.texts))[:, None]
    return whole, real, missing


@dataclass(frozen=True, slots=True)
class Texts:
    """All texts of a batch in order; where texts are compared, one is its place among them."""

    tables: Tables
    before: pa.Array
    known: pa.Array

    @classmethod
    def of(cls, tables: Tables, before: pa.Array, values: Sequence[pa.Array]) -> Texts:
        """Return the texts that are remembered, those of a batch, and those of the pattern."""
        own = [values[place].cast(pa.string()) for place in tables.text_values]
        if not own and not tables.texts:
            return cls(tables, before, before)
        some = (
            pa.chunked_array([before, pa.array(tables.texts, pa.string()), *own])
            .unique()
            .drop_null()
        )
        return cls(tables, before, some.take(pc.sort_indices(some)))

    def places(self, texts: pa.Array) -> Numbers:
        """Return where texts stand; missing ones anywhere."""
        found: Numbers = (
            pc.fill_null(pc.index_in(texts.cast(pa.string()), self.known), 0)
            .to_numpy()
            .astype(np.int64)
        )
        return found

    def entered(self, runs: Table) -> Table:
        """Return runs whose texts have the places of this batch."""
        if not len(self.before):
            return runs
        moved, places = runs.copy(), self.places(self.before)
        for at in self.tables.text_registers:
            column = moved[:, layout.REGISTERS + at]
            there = column < len(places)  # what is missing may be anything
            column[there] = places[column[there]]
        return moved

    def left(self, runs: Table) -> pa.Array:
        """Return the texts that runs remember, and give them their places among these."""
        registers = self.tables.text_registers
        if not registers:
            return self.before
        there = [runs[:, layout.NULLS] >> at & 1 == 0 for at in registers]
        columns = [runs[:, layout.REGISTERS + at] for at in registers]
        used = np.unique(
            np.concatenate([column[some] for column, some in zip(columns, there, strict=True)])
        )
        for column, some in zip(columns, there, strict=True):
            column[:] = np.where(some, np.searchsorted(used, column), 0)
        return self.known.take(pa.array(used))


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that nodes speak of: those kept from before, then the new ones by key."""

    old: pa.Table
    new: pa.Table
    order: Numbers

    def take(self, places: Numbers) -> pa.Table:
        """Return rows by their places, in that order."""
        base = len(self.old)
        if not base:
            return self.new.take(pa.array(self.order[places]))
        whole = pa.concat_tables([self.old, self.new.cast(self.old.schema)])
        moved, new = places.copy(), places >= base
        moved[new] = self.order[places[new] - base] + base
        if len(moved) == len(whole) and (np.diff(moved) == 1).all():
            return whole.combine_chunks()
        return whole.take(pa.array(moved))


def found_of(outcome: Outcome, keys: pa.Array, rows: Rows) -> Found:
    """Return the matches of an outcome with their histories."""
    found = outcome.found
    ends = np.cumsum(found[:, layout.M_LENGTH]).astype(np.int64)
    total = int(ends[-1]) if len(ends) else 0
    blocks, events = np.empty(total, np.int64), np.empty(total, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    unroll(found, outcome.nodes, offsets, blocks, events)
    return Found(
        keys.take(pa.array(found[:, layout.M_KEY])),
        found[:, layout.M_AT].copy(),
        found[:, layout.M_STARTED_AT].copy(),
        found[:, layout.M_LATE] == 1,
        ends,
        blocks,
        rows.take(events),
    )


def _kept(
    outcome: Outcome, keys: pa.Array, rows: Rows, numbers: Numbers
) -> tuple[pa.Array, Table, Table, Table, pa.Table, Numbers]:
    """Return the keys, runs, held matches, nodes, rows and numbers that are still needed.

    The tables of an outcome become those that are kept.
    """
    runs, held, nodes = outcome.runs, outcome.held, outcome.nodes
    marks = np.zeros(len(nodes), np.int64)
    mark_reachable(np.concatenate([runs[:, layout.NODE], held[:, layout.M_NODE]]), nodes, marks)
    if not marks.all():
        nodes = nodes[marks == 1]
        places = np.concatenate([np.cumsum(marks) - 1, [-1]])
        nodes[:, layout.BEFORE_NODE] = places[nodes[:, layout.BEFORE_NODE]]
        runs[:, layout.NODE] = places[runs[:, layout.NODE]]
        held[:, layout.M_NODE] = places[held[:, layout.M_NODE]]
    events, places = _used(len(numbers), nodes[:, layout.EVENT])
    if len(events) < len(numbers):
        nodes[:, layout.EVENT] = places[nodes[:, layout.EVENT]]
    used, places = _used(len(keys), runs[:, layout.KEY], held[:, layout.M_KEY])
    if len(used) < len(keys):
        runs[:, layout.KEY] = places[runs[:, layout.KEY]]
        held[:, layout.M_KEY] = places[held[:, layout.M_KEY]]
    return keys.take(pa.array(used)), runs, held, nodes, rows.take(events), numbers[events]


def _used(count: int, *some: Numbers) -> tuple[Numbers, Numbers]:
    """Return which of so many things are used, in order, and where each is among these."""
    marks = np.zeros(count, np.bool_)
    for one in some:
        marks[one] = True
    return np.flatnonzero(marks), np.cumsum(marks) - 1


def selected(shard: Shard, chosen: Truths) -> Shard:
    """Return what a shard keeps of some of its keys."""
    runs, held = shard.runs[chosen[shard.runs[:, layout.KEY]]], shard.held
    held = held[chosen[held[:, layout.M_KEY]]]
    rows = Rows(shard.rows.slice(0, 0), shard.rows, np.arange(len(shard.rows)))
    kept = _kept(Outcome(runs, held, shard.nodes.copy(), held), shard.keys, rows, shard.numbers)
    return Shard(*kept, shard.words, shard.sequence)


def together(one: Shard, other: Shard) -> Shard:
    """Return what two shards of a pattern without registers keep, which have no key in common."""
    keys, nodes, rows = len(one.keys), len(one.nodes), len(one.rows)
    runs, held, links = other.runs.copy(), other.held.copy(), other.nodes.copy()
    runs[:, layout.KEY] += keys
    runs[:, layout.NODE] += nodes
    held[:, layout.M_KEY] += keys
    held[:, layout.M_NODE] += nodes
    links[:, layout.EVENT] += rows
    links[links[:, layout.BEFORE_NODE] >= 0, layout.BEFORE_NODE] += nodes
    return Shard(
        pa.concat_arrays([one.keys, other.keys]),
        np.concatenate([one.runs, runs]),
        np.concatenate([one.held, held]),
        np.concatenate([one.nodes, links]),
        pa.concat_tables([one.rows, other.rows]),
        np.concatenate([one.numbers, other.numbers]),
        one.words,
        max(one.sequence, other.sequence),
    )


def soonest(tables: Tables, shard: Shard) -> int | None:
    """Return when the time of a run is up next."""
    lowest = int(deadlines(tables, shard.runs).min(initial=layout.NEVER))
    return None if lowest >= layout.NEVER else lowest


def deadlines(tables: Tables, runs: Table) -> Numbers:
    """Return when the time of each run is up."""
    limits = np.full(len(runs), layout.NEVER)
    within = int(tables.rules.settings[layout.WITHIN])
    if within >= 0:
        limits = runs[:, layout.STARTED_AT] + within
    patience = tables.rules.states[runs[:, layout.STATE], layout.PATIENCE]
    waits = patience >= 0
    if waits.any():
        limits[waits] = np.minimum(limits[waits], runs[waits, layout.LAST_AT] + patience[waits])
    return limits


def dump(shard: Shard) -> bytes:
    """Return a shard as bytes."""
    content = {
        "keys": table_bytes(pa.table({"key": shard.keys})),
        "runs": shard.runs.tobytes(),
        "held": shard.held.tobytes(),
        "nodes": shard.nodes.astype(np.int32).tobytes(),
        "rows": table_bytes(shard.rows),
        "numbers": shard.numbers.tobytes(),
        "words": table_bytes(pa.table({"word": shard.words})),
        "sequence": shard.sequence,
    }
    data = msgspec.msgpack.encode(content)
    head = MARK + VERSION.to_bytes(2, "little") + len(data).to_bytes(8, "little")
    pressed: bytes = pa.compress(data, codec="lz4_raw", asbytes=True)
    return head + pressed


def load(tables: Tables, data: bytes) -> Shard:
    """Return the shard that `dump` made bytes of.

    Raises:
        InternalError: They are not of this version.
    """
    return loaded(tables.width, data)


def loaded(width: int, data: bytes) -> Shard:
    """Return the shard in bytes, given how many numbers a run has."""
    content = msgspec.msgpack.decode(_content(data))
    return Shard(
        table_of(content["keys"]).column("key").combine_chunks(),
        _numbers(content["runs"], width),
        _numbers(content["held"], layout.MATCH_WIDTH),
        np.frombuffer(content["nodes"], np.int32).astype(np.int64).reshape(-1, 3),
        table_of(content["rows"]),
        np.frombuffer(content["numbers"], np.int64).copy(),
        table_of(content["words"]).column("word").combine_chunks(),
        content["sequence"],
    )


def _content(data: bytes) -> bytes:
    version = int.from_bytes(data[4:6], "little")
    if data[:4] == MARK and version == VERSION:
        size = int.from_bytes(data[6:14], "little")
        content: bytes = pa.decompress(
            data[14:], decompressed_size=size, codec="lz4_raw", asbytes=True
        )
        return content
    if data[:4] == MARK and version == PLAIN_VERSION:
        return data[6:]
    raise InternalError("the state of a pattern is not of a version that this release reads")


def _numbers(data: bytes, width: int) -> Table:
    return np.frombuffer(data, np.int64).reshape(-1, width).copy()
