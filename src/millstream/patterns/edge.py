"""Patterns for one event at a time, without Spark and Arrow: what a watcher compiles.

An `EdgePattern` is a pattern's automaton with one Python function that tells for an event which
tests it meets, and keeps of it what runs need; and another that makes the complex event of a
history. Both compute what Spark computes (scalar.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from millstream.clock import moment_of
from millstream.errors import ConditionFailed, PatternError, UnknownColumn, UnsupportedSql
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.flow.site import here, meant
from millstream.patterns import across, typed
from millstream.patterns.automaton import Automaton
from millstream.patterns.blocks import all_blocks
from millstream.patterns.compile import compile_pattern
from millstream.patterns.conditions import Owner, label_of
from millstream.patterns.digest import digest
from millstream.patterns.emitted import Emitted, check_names
from millstream.patterns.history import Value
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.recipe import PATTERN, TIMED_OUT
from millstream.patterns.scalar.codes import Source, compiled
from millstream.patterns.scalar.function import Row, writer_for

EventId = tuple[str, int]
"""(sender, number): an event that reaches two devices is one event."""


class Seen(NamedTuple):
    """An event as the runs of one pattern see it.

    Attributes:
        at: Its time in microseconds.
        id: Its sender and number.
        met: Bit i is set if the event's part of test i holds.
        values: The values that registers and histories need.
        row: The columns that conditions and outputs need: they tell a peer the same.
    """

    at: int
    id: EventId
    met: int
    values: tuple[Value, ...]
    row: Row

    @property
    def order(self) -> tuple[int, EventId]:
        """The place among all events."""
        return self.at, self.id


See = Callable[[EventId, int, Row], Seen | None]


@dataclass(frozen=True, slots=True)
class EdgePattern:
    """A pattern that is compiled for one event at a time.

    Attributes:
        name: The pattern's name.
        automaton: Its automaton.
        keys: The columns whose values keep runs apart.
        span: How long a match lasts at most, in microseconds.
        unsound: Why it is not sound across devices; empty if it is.
        digest: Patterns with equal digests find the same, so their runs may be replicated.
        seen: Returns what runs see of an event, given its id, time and row; None if that is
            nothing. It raises ConditionFailed where Spark would fail.
        kept: The columns of the rows that it keeps; None if their types are not known.
    """

    name: str
    automaton: Automaton
    keys: tuple[str, ...]
    span: int | None
    unsound: tuple[str, ...]
    digest: str
    seen: See
    kept: Schema | None
    emitted: Emitted

    @classmethod
    def of(
        cls,
        pattern: Pattern,
        *,
        schema: Schema | None,
        time: str,
        key: Sequence[str] = (),
        emit: str | None = None,
    ) -> EdgePattern:
        """Compile a pattern over events with these columns.

        Args:
            pattern: What to look for.
            schema: The columns of the events; None if they are not known. Rows then are taken as
                they come, and only their time column is known to be a time.
            time: The time column.
            key: The columns whose values keep runs apart, unless the pattern names its own.
            emit: The columns of the complex event, unless the pattern names its own.

        Raises:
            FlowError: The pattern does not fit these columns, or uses what only Spark computes.
        """
        _check(pattern)
        keys = _spelled(pattern.keys if pattern.keys is not None else tuple(key), schema)
        # Watchers find themselves in which states a run waits at once.
        automaton = compile_pattern(pattern, schema, merges=False)
        if emit is not None and pattern.output is None:
            pattern = replace(pattern, output=emit)
        emitted = Emitted.of(pattern, schema, time, keys)
        look = _Look(pattern, automaton, schema, time)
        return cls(
            automaton.name,
            automaton,
            keys,
            automaton.within,
            across.unsound(pattern),
            digest(pattern, automaton, schema, time, keys),
            look.function(emitted.columns),
            look.kept(schema),
            emitted,
        )

    @property
    def sound(self) -> bool:
        """Whether it may be replicated if events of a key reach several devices."""
        return not self.unsound

    def key(self, row: Row) -> tuple[Value, ...]:
        """Return the values of the key's columns; an event without one of them has no key.

        Values that messages do not know, such as dates and decimals, are texts.
        """
        keys = self.keys
        if not keys:
            return ()
        if len(keys) == 1:
            return (_key_value(row.get(keys[0])),)
        return tuple(_key_value(row.get(name)) for name in keys)

    def received(self, id: EventId, at: int, row: Row) -> Seen | None:
        """Return what `seen` saw, from the row that it kept, as it comes from a message or a disk.

        Raises:
            EventRefused: A value is not of its column's type.
        """
        return self.seen(id, at, row if self.kept is None else typed.coerced(row, self.kept))

    def complex_event(
        self,
        key: Sequence[Value],  # noqa: ARG002  (its own values are in the rows)
        history: Sequence[tuple[int, Seen]],
        at: int,
        *,
        timed_out: bool = False,
    ) -> dict[str, Value]:
        """Return the columns that a flow's match() emits for a history.

        Args:
            key: The values of the key's columns.
            history: The events with the blocks that took them, in order.
            at: When the match was certain, in microseconds.
            timed_out: Whether the run ran out of time.
        """
        taken = [(block, seen.row) for block, seen in history]
        return self.emitted.complex_event(taken, at, timed_out=timed_out)


def edge_patterns(
    pattern: Pattern | Phenomenon,
    *,
    schema: Schema | None,
    time: str,
    key: Sequence[str] = (),
    emit: str | None = None,
) -> tuple[EdgePattern, ...]:
    """Compile a pattern, or all patterns of a phenomenon, as `EdgePattern.of` does.

    The complex events of a phenomenon tell by which pattern they were found.
    """
    if not isinstance(pattern, Phenomenon):
        return (EdgePattern.of(pattern, schema=schema, time=time, key=key, emit=emit),)
    late = any(one.late for one in pattern.patterns)
    found = [
        EdgePattern.of(one, schema=schema, time=time, key=key, emit=emit)
        for one in pattern.patterns
    ]
    if len({tuple(name.lower() for name in one.emitted.names) for one in found}) > 1:
        msg = f'the patterns of phenomenon "{pattern.name}" emit different columns'
        raise PatternError(msg, hint="let all of them emit the same names", where=here())
    beside = (PATTERN, TIMED_OUT) if late else (PATTERN,)
    check_names(found[0].emitted.names, beside, Owner(f'phenomenon "{pattern.name}"'))
    return tuple(
        replace(one, emitted=replace(one.emitted, late=late, named=one.name)) for one in found
    )


def _check(pattern: object) -> None:
    """Refuse what is no pattern, and SQL's kind of pattern."""
    if isinstance(pattern, Pattern):
        return
    if hasattr(pattern, "sql") or isinstance(pattern, str):
        msg = "a MATCH_RECOGNIZE clause cannot be matched at the edge"
        hint = "write it as a Pattern: begin(), followed_by(), times(), within()"
        raise UnsupportedSql(msg, hint=hint, where=here())
    msg = f"{type(pattern).__name__} is no pattern"
    raise PatternError(msg, hint='write Pattern().begin("a", ...)', where=here())


