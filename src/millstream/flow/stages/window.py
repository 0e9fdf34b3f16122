"""`window`: aggregates over windows of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from sqlglot import exp
from sqlglot.expressions import Expr

from millstream.errors import (
    DistinctAggregate,
    FlowError,
    InvalidDuration,
    InvalidName,
    InvalidOption,
    InvalidSql,
    NotAnAggregate,
    Where,
)
from millstream.flow import expressions
from millstream.flow.durations import format as shown
from millstream.flow.keys import changing, read_key
from millstream.flow.schema import Field, Schema
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.stage import ZERO, Named, OneInput, Reach, Tree
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

By = str | Sequence[str] | Mapping[str, str]
Length = str | timedelta
_Given = Mapping[str, Length | None]
START, TIME = "window_start", "window_time"
_EDGES: Final = Schema.parse(f"{START} timestamp, window_end timestamp, {TIME} timestamp")


@dataclass(frozen=True, slots=True)
class Window(OneInput):
    """Aggregates over windows of event time, aligned to 1970 in UTC.

    tumbling: `size` == `every`; sliding: `size` > `every`; session: `gap`, and how long one lasts
    at most, which its user guarantees. Its columns are those of `by`, window_start, window_end,
    window_time (the last microsecond: the stream's time), the aggregates.
    """

    kind: ClassVar[str] = "window"
    yaml_words: ClassVar[tuple[str, ...]] = ("window", "session")
    start: ClassVar[str] = START

    name: str
    input: str
    shape: Literal["tumbling", "sliding", "session"]
    size: timedelta | None
    every: timedelta | None
    gap: timedelta | None
    longest: timedelta | None
    by: Named
    aggregates: Named
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        known = inputs[0].schema or Schema(())
        by = Schema(())
        hint = 'give it another name: by={"name": "expression"} or name="aggregate"'
        for name, text in self.by:
            one = Schema((Field(name, expressions.type_of(text, known)),))
            by = site.combined(by, one, hint=hint)
        types = ((name, expressions.type_of(text, known)) for name, text in self.aggregates)
        aggregates = Schema(tuple(Field(name, found) for name, found in types))
        output = site.combined(by, _EDGES, aggregates, hint=hint)
        site.check_columns(output)
        return inputs[0].derived(self.name, output, time=TIME)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        words = ("gap", "session"), ("longest", "longest")
        if entry.has("window"):
            words = ("every", "window"), ("size", "size")
        lengths = {argument: entry.text(word) for argument, word in words}
        by, aggregates = entry.texts_or_named("by"), entry.named("aggregates") or {}
        # An aggregate may have the name of an argument of `stream.window`.
        return inputs[0]._windowed(name, lengths, by, aggregates)

    def to_yaml(self, flow: Flow) -> Tree:
        if self.gap is not None:
            lengths = {"session": shown(self.gap), "longest": _text(self.longest)}
        else:
            size = None if self.shape == "tumbling" else _text(self.size)
            lengths = {"window": _text(self.every), "size": size}
        plain = all(text == expressions.column(name) for name, text in self.by)
        by = forms.columns(tuple(name for name, _ in self.by)) if plain else dict(self.by)
        tree = {"from": self.input, **lengths, "by": by, "aggregates": dict(self.aggregates)}
        return forms.given(tree)

    def described(self, fields: Tree) -> Tree:
        return {"shape": fields["shape"], **fields}

    @classmethod
    def normal(cls, meaning: Tree) -> Tree:
        changed = dict(meaning)
        for part in ("by", "aggregates"):
            changed[part] = {name: expressions.normal(text) for name, text in meaning[part]}
            changed[f"{part} in order"] = [name for name, _ in meaning[part]]
        return changed

    def objection(self, site: Site, *inputs: Stream) -> FlowError | None:
        known = inputs[0].schema or Schema(())
        for name, text in self.by:
            if (function := changing(expressions.expression(text))) is not None:
                fact = f'groups by "{name}", and {function}() is not the same at every replay'
                hint = "group by columns and by expressions of them"
                return site.mistake(InvalidSql, fact, hint=hint)
        for _, text in self.aggregates:
            for column, node in expressions.columns_in(expressions.expression(text)):
                found = known.find(column)
                # Spark takes texts for numbers, and fails at the first that is none.
                if found is not None and found.type == "string" and _summed(node):
                    return _not_a_number(site, found, node)
        return None

    @property
    def state(self) -> str:
        return "sessions" if self.shape == "session" else "windows"

    @property
    def bounded_state(self) -> str:
        return self.state if self.longest is None else f"sessions, at most {shown(self.longest)}"

    def reach(self, service_window: timedelta) -> Reach:
        if self.gap is not None:
            longest = self.longest
            return Reach(longest, None if longest is None else self.gap + longest)
        return Reach(ZERO if self._aligned(service_window) else self.size)

    def begun_before(self, above: timedelta | None, service_window: timedelta) -> timedelta | None:
        if self._aligned(service_window):
            return ZERO
        return self.longest if self.shape == "session" else self.size

    def _aligned(self, service_window: timedelta) -> bool:
        """Tell whether every multiple of the switch interval is a boundary of a tumbling window."""
        return self.boundary is not None and not service_window % self.boundary

    @property
    def steps(self) -> tuple[timedelta, timedelta] | None:
        return None if self.every is None or self.size is None else (self.every, self.size)

    @property
    def grouped_by(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.by)

    @property
    def key_expressions(self) -> Mapping[str, str]:
        return {name: text for name, text in self.by if text != expressions.column(name)}

    def result_key(self, key: str | None) -> str | None:
        by = self.grouped_by
        return key if key in by else next(iter(by), None)

    @property
    def label(self) -> str:
        if self.shape == "session":
            return f"session, gap {_text(self.gap)}"
        every = f" every {_text(self.every)}" if self.shape == "sliding" else ""
        return f"{_text(self.size)} window{every}"


def _text(length: timedelta | None) -> str | None:
    return None if length is None else shown(length)


class WindowMethod(Upstream):
    """`stream.window`."""

    __slots__ = ()

    def window(
        self,
        name: str,
        *,
        every: Length | None = None,
        size: Length | None = None,
        gap: Length | None = None,
        longest: Length | None = None,
        by: By | None = None,
        **aggregates: str,
    ) -> Stream:
        """Return aggregates over windows of event time.

            departures.window("hourly", every="1 hour", by="origin", flights="count(*)")

        Args:
            name: The stage's name.
            every: How often a window starts.
            size: How long it is; as long as `every` if it is left out (a tumbling window), else
                longer (a sliding one).
            gap: Instead: a session ends when nothing came for so long.
            longest: Your guarantee that no session is longer; a longer one is not cut. Without it
                a switch waits for open sessions.
            by: A column or an expression, several, or {"name": "expression"}; the stream's key if it
                is left out, [] for one window over all.
            aggregates: Spark SQL, by name.
        """
        lengths = {"every": every, "size": size, "gap": gap, "longest": longest}
        return self._windowed(name, lengths, by, aggregates)

    def _windowed(
        self, name: str, lengths: _Given, by: By | None, aggregates: Mapping[str, str]
    ) -> Stream:
        site = self._site(name)
        self._check_timed(site, "window")
        named = _grouping(site, self, self._own_key if by is None else by)
        every, size, gap, longest = map(lengths.get, ("every", "size", "gap", "longest"))
        if gap is not None:
            checked = _session(site, gap, longest, every or size)
        else:
            checked = _sized(site, every, size, longest)
        columns = _aggregates(site, self.name, self.schema, named, aggregates)
        return self.flow.add(Window(name, self.name, *checked, named, columns, site.where), self)


_Span = timedelta | None
_Lengths = tuple[Literal["tumbling", "sliding", "session"], _Span, _Span, _Span, _Span]


def _session(site: Site, gap: Length, longest: Length | None, sized: Length | None) -> _Lengths:
    if sized is not None:
        hint = "a session has gap=, other windows have every= and size="
        raise site.mistake(InvalidOption, "has both a gap and a size", hint=hint)
    quiet = site.positive(gap, "gap")
    limit = None if longest is None else site.positive(longest, "longest")
    if limit is not None and limit < quiet:
        lengths = f"at most {shown(limit)}, which is less than their gap of {shown(quiet)}"
        fact = f"has sessions of {lengths}"
        raise site.mistake(InvalidDuration, fact, hint="longest= must be at least gap=")
    return "session", None, None, quiet, limit


def _sized(
    site: Site, every: Length | None, size: Length | None, longest: Length | None
) -> _Lengths:
    if longest is not None:
        hint = "only a session has a longest"
        raise site.mistake(InvalidOption, "has longest= without gap=", hint=hint)
    if every is None:
        hint = 'say every="1 hour", or gap= for sessions'
        raise site.mistake(InvalidOption, "does not say how often a window starts", hint=hint)
    step = site.positive(every, "every")
    length = step if size is None else site.positive(size, "size")
    if step > length:
        starts = f"starts a window of {shown(length)} every {shown(step)}"
        fact = f"{starts}, so rows between would be in none"
        raise site.mistake(InvalidDuration, fact, hint="every= must be at most size=")
    return "tumbling" if step == length else "sliding", length, step, None, None


def _aggregates(
    site: Site, owner: str, schema: Schema | None, by: Named, aggregates: Mapping[str, str]
) -> Named:
    if not aggregates:
        raise site.mistake(NotAnAggregate, "has no aggregates", hint='name one: flights="count(*)"')
    for name, text in aggregates.items():
        tree = _read(site, f'aggregate "{name}"', owner, schema, text)
        _check_aggregate(site, name, text, tree)
        _check_loose(site, by, name, tree)
    return tuple(aggregates.items())


def _read(
    site: Site, what: str, owner: str, schema: Schema | None, text: str, verb: str | None = None
) -> Expr:
    """Return the syntax tree of an expression whose columns are there."""
    with site.naming(what):
        tree = expressions.expression(text)
    if schema is not None:
        for column, node in expressions.columns_in(tree):
            found = site.field(schema, column, owner, verb=verb or expressions.verb(node))
            if found.type in ("boolean", "binary", "date") and _summed(node):
                raise _not_a_number(site, found, node)
    return tree


def _summed(node: Expr) -> bool:
    return isinstance(node.parent, exp.Sum | exp.Avg)


def _not_a_number(site: Site, field: Field, node: Expr) -> FlowError:
    assert node.parent is not None
    fact = f'{expressions.verb(node)} column "{field.name}", which is {field.type}'
    hint = f"it must be a number: {node.parent.key}(cast({field.name} as double))"
    return site.mistake(InvalidSql, fact, hint=hint)


def _check_aggregate(site: Site, name: str, text: str, tree: Expr) -> None:
    if expressions.distinct(text):
        fact = f'has DISTINCT in the aggregate "{name}", which Spark refuses on streams'
        hint = "use approx_count_distinct(...), or a distinct stage before the window"
        raise site.mistake(DistinctAggregate, fact, hint=hint)
    if expressions.windowed(tree):
        hint = "leave OVER (...) out: the window is this stage's own"
        raise site.mistake(NotAnAggregate, f'has a window function in "{name}"', hint=hint)
    if not expressions.may_aggregate(tree):
        fact = f'has "{text}" as "{name}", which is not an aggregate'
        hint = f"a window has many rows: say which, as in max({text}) or last({text})"
        raise site.mistake(NotAnAggregate, fact, hint=hint)


def _check_loose(site: Site, by: Named, name: str, tree: Expr) -> None:
    grouped = {expressions.normal(text).lower() for _, text in by}
    loose = [column for column in expressions.unaggregated(tree) if column.lower() not in grouped]
    if loose and any(expressions.aggregates_in(tree)):
        fact = f'uses column "{loose[0]}" in "{name}" outside of an aggregate'
        hint = f"put it into by=, or into an aggregate such as max({loose[0]})"
        raise site.mistake(NotAnAggregate, fact, hint=hint)


def _grouping(site: Site, above: Upstream, by: By) -> Named:
    """Return the names and expressions that `by` stands for."""
    if isinstance(by, Mapping):
        if not all(isinstance(name, str) and name for name in by):
            fact = "groups by an expression without a name"
            raise site.mistake(InvalidName, fact, hint='by={"name": "expression"}')
        named = by.items()
        return tuple(_grouped(site, above.name, above.schema, name, text) for name, text in named)
    return tuple(_named(site, above, text) for text in ((by,) if isinstance(by, str) else by))


def _named(site: Site, above: Upstream, text: str) -> tuple[str, str]:
    key = None
    if text != above.key:
        key = read_key(site, above.schema, text, above.name, "groups by")
    if key is not None:
        return key.name, key.text
    column = site.column(above.schema, text, above.name, verb="groups by")
    return column, expressions.column(column)


def _grouped(
    site: Site, input_name: str, schema: Schema | None, name: str, text: str
) -> tuple[str, str]:
    tree = _read(site, f'by "{name}"', input_name, schema, text, "groups by")
    if any(expressions.aggregates_in(tree)):
        fact = f'groups by the aggregate "{text}"'
        raise site.mistake(NotAnAggregate, fact, hint="group by columns and expressions of one row")
    return name, text
