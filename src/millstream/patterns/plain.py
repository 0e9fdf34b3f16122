"""A shard that is moved on event by event: for patterns that the kernel cannot run.

Those are the ones whose histories ask Python, or compare what is neither a number, a truth, a time
nor text. It finds the same and is many times slower.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import InternalError
from millstream.patterns import events
from millstream.patterns.automaton import Automaton, Event, Key, Link, Match, Run, advance, step
from millstream.patterns.batches import Batch, Found, Numbers, table_bytes, table_of

MARK: Final = b"MSPP"
VERSION: Final = 1


@dataclass(frozen=True)
class PlainShard:
    """The runs of each key; the rows of their events are kept beside them, by number."""

    keys: dict[Any, Key]
    rows: pa.Table
    numbers: tuple[int, ...]
    sequence: int
    kind: pa.DataType

    @property
    def live(self) -> int:
        """How many runs are live."""
        return sum(len(key.runs) for key in self.keys.values())

    @property
    def idle(self) -> bool:
        """Whether there is nothing to keep."""
        return not self.keys

    @property
    def count(self) -> int:
        """How many keys something is kept of."""
        return len(self.keys)


def empty(keys: pa.DataType, rows: pa.Schema) -> PlainShard:
    return PlainShard({}, rows.empty_table(), (), 0, keys)


def process(
    automaton: Automaton, shard: PlainShard, batch: Batch, watermark: int
) -> tuple[PlainShard, Found]:
    """Return a shard after a batch of events and its watermark, and what was found."""
    keys = dict(shard.keys)
    found: list[tuple[Any, Match]] = []
    for name, event in events_of(automaton, batch, shard.sequence):
        keys[name], matches, late = step(automaton, keys.get(name, Key()), event)
        found += [(name, match) for match in (*matches, *late)]
    for name, key in list(keys.items()):
        keys[name], matches, late = advance(automaton, key, watermark)
        found += [(name, match) for match in (*matches, *late)]
        if keys[name].idle:
            del keys[name]
    rows = _Rows.of(shard, batch)
    kept = rows.kept(PlainShard(keys, shard.rows, (), shard.sequence + len(batch), shard.kind))
    return kept, _found(found, rows, shard.kind)


def events_of(automaton: Automaton, batch: Batch, first: int) -> Iterable[tuple[Any, Event]]:
    """Yield the events with their keys; whole rows only where Python asks for them."""
    names, times, masks = batch.keys.to_pylist(), batch.times.tolist(), batch.masks.tolist()
    columns = [events.plain(column).to_pylist() for column in batch.values]
    asked = any(test.functions for test in automaton.tests)
    ours = [name for name in batch.rows.column_names if name.startswith("__")]
    rows = batch.rows.drop_columns(ours).to_pylist() if asked else [None] * len(times)
    for place, (name, at, mask, row) in enumerate(zip(names, times, masks, rows, strict=True)):
        values = tuple(_hashable(column[place]) for column in columns)
        yield name, Event(first + place, at, mask, values, row)


def _hashable(value: Any) -> Any:
    """Return a value that runs can be told apart by."""
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows by the numbers of their events."""

    table: pa.Table
    places: dict[int, int]

    @classmethod
    def of(cls, shard: PlainShard, batch: Batch) -> _Rows:
        numbers = [*shard.numbers, *range(shard.sequence, shard.sequence + len(batch))]
        if len(shard.rows):
            table = pa.concat_tables([shard.rows, batch.rows.cast(shard.rows.schema)])
        else:
            table = batch.rows
        return cls(table, {number: place for place, number in enumerate(numbers)})

    def take(self, numbers: Iterable[int]) -> pa.Table:
        return self.table.take(pa.array([self.places[number] for number in numbers], pa.int64()))

    def kept(self, shard: PlainShard) -> PlainShard:
        """Return a shard with the rows that its runs speak of, and no others."""
        histories = [run.history for key in shard.keys.values() for run in key.runs]
        histories += [match.history for key in shard.keys.values() for match in key.held]
        numbers = tuple(sorted({event.number for history in histories for _, event in history}))
        return replace(shard, rows=self.take(numbers), numbers=numbers)


