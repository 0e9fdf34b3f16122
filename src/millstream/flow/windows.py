"""Windows: the arguments of `Stream.window`, checked and filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from math import ceil, lcm
from typing import Literal

from sqlglot.expressions import Expr

from millstream.clock import MICROSECOND
from millstream.errors import DistinctAggregate, InvalidDuration, InvalidOption, NotAnAggregate
from millstream.flow import expressions
from millstream.flow.durations import duration
from millstream.flow.durations import format as shown
from millstream.flow.schema import Field, Schema
from millstream.flow.site import Site
from millstream.flow.stages import Named, Stage, Window

By = str | Sequence[str] | Mapping[str, str]
Length = str | timedelta
EDGES = Schema.parse("window_start timestamp, window_end timestamp, window_time timestamp")
TIME = "window_time"
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(hours=1)


def window(
    site: Site,
    input_name: str,
    schema: Schema | None,
    *,
    every: Length | None,
    size: Length | None,
    gap: Length | None,
    longest: Length | None,
    by: Named,
    aggregates: Mapping[str, str],
) -> Window:
    """Return the stage that these arguments describe."""
    lengths = (
        _session(site, gap, longest, every or size)
        if gap is not None
        else _sized(site, every, size, longest)
    )
    named = _aggregates(site, input_name, schema, by, aggregates)
    return Window(site.name, input_name, *lengths, by, named, site.where)


def service_window(stages: Iterable[Stage]) -> timedelta:
    """Return the shortest time, from ten seconds to an hour, at whose multiples tumbling windows of all these lengths end."""
    windows = [stage for stage in stages if isinstance(stage, Window) and stage.kind == "tumbling"]
    common = (
        lcm(*(stage.size // MICROSECOND for stage in windows if stage.size is not None))
        * MICROSECOND
    )
    return min(common * ceil(_SHORTEST / common), _LONGEST)


_Lengths = tuple[
    Literal["tumbling", "sliding", "session"],
    timedelta | None,
    timedelta | None,
    timedelta | None,
    timedelta | None,
]


def _session(site: Site, gap: Length, longest: Length | None, sized: Length | None) -> _Lengths:
    if sized is not None:
        fact, hint = (
            "has both a gap and a size",
            "a session has gap=, other windows have every= and size=",
        )
        raise site.mistake(InvalidOption, fact, hint=hint)
    quiet = positive(site, gap, "gap")
    limit = None if longest is None else positive(site, longest, "longest")
    if limit is not None and limit < quiet:
        fact = f"has sessions of at most {shown(limit)}, which is less than their gap of {shown(quiet)}"
        raise site.mistake(InvalidDuration, fact, hint="longest= must be at least gap=")
    return "session", None, None, quiet, limit


def _sized(
    site: Site, every: Length | None, size: Length | None, longest: Length | None
) -> _Lengths:
    if longest is not None:
        raise site.mistake(
            InvalidOption, "has longest= without gap=", hint="only a session has a longest"
        )
    if every is None:
        fact, hint = (
            "does not say how often a window starts",
            'say every="1 hour", or gap= for sessions',
        )
        raise site.mistake(InvalidOption, fact, hint=hint)
    step = positive(site, every, "every")
    length = step if size is None else positive(site, size, "size")
    if step > length:
        fact = f"starts a window of {shown(length)} every {shown(step)}, so rows between would be in none"
        raise site.mistake(InvalidDuration, fact, hint="every= must be at most size=")
    return "tumbling" if step == length else "sliding", length, step, None, None


def positive(site: Site, value: Length, what: str) -> timedelta:
    """Return a length of time above zero."""
    with site.naming(what):
        length = duration(value)
    if not length:
        raise site.mistake(
            InvalidDuration,
            f"has a {what} of no length",
            hint='give a time above zero, like "1 hour"',
        )
    return length


def _aggregates(
    site: Site, owner: str, schema: Schema | None, by: Named, aggregates: Mapping[str, str]
) -> Named:
    if not aggregates:
        raise site.mistake(NotAnAggregate, "has no aggregates", hint='name one: flights="count(*)"')
    for name, text in aggregates.items():
        with site.naming(f'aggregate "{name}"'):
            tree = expressions.expression(text)
        _check_columns(site, owner, schema, tree)
        _check_aggregate(site, name, text, tree)
        _check_loose(site, by, name, tree)
    return tuple(aggregates.items())


def _check_columns(site: Site, owner: str, schema: Schema | None, tree: Expr) -> None:
    if schema is not None:
        for column, node in expressions.columns_in(tree):
            site.field(schema, column, owner, verb=expressions.verb(node))


def _check_aggregate(site: Site, name: str, text: str, tree: Expr) -> None:
    if expressions.distinct(text):
        fact = f'has DISTINCT in the aggregate "{name}", which Spark refuses on streams'
        hint = "use approx_count_distinct(...), or a distinct stage before the window"
        raise site.mistake(DistinctAggregate, fact, hint=hint)
    if expressions.windowed(tree):
        fact = f'has a window function in "{name}"'
        raise site.mistake(
            NotAnAggregate, fact, hint="leave OVER (...) out: the window is this stage's own"
        )
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


def grouping(
    site: Site, input_name: str, schema: Schema | None, by: By | None, key: str | None
) -> Named:
    """Return the output names and expressions that `by` stands for; the stream's key if it is None."""
    if by is None:
        by = () if key is None else key
    if isinstance(by, Mapping):
        return tuple(_grouped(site, input_name, schema, name, text) for name, text in by.items())
    names = (by,) if isinstance(by, str) else tuple(by)
    columns = [site.column(schema, name, input_name, verb="groups by") for name in names]
    return tuple((column, expressions.column(column)) for column in columns)


def _grouped(
    site: Site, input_name: str, schema: Schema | None, name: str, text: str
) -> tuple[str, str]:
    with site.naming(f'by "{name}"'):
        tree = expressions.expression(text)
    if schema is not None:
        for column, _ in expressions.columns_in(tree):
            site.field(schema, column, input_name, verb="groups by")
    if any(expressions.aggregates_in(tree)):
        fact = f'groups by the aggregate "{text}"'
        raise site.mistake(NotAnAggregate, fact, hint="group by columns and expressions of one row")
    return name, text


def output_of(site: Site, stage: Window, schema: Schema | None) -> Schema:
    """Return the columns of a window: by, edges, aggregates."""
    known = schema or Schema(())
    by = Schema(())
    hint = 'give it another name: by={"name": "expression"} or name="aggregate"'
    for name, text in stage.by:
        by = site.combined(by, Schema((Field(name, expressions.type_of(text, known)),)), hint=hint)
    aggregates = Schema(
        tuple(Field(name, expressions.type_of(text, known)) for name, text in stage.aggregates)
    )
    return site.combined(by, EDGES, aggregates, hint=hint)
