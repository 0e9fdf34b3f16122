"""What a matcher keeps, made into what the matcher of a changed pattern goes on with.

Whichever matchers these are (the kernel's columns, runs moved one by one, either with last rows and
counts of a partition around it), runs are taken out as the automaton has them, go over by `carrying`,
and are put into columns again. Columns of kept events are known by the SQL that made them; what the
old version has not kept is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import InternalError
from millstream.patterns.automaton import Automaton, Event, Key, Link, Match, Run, step
from millstream.patterns.batches import Numbers
from millstream.patterns.carrying import Carrying, Outcome
from millstream.patterns.events import plain as plain_values
from millstream.patterns.history import Register, Value
from millstream.patterns.kernel import layout
from millstream.patterns.matcher import Kept, KernelMatcher, Matcher
from millstream.patterns.partition import Partition, PartitionMatcher
from millstream.patterns.plain import PlainShard
from millstream.patterns.shard import Shard
from millstream.patterns.tabled import ROW
from millstream.patterns.tables import Tables


@dataclass(frozen=True)
class Side:
    """One version of a pattern.

    Attributes:
        automaton: What it looks for.
        matcher: What runs it.
        empty: What the matcher keeps if that is nothing.
        columns: The SQL of the columns of kept events, by their names.
        types: Those of the automaton's values.
    """

    automaton: Automaton
    matcher: Matcher
    empty: Kept
    columns: Mapping[str, str]
    types: Sequence[pa.DataType]

    @property
    def inner(self) -> Matcher:
        """What moves the runs."""
        return self.matcher.inner if isinstance(self.matcher, PartitionMatcher) else self.matcher

    @property
    def rows(self) -> pa.Schema:
        """The columns of kept events."""
        inner = self.empty.inner if isinstance(self.empty, Partition) else self.empty
        assert isinstance(inner, Shard | PlainShard)
        return inner.rows.schema


@dataclass(frozen=True)
class _Events:
    """Kept events: their rows, and the places of these by the numbers of events."""

    rows: pa.Table
    places: Mapping[int, int]


def reshaped(
    old: Side,
    new: Side,
    kept: Kept,
    cut: int,
    renames: Mapping[str, str] | None = None,
    drops: Collection[str] = (),
) -> tuple[Kept, Outcome]:
    """Return what the new matcher keeps at the cut of what the old one has kept, and what became of it."""
    inner = kept.inner if isinstance(kept, Partition) else kept
    keys, events = _taken_out(old, inner)
    known = {sql: name for name, sql in old.columns.items() if name in events.rows.column_names}
    rows = _rows(new, events.rows, known)
    carrying = Carrying(old.automaton, new.automaton, renames or {}, drops, known)
    seen = _Seen.of(new, events, known, rows)
    found, outcome = dict[Any, Key](), Outcome()
    for name, key in keys.items():
        after, one = carrying.key(key, cut, seen)
        outcome.add(one)
        if not after.idle:
            found[name] = after
    shard = _put_in(new, found, _Events(rows, events.places), kept.sequence)
    if not isinstance(new.matcher, PartitionMatcher):
        return shard, outcome
    memory, counts = None, dict[str, int]()
    if isinstance(kept, Partition):
        memory = _memory(old, new, kept.memory)
        counts = dict(kept.counts) if new.matcher.numbered else {}
    return Partition(shard, memory, counts), outcome


# Events


def _rows(new: Side, rows: pa.Table, known: Mapping[str, str]) -> pa.Table:
    """Return the columns that the new version keeps of events; those that were not kept are missing."""
    columns = []
    for field in new.rows:
        source = known.get(new.columns.get(field.name, ""))
        columns.append(
            _cast(None if source is None else rows.column(source), field.type, len(rows))
        )
    return pa.Table.from_arrays(columns, schema=new.rows)


def _cast(column: pa.ChunkedArray | None, kind: pa.DataType, count: int) -> pa.Array:
    if column is not None:
        try:
            return column.combine_chunks().cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # it has become something else: as if it had not been kept
    return pa.nulls(count, kind)


@dataclass(frozen=True)
class _Seen:
    """Returns events as the new automaton sees them."""

    places: Mapping[int, int]
    values: list[list[Value] | None]
    rows: list[dict[str, Any]] | None

    @classmethod
    def of(cls, new: Side, events: _Events, known: Mapping[str, str], rows: pa.Table) -> _Seen:
        sources = [known.get(sql) for sql in new.automaton.values]
        values = [
            None
            if source is None
            else plain_values(events.rows.column(source).combine_chunks()).to_pylist()
            for source in sources
        ]
        asked = any(test.functions for test in new.automaton.tests)
        ours = [name for name in rows.column_names if name.startswith("__")]
        return cls(events.places, values, rows.drop_columns(ours).to_pylist() if asked else None)

    def __call__(self, event: Event) -> Event:
        place = self.places[event.number]
        values = tuple(None if one is None else _hashable(one[place]) for one in self.values)
        row = None if self.rows is None else self.rows[place]
        return Event(event.number, event.at, 0, values, row)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Out of columns


def _taken_out(side: Side, kept: Kept) -> tuple[dict[Any, Key], _Events]:
    """Return what is kept of each key, and the events of all."""
    if isinstance(kept, PlainShard):
        places = {number: place for place, number in enumerate(kept.numbers)}
        return kept.keys, _Events(kept.rows, places)
    if not isinstance(kept, Shard) or not isinstance(side.inner, KernelMatcher):
        raise InternalError(f"what {type(side.inner).__name__} keeps cannot go over")
    places = {number: place for place, number in enumerate(kept.numbers.tolist())}
    return _Columns(side.automaton, side.inner.tables, kept).keys(), _Events(kept.rows, places)


class _Columns:
    """The runs of a shard of the kernel, as the automaton has them."""

    def __init__(self, automaton: Automaton, tables: Tables, shard: Shard) -> None:
        self.automaton, self.tables, self.shard = automaton, tables, shard
        self.nodes, self.numbers = shard.nodes.tolist(), shard.numbers.tolist()
        self.words = shard.words.to_pylist()
        self.times = self._times()
        self.links: dict[int, Link] = {}

    def keys(self) -> dict[Any, Key]:
        names = self.shard.keys.to_pylist()
        runs: dict[int, list[Run]] = {}
        waiting: dict[int, list[Event]] = {}
        real = self.shard.runs.view(np.float64)
        for row, reals in zip(self.shard.runs.tolist(), real.tolist(), strict=True):
            if row[layout.STATE] == ROW:
                event = self._event(row[layout.NODE], row[layout.NULLS])
                waiting.setdefault(row[layout.KEY], []).append(event)
            else:
                runs.setdefault(row[layout.KEY], []).append(self._run(row, reals))
        held: dict[int, list[Match]] = {}
        for row in self.shard.held.tolist():
            if row[layout.M_LENGTH] == 0:
                link, _ = self._forward(row[layout.M_NODE], row[layout.M_STARTED_AT])
            else:
                link = self._link(row[layout.M_NODE])
            match = Match(_history(link), row[layout.M_AT], row[layout.M_ENDED])
            held.setdefault(row[layout.M_KEY], []).append(match)
        found = {}
        for place, name in enumerate(names):
            key = Key(tuple(runs.get(place, ())), tuple(held.get(place, ())))
            found[name] = self._begun(waiting[place]) if place in waiting else key
        return found

    def _times(self) -> dict[int, int]:
        """Return the times of events, by their places, as far as they are known."""
        times: dict[int, int] = {}
        runs, held = self.shard.runs, self.shard.held
        for row in runs[
            :, (layout.NODE, layout.LENGTH, layout.STARTED_AT, layout.LAST_AT)
        ].tolist():
            node, length, started_at, last_at = row
            if length == 0:  # shared runs: their nodes point forward
                times.setdefault(self.nodes[node][layout.EVENT], started_at)
                continue
            times[self._first(node)] = started_at
            times[self.nodes[node][layout.EVENT]] = last_at
        for node, length, started_at in held[
            :, (layout.M_NODE, layout.M_LENGTH, layout.M_STARTED_AT)
        ].tolist():
            if length == 0:
                times.setdefault(self.nodes[node][layout.EVENT], started_at)
            else:
                times[self._first(node)] = started_at
        return times

    def _first(self, node: int) -> int:
        while (before := self.nodes[node][layout.BEFORE_NODE]) >= 0:
            node = before
        place: int = self.nodes[node][layout.EVENT]
        return place

    def _event(self, node: int, met: int = 0, at: int = 0) -> Event:
        place = self.nodes[node][layout.EVENT]
        return Event(self.numbers[place], self.times.get(place, at), met)

    def _begun(self, waiting: list[Event]) -> Key:
        """Return the runs of rows that wait for the first match among them to be decided."""
        tests = tuple(replace(test, history=None) for test in self.automaton.tests)
        decided, key = replace(self.automaton, tests=tests), Key()
        for event in waiting:
            key, _, _ = step(decided, key, event)
        return key

    def _run(self, row: list[int], reals: list[float]) -> Run:
        started_at, start = row[layout.STARTED_AT], row[layout.START]
        if row[layout.LENGTH] == 0:
            link, length = self._forward(row[layout.NODE], started_at)
        else:
            link, length = self._link(row[layout.NODE]), row[layout.LENGTH]
        registers = self.automaton.registers
        contents = tuple(self._content(at, one, row, reals) for at, one in enumerate(registers))
        return Run(row[layout.STATE], link, length, start, started_at, contents)

    def _link(self, node: int) -> Link:
        chain = []
        while node >= 0 and node not in self.links:
            chain.append(node)
            node = self.nodes[node][layout.BEFORE_NODE]
        link = self.links.get(node)
        for one in reversed(chain):
            link = self.links[one] = Link(self.nodes[one][layout.BLOCK], self._event(one), link)
        assert link is not None, "a run has taken an event"
        return link

    def _forward(self, node: int, started_at: int) -> tuple[Link, int]:
        link: Link | None = None
        length = 0
        while node >= 0:
            block = self.nodes[node][layout.BLOCK]
            if block >= 0:  # others only join histories
                link, length = Link(block, self._event(node, at=started_at), link), length + 1
            node = self.nodes[node][layout.BEFORE_NODE]
        assert link is not None, "a run has taken an event"
        return link, length

    def _content(self, at: int, register: Register, row: list[int], reals: list[float]) -> Value:
        rule, own = self.tables.rules.registers[at], layout.REGISTERS + at
        missing = row[layout.NULLS] >> at & 1 == 1
        beside = layout.REGISTERS + int(rule[layout.BESIDE])
        if register.function == "count":
            return row[own]
        value: Value = None
        if not missing:
            value = reals[own] if rule[layout.REAL] else row[own]
            value = self.words[row[own]] if at in self.tables.text_registers else value
        if register.function == "first":
            return (value,) if row[beside] else None
        if value is None:
            return None
        if register.function == "avg":
            return value, row[beside]
        return bool(value) if register.function == "any" else value


def _history(link: Link) -> tuple[tuple[int, Event], ...]:
    found = []
    node: Link | None = link
    while node is not None:
        found.append((node.block, node.event))
        node = node.before
    return tuple(reversed(found))


# Into columns


def _put_in(side: Side, keys: dict[Any, Key], events: _Events, sequence: int) -> Kept:
    kind = side.empty.inner if isinstance(side.empty, Partition) else side.empty
    if isinstance(kind, PlainShard):
        histories = [run.history for key in keys.values() for run in key.runs]
        histories += [match.history for key in keys.values() for match in key.held]
        numbers = tuple(sorted({event.number for one in histories for _, event in one}))
        rows = events.rows.take(pa.array([events.places[one] for one in numbers], pa.int64()))
        return PlainShard(keys, rows, numbers, sequence, kind.kind)
    if not isinstance(kind, Shard) or not isinstance(side.inner, KernelMatcher):
        raise InternalError(f"{type(side.inner).__name__} cannot go on with runs")
    return _Tables(side.automaton, side.inner.tables, events).shard(keys, sequence, kind.keys.type)


class _Tables:
    """Writes runs into the tables of the kernel."""

    def __init__(self, automaton: Automaton, tables: Tables, events: _Events) -> None:
        self.automaton, self.tables, self.events = automaton, tables, events
        self.nodes: list[tuple[int, int, int]] = []
        self.numbers: dict[int, int] = {}
        self.links: dict[int, int] = {}

    def shard(self, keys: dict[Any, Key], sequence: int, kind: pa.DataType) -> Shard:
        pairs = [(at, run) for at, key in enumerate(keys.values()) for run in key.runs]
        held = [self._held(at, match) for at, key in enumerate(keys.values()) for match in key.held]
        texts = self.tables.text_registers
        used = {_text(run.contents[at]) for _, run in pairs for at in texts} - {None}
        words = sorted(used, key=lambda word: str(word).encode())
        places = {word: place for place, word in enumerate(words)}
        runs = np.zeros((len(pairs), self.tables.width), np.int64)
        real = runs.view(np.float64)
        for place, (at, run) in enumerate(pairs):
            self._run(at, run, runs[place], real[place], places)
        found = [self.events.places[number] for number in self.numbers]
        return Shard(
            pa.array(list(keys), kind),
            runs,
            np.array(held, np.int64).reshape(len(held), layout.MATCH_WIDTH),
            np.array(self.nodes, np.int64).reshape(len(self.nodes), 3),
            self.events.rows.take(pa.array(found, pa.int64())),
            np.array(list(self.numbers), np.int64),
            pa.array(words, pa.string()),
            sequence,
        )

    def _run(self, at: int, run: Run, row: Numbers, real: Any, places: Mapping[Any, int]) -> None:
        row[layout.STATE], row[layout.NODE] = run.state, self._node(run.taken)
        row[layout.LENGTH], row[layout.START] = run.length, run.start
        row[layout.STARTED_AT], row[layout.LAST_AT] = run.started_at, run.last_at
        row[layout.KEY] = at
        for number, (register, content) in enumerate(
            zip(self.automaton.registers, run.contents, strict=True)
        ):
            self._remember(number, register, content, row, real, places)

    def _remember(
        self,
        at: int,
        register: Register,
        content: Value,
        row: Numbers,
        real: Any,
        places: Mapping[Any, int],
    ) -> None:
        rule, own = self.tables.rules.registers[at], layout.REGISTERS + at
        beside = layout.REGISTERS + int(rule[layout.BESIDE])
        value = content
        if register.function == "first" and content is not None:
            row[beside], value = 1, content[0]
        elif register.function == "avg" and content is not None:
            value, row[beside] = content
        if value is None:
            row[layout.NULLS] |= 1 << at
        elif at in self.tables.text_registers:
            row[own] = places[value]
        elif rule[layout.REAL]:
            real[own] = float(value)
        else:
            row[own] = int(value)

    def _node(self, link: Link) -> int:
        chain = []
        node: Link | None = link
        while node is not None and id(node) not in self.links:
            chain.append(node)
            node = node.before
        place = -1 if node is None else self.links[id(node)]
        for one in reversed(chain):
            place = self._add(one.block, one.event, place)
            self.links[id(one)] = place
        return place

    def _add(self, block: int, event: Event, before: int) -> int:
        place = self.numbers.setdefault(event.number, len(self.numbers))
        self.nodes.append((place, block, before))
        return len(self.nodes) - 1

    def _held(self, at: int, match: Match) -> list[int]:
        node = -1
        for block, event in match.history:
            node = self._add(block, event, node)
        row = [0] * layout.MATCH_WIDTH
        row[layout.M_KEY], row[layout.M_NODE] = at, node
        row[layout.M_LENGTH], row[layout.M_START] = len(match.history), match.start
        row[layout.M_AT], row[layout.M_ENDED] = match.at, match.ended
        row[layout.M_STARTED_AT] = match.history[0][1].at
        return row


def _text(content: Value) -> Value:
    return content[0] if isinstance(content, tuple) else content


# Partitions


def _memory(old: Side, new: Side, memory: pa.Table | None) -> pa.Table | None:
    """Return the last rows of keys with the columns that the new version looks at."""
    if memory is None or not isinstance(new.matcher, PartitionMatcher) or not new.matcher.lags:
        return None
    known = {}
    for name in memory.column_names:
        if name.startswith("value "):
            known[old.automaton.values[int(name.removeprefix("value "))]] = name
        elif name.startswith("row "):
            known[old.columns[name.removeprefix("row ")]] = name
    columns = {"key": memory.column("key").combine_chunks()}
    for source, sql, kind in _remembered(new):
        name = known.get(sql)
        columns[source] = _cast(None if name is None else memory.column(name), kind, len(memory))
    return pa.table(columns)


def _remembered(new: Side) -> Iterator[tuple[str, str, pa.DataType]]:
    """Yield the columns of last rows: their names, the SQL of each, and its type."""
    assert isinstance(new.matcher, PartitionMatcher)
    for lag in new.matcher.lags:
        if isinstance(lag.source, int):
            sql, kind = new.automaton.values[lag.source], new.types[lag.source]
            yield f"value {lag.source}", sql, kind
        else:
            sql, kind = new.columns[lag.source], new.rows.field(lag.source).type
            yield f"row {lag.source}", sql, kind