def found_in(found: list[tuple[Any, Match]], batch: Batch, shard: PlainShard) -> Found:
    """Return matches of the rows of a batch, which a shard is given."""
    return _found(found, _Rows.of(shard, batch), shard.kind)


def _found(found: list[tuple[Any, Match]], rows: _Rows, kind: pa.DataType) -> Found:
    histories = [match.history for _, match in found]
    return Found(
        pa.array([name for name, _ in found], kind),
        np.array([match.at for _, match in found], np.int64),
        np.array([history[0][1].at for history in histories], np.int64),
        np.array([match.timed_out for _, match in found], np.bool_),
        np.cumsum([len(history) for history in histories]).astype(np.int64),
        np.array([block for history in histories for block, _ in history], np.int64),
        rows.take(event.number for history in histories for _, event in history),
    )


def dump(shard: PlainShard) -> bytes:
    """Return a shard as bytes: tuples of Python's own types, so that no class of ours is named."""
    content = (
        [(name, *_key_out(key)) for name, key in shard.keys.items()],
        table_bytes(shard.rows),
        shard.numbers,
        shard.sequence,
        table_bytes(pa.table({"key": pa.array([], shard.kind)})),
    )
    return MARK + VERSION.to_bytes(2, "little") + pickle.dumps(content, protocol=5)


def load(data: bytes) -> PlainShard:
    """Return the shard that `dump` made bytes of.

    Raises:
        InternalError: They are not of this version.
    """
    if data[:4] != MARK or int.from_bytes(data[4:6], "little") != VERSION:
        raise InternalError("the state of a pattern is not of a version that this release reads")
    keys, rows, numbers, sequence, kind = pickle.loads(data[6:])  # noqa: S301  (our own checkpoint)
    return PlainShard(
        {name: _key_in(*parts) for name, *parts in keys},
        table_of(rows),
        numbers,
        sequence,
        table_of(kind).schema.field("key").type,
    )


def cut(shard: PlainShard, pieces: Numbers) -> dict[int, PlainShard]:
    """Return a shard in pieces, given the number of each key's."""
    rows = _Rows(shard.rows, {number: place for place, number in enumerate(shard.numbers)})
    keys: dict[int, dict[Any, Key]] = {}
    for piece, (name, key) in zip(pieces.tolist(), shard.keys.items(), strict=True):
        keys.setdefault(piece, {})[name] = key
    return {piece: rows.kept(replace(shard, keys=some)) for piece, some in keys.items()}


def joined(empty: PlainShard, parts: list[PlainShard], sequence: int) -> PlainShard:
    """Return the shard of which these are pieces."""
    if not parts:
        return replace(empty, sequence=sequence)
    schema = parts[0].rows.schema
    return PlainShard(
        {name: key for part in parts for name, key in part.keys.items()},
        pa.concat_tables([part.rows.cast(schema) for part in parts]),
        tuple(number for part in parts for number in part.numbers),
        sequence,
        parts[0].kind,
    )


def _key_out(key: Key) -> tuple[list[Any], list[Any]]:
    runs = [(r.state, _history_out(r.history), r.started_at, r.contents) for r in key.runs]
    held = [(_history_out(m.history), m.at, m.ended) for m in key.held]
    return runs, held


def _history_out(history: tuple[tuple[int, Event], ...]) -> list[Any]:
    return [
        (block, event.number, event.at, event.met, event.values, event.row)
        for block, event in history
    ]


def _key_in(runs: list[Any], held: list[Any]) -> Key:
    return Key(tuple(_run_in(*run) for run in runs), tuple(_held_in(*match) for match in held))


def _history_in(history: list[Any]) -> tuple[tuple[int, Event], ...]:
    return tuple(
        (block, Event(number, at, met, values, row))
        for block, number, at, met, values, row in history
    )


def _run_in(state: int, history: list[Any], started_at: int, contents: tuple[Any, ...]) -> Run:
    pairs = _history_in(history)
    link: Link | None = None
    for block, event in pairs:
        link = Link(block, event, link)
    assert link is not None, "a run has taken an event"
    return Run(state, link, len(pairs), pairs[0][1].number, started_at, contents)


def _held_in(history: list[Any], at: int, ended: int) -> Match:
    return Match(_history_in(history), at, ended)