def _key_value(value: Value) -> Value:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return "NaN" if math.isnan(value) else value
    timed = isinstance(value, datetime) and value.tzinfo is not None
    return value if timed or kind is bytes else str(value)


def _spelled(names: tuple[str, ...], schema: Schema | None) -> tuple[str, ...]:
    """Return the key's columns as the schema spells them."""
    if schema is None:
        return names
    found = []
    for name in names:
        field = schema.find(name)
        if field is None:
            msg = f'the key "{name}" is not a column of the events'
            raise UnknownColumn(msg, hint=meant(schema, name))
        found.append(field.name)
    return tuple(found)


# The function that looks at an event


_FAILURES: Final = (ArithmeticError, ValueError, TypeError, AttributeError, LookupError)


class _Look:
    """Writes the function that tells what runs see of an event."""

    def __init__(self, pattern: Pattern, automaton: Automaton, schema: Schema | None, time: str):
        self.pattern, self.automaton = pattern, automaton
        self.whole = Owner(f'pattern "{automaton.name}"', pattern.where)
        self.writer = writer_for(schema, self.whole)
        if schema is None:
            self.writer.schema = Schema.of((time, "timestamp"))
        self.time = time
        self.lines: list[tuple[Source, str]] = []
        self.read: set[str] = set()
        self.whole_row = False

    def function(self, emitted: frozenset[str] | None) -> See:
        """Return it; `emitted` are the columns that outputs are made of, None for all."""
        automaton, writer = self.automaton, self.writer
        tests = [line for number in range(len(automaton.tests)) for line in self._test(number)]
        self._read()
        self.lines += [(f"met = {self._always}", ""), *tests]
        if automaton.quiet and not self._always:
            self.lines.append(("if not met: return None", ""))
        values = "".join(f"{self._value(sql)}, " for sql in automaton.values)
        row = self._row(emitted)
        self._read()
        made = f"{writer.name(Seen)}(at, id, met, ({values}), {row})"
        self.lines.append((f"return {made}", "its values"))
        return self._compiled()

    @property
    def _always(self) -> int:
        """The tests that ask nothing of the event alone."""
        return sum(
            1 << number
            for number, test in enumerate(self.automaton.tests)
            if test.event is None and not test.alone
        )

    def _test(self, number: int) -> Iterator[tuple[Source, str]]:
        test, bit = self.automaton.tests[number], 1 << number
        if test.alone:
            asks = " or ".join(f"{self.writer.name(one)}(row)" for one in test.alone)
            yield f"if {asks}: met |= {bit}", ""
        elif test.event is not None:
            self.writer.owner = self._owner(test.label)
            holds = self.writer.true(expressions.expression(test.event))
            yield f"if {holds}: met |= {bit}", f'the condition "{test.label}"'

    def _owner(self, label: str) -> Owner:
        """Return the block that has a condition."""
        for block in all_blocks(self.pattern.blocks):
            for conditions in (block.conditions, block.until):
                texts = [one for one in conditions if isinstance(one, str)]
                if texts and label_of(texts) == label:
                    return Owner(f'block "{block.name}"', block.where)
        return self.whole

    def _value(self, sql: str) -> Source:
        self.writer.owner = self.whole
        code = self.writer.code(expressions.expression(sql))
        if code.type is not None and code.type not in _TIMES:
            return code.value
        if code.source == self.writer.columns.get(self.time):
            return "at"
        return f"{self.writer.name(typed.micros_of)}({code.value})"

    def _row(self, emitted: frozenset[str] | None) -> Source:
        writer = self.writer
        asked = any(test.functions or test.alone for test in self.automaton.tests)
        self.whole_row = emitted is None or asked
        if emitted is None or asked:
            timed = f", {writer.name(self.time)}: {self._moment}" if writer.open else ""
            return f"{{**row{timed}}}"
        names = {*writer.columns, *emitted}
        pairs = [f"{writer.name(name)}: {writer.column(name).source}" for name in sorted(names)]
        return f"{{{', '.join(pairs)}}}"

    def kept(self, schema: Schema | None) -> Schema | None:
        """Return the columns that rows keep, once the function is written."""
        if schema is None or self.whole_row:
            return schema
        return schema.without(set(schema.names) - set(self.writer.columns))

    @property
    def _moment(self) -> Source:
        return f"{self.writer.name(moment_of)}(at)"

    def _read(self) -> None:
        """Read the columns that are used from here on."""
        for name, local in self.writer.columns.items():
            if name not in self.read:
                timed = self.writer.open and name == self.time
                got = self._moment if timed else f"get({self.writer.name(name)})"
                self.lines.append((f"{local} = {got}", ""))
                self.read.add(name)

    def _compiled(self) -> See:
        failed = _Failed(self.automaton.name, tuple(owner for _, owner in self.lines))
        body = [
            "get = row.get",
            "try:",
            *(f"    {line}" for line, _ in self.lines),
            f"except {self.writer.name(_FAILURES)} as error:",
            f"    {self.writer.name(failed)}(error, row)",
        ]
        return compiled("seen", "id, at, row", body, self.writer)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Failed:
    """Raises the error of an event that cannot be looked at, with what could not be computed."""

    pattern: str
    owners: tuple[str, ...]

    def __call__(self, error: Exception, row: Row) -> None:
        assert error.__traceback__ is not None
        # The body begins in the fourth line.
        owner = self.owners[error.__traceback__.tb_lineno - 4] or "it"
        fact = f'{owner} of pattern "{self.pattern}" could not be computed: {error}'
        hint = f"the event was {dict(row)!r:.300}; a schema tells which types its columns have"
        raise ConditionFailed(fact, hint=hint) from error


_TIMES: Final = ("timestamp", "timestamp_ntz", "date", "interval")
