"""Streams: what a flow is built with. A stream is the output of a stage, and knows its columns, time, key and lateness."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from millstream.errors import (
    ForeignStream,
    InvalidFunction,
    InvalidOption,
    NoTime,
    TimeDropped,
    TimesDiffer,
    UnboundedJoin,
    UnboundedState,
)
from millstream.flow import actions, joins, windows
from millstream.flow import query as queries
from millstream.flow.durations import duration
from millstream.flow.matching import Matchable
from millstream.flow.schema import Schema
from millstream.flow.site import Site, here
from millstream.flow.stages import (
    SHARDS,
    Action,
    Apply,
    Distinct,
    Fold,
    Join,
    Journal,
    Lookup,
    Match,
    Merge,
    Sink,
    Sql,
    Stage,
)
from millstream.flow.targets import Table, TargetSpec

if TYPE_CHECKING:
    from millstream.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a stage.

    `schema` is None, or has types that are None, where only Spark can tell at planning. `key` is
    the column that windows and folds group by unless they are told otherwise.
    """

    flow: Flow = field(repr=False, compare=False)
    name: str
    schema: Schema | None
    time: str | None
    key: str | None
    lateness: timedelta

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None if self.schema is None else self.schema.names

    def apply(
        self, name: str, function: Callable[..., Any], schema: str | Schema | None = None
    ) -> Stream:
        """Return what `function` makes of this stream, a DataFrame to DataFrame; it must be stateless and keep the time column.

        Args:
            name: The stage's name.
            function: Called with the DataFrame when the flow is planned.
            schema: The columns that come out, if they should be known (and checked) before Spark
                has seen them.
        """
        site = self._site(name)
        _check_callable(site, function, 1, "function(dataframe)")
        output = _schema(site, schema) if schema is not None else None
        self._check_time_kept(site, output, "its schema")
        return self._next(Apply(name, self.name, function, output, site.where), output)

    def sql(self, name: str, query: str) -> Stream:
        """Return the rows of a stateless query, which reads FROM this stream's name.

            departures.sql("late", "SELECT * FROM departures WHERE delay > 60")

        What needs state (GROUP BY, DISTINCT, joins, window functions) has stages of its own. A
        query with a MATCH_RECOGNIZE clause is one: a pattern that is matched behind the watermark,
        with a stateless query around it.
        """
        site = self._site(name)
        if queries.recognizes(query):
            return self._recognize(site, query)
        output = queries.output_of(query, self.name, self.schema, self.time, site)
        time = self.time
        if output is not None:
            site.check_columns(output)
            # The column may be spelled in another case now.
            time = next(
                (
                    name
                    for name in output.names
                    if time is not None and name.lower() == time.lower()
                ),
                None,
            )
        return self._add(Sql(name, self.name, query, site.where), output, time)

    def _recognize(self, site: Site, query: str) -> Stream:
        self._check_timed(site, "match")
        # By its name: a flow takes any pattern and knows none.
        patterns = import_module("millstream.patterns.query")
        found = patterns.recognized(query, self.name, self.schema, self.time, site)
        if found.output is not None:
            site.check_columns(found.output)
        return self._add(
            Match(site.name, self.name, found.pattern, found.by, where=site.where),
            found.output,
            found.time,
        )

    def window(
        self,
        name: str,
        *,
        every: str | timedelta | None = None,
        size: str | timedelta | None = None,
        gap: str | timedelta | None = None,
        longest: str | timedelta | None = None,
        by: str | Sequence[str] | Mapping[str, str] | None = None,
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
            longest: How long a session lasts at most, as you know; a longer one is not cut. Without
                it a switch waits for open sessions.
            by: A column, several, or {"name": "expression"}; the stream's key if it is left out, []
                for one window over all.
            aggregates: Spark SQL, by name.
        """
        lengths = {"every": every, "size": size, "gap": gap, "longest": longest}
        return self._window(name, by=by, aggregates=aggregates, **lengths)

    def _window(
        self,
        name: str,
        *,
        every: str | timedelta | None = None,
        size: str | timedelta | None = None,
        gap: str | timedelta | None = None,
        longest: str | timedelta | None = None,
        by: windows.By | None,
        aggregates: Mapping[str, str],
    ) -> Stream:
        # Apart from `window`: an aggregate may have the name of an argument, if it comes from a
        # file.
        site = self._site(name)
        self._check_timed(site, "window")
        named = windows.grouping(site, self.name, self.schema, by, self.key)
        stage = windows.window(
            site,
            self.name,
            self.schema,
            every=every,
            size=size,
            gap=gap,
            longest=longest,
            by=named,
            aggregates=aggregates,
        )
        output = windows.output_of(site, stage, self.schema)
        site.check_columns(output)
        return self._add(stage, output, windows.TIME)

    def merge(self, name: str, *others: Stream) -> Stream:
        """Return the rows of this stream and of others, which have the same columns and time."""
        site = self._site(name)
        streams = (self, *others)
        if not others:
            raise site.mistake(InvalidOption, "merges one stream", hint="name at least two")
        for other in others:
            self._check_own(site, other)
            joins.same_columns(site, (self.name, self.schema), (other.name, other.schema))
            if other.time != self.time:
                fact = f'merges "{self.name}", whose time is {_said(self.time)}, and "{other.name}", whose time is {_said(other.time)}'
                raise site.mistake(TimesDiffer, fact, hint="both need the same time column")
        key = self.key if all(stream.key == self.key for stream in streams) else None
        lateness = max(stream.lateness for stream in streams)
        stage = Merge(name, tuple(stream.name for stream in streams), site.where)
        output = joins.merged([stream.schema for stream in streams])
        return self.flow._add(stage, Stream(self.flow, name, output, self.time, key, lateness))

    def join(
        self,
        name: str,
        other: Stream | Table,
        *,
        on: str | Sequence[str],
        within: str | timedelta | None = None,
        how: str = "inner",
    ) -> Stream:
        """Return pairs of rows that are equal in the `on` columns: with a stream at most `within` apart in time, or with a table.

        Args:
            name: The stage's name.
            other: The right side.
            on: Columns that both sides have.
            within: For two streams: how far apart their rows' times may be.
            how: "inner", "left", "right", "full" or "semi"; with a table "inner" or "left".
        """
        site = self._site(name)
        if isinstance(other, Table):
            return self._lookup(site, other, on, within, how)
        self._check_own(site, other)
        kind = joins.join_kind(site, how)
        for stream in (self, other):
            stream._check_timed(site, "join of streams")
        if within is None:
            fact = f'joins the streams "{self.name}" and "{other.name}" without a bound in time'
            raise site.mistake(
                UnboundedJoin, fact, hint='say how far apart rows may be: within="1 hour"'
            )
        with site.naming("within"):
            bound = duration(within)
        columns = joins.columns_on(site, on, (self.name, self.schema), (other.name, other.schema))
        output = (
            self.schema
            if kind == "semi"
            else joins.joined(site, self.schema, other.schema, other._not_joined(self, columns))
        )
        stage = Join(name, self.name, other.name, columns, bound, kind, site.where)
        lateness = max(self.lateness, other.lateness)
        return self.flow._add(stage, Stream(self.flow, name, output, self.time, self.key, lateness))

    def distinct(self, name: str, *, by: str | Sequence[str], within: str | timedelta) -> Stream:
        """Return, of rows that are equal in the `by` columns, the first in event time; a later one counts again after `within`."""
        site = self._site(name)
        self._check_timed(site, "distinct")
        columns = self._columns(site, by, "is distinct by")
        if not columns:
            raise site.mistake(
                InvalidOption, "is distinct by no column", hint='name at least one: by="flight"'
            )
        stage = Distinct(
            name, self.name, columns, windows.positive(site, within, "within"), where=site.where
        )
        return self._next(stage, self.schema)

    def fold(
        self,
        name: str,
        step: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]],
        *,
        initial: Any,
        output: str | Schema,
        by: str | Sequence[str] | None = None,
        order: Literal["time", "arrival"] = "time",
    ) -> Stream:
        """Return what `step` makes of the rows of each key, with a state of its own: step(state, row) -> (state, row or None).

        Rows come in the order of event time, behind the watermark. With order="arrival" they come
        as they are read, which is faster and not the same at every replay.

        Args:
            name: The stage's name.
            step: A plain function; `row` is a dictionary.
            initial: The state of a key that has none yet, or a function that makes it.
            output: The columns of the rows that `step` returns, among them the time column.
            by: The columns that make a key; the stream's key if it is left out, [] for one state
                over all.
            order: "time" or "arrival".
        """
        site = self._site(name)
        _check_callable(site, step, 2, "step(state, row)")
        if order not in ("time", "arrival"):
            raise site.mistake(
                InvalidOption, f'folds in the order "{order}"', hint='order= is "time" or "arrival"'
            )
        if order == "time":
            self._check_timed(site, "fold in the order of time", hint='or say order="arrival"')
        columns = self._columns(site, (self.key or ()) if by is None else by, "folds by")
        schema = _schema(site, output)
        self._check_time_kept(site, schema, "its output")
        stage = Fold(name, self.name, columns, step, initial, schema, order, where=site.where)
        return self._next(stage, schema)

    def match(
        self,
        name: str,
        pattern: Matchable,
        *,
        by: str | Sequence[str] | None = None,
        emit: str | None = None,
        strict: bool = False,
        shards: int = SHARDS,
    ) -> Stream:
        """Return the matches of a pattern in this stream, in the order of event time, behind the watermark.

            worse = ms.Pattern().begin("a", "delay > 60").followed_by("b", "delay > a.delay")
            departures.match("slow", worse.within("2 hours"), emit="origin, a.at as began, b.delay")

        The time of a match is the moment at which it is certain: its last event, or, where
        something must not come, when the time is up.

        Args:
            name: The stage's name.
            pattern: A Pattern, or a Phenomenon of several.
            by: The columns that make a key; the pattern's own key, else the stream's, if it is left
                out, [] for one sequence over all.
            emit: The columns of a match; the pattern's own, or its key and the events of each
                block, if it is left out.
            strict: Refuse a pattern whose runs may live for ever; without it the plan warns of it.
            shards: Over how many parts keys are spread, the most that work at once; another number
                is another stage.
        """
        site = self._site(name)
        self._check_timed(site, "match")
        if shards < 1:
            raise site.mistake(
                InvalidOption, f"spreads its keys over {shards} shards", hint="give at least one"
            )
        if not isinstance(pattern, Matchable):
            fact = f"is given {type(pattern).__name__} where a pattern should be"
            raise site.mistake(
                InvalidOption,
                fact,
                hint='say what to look for: ms.Pattern().begin("a", "x > 1")...',
            )
        if strict and pattern.warnings:
            fact = f"would keep what nothing limits: {pattern.warnings[0]}"
            raise site.mistake(UnboundedState, fact, hint='say within("1 hour")')
        given = pattern.own_keys if by is None else by
        columns = self._columns(site, (self.key or ()) if given is None else given, "matches by")
        assert self.time is not None, "checked above"
        output = None
        if self.schema is not None:
            output = pattern.outcome(self.schema, time=self.time, key=columns, emit=emit)
            site.check_columns(output)
        return self._next(
            Match(name, self.name, pattern, columns, emit, shards, where=site.where), output
        )

    def action(
        self,
        name: str,
        argv: Sequence[str],
        *,
        output: str | Schema,
        input: str | Sequence[str] | None = None,
        contract: str = "one",
        format: str = "json",
        env: Mapping[str, str] | None = None,
        files: Sequence[str] = (),
        time_limit: str | timedelta = "1 minute",
        attempts: int = 3,
        memory_bytes: int | None = None,
        cpu_seconds: int | None = None,
        user: str | None = None,
        conn_whitelist: Sequence[str] | None = None,
    ) -> Stream:
        """Return this stream's rows with the columns that a program answers to each of them.

            scored = orders.action("score", ["./score", "--fast"], output="score double")

        The program reads and writes frames (see sdk/). It is kept between batches; it must be
        idempotent, as a batch may be run again, but its answers are published once. A row that it
        fails at time and again becomes a dead letter, alone.

        Args:
            name: The stage's name.
            argv: The program and its arguments; no shell reads them. `./score` counts from the
                flow's file and is shipped; `score@2` and `score@latest` are kept by the engine that
                the flow is deployed on.
            output: The columns of an answer; one that the stream has already is replaced.
            input: The columns that the program gets; all of them if it is left out.
            contract: "one" answer for each row, or none; or "stream": several, closed by an empty
                one.
            format: "json", "msgpack", "raw" (one column of bytes or text, as it is), or "arrow" (a
                whole batch a frame).
            env: The program's environment; it has no other.
            files: More files to ship; they are in the program's working directory.
            time_limit: How long a batch may take.
            attempts: How often a row is tried before it is a dead letter.
            memory_bytes: The address space that the program may use.
            cpu_seconds: The CPU time that it may use.
            user: Whom to run it as.
            conn_whitelist: The addresses (IP:port, TCP) that it may connect to, and no other; []
                for none at all. Where the system does not permit to close a network, the program is
                not started.
        """
        site = self._site(name)
        checked = actions.checked(site, argv, contract, format, attempts)
        schema = _schema(site, output)
        columns = self._action_columns(site, input)
        actions.check_format(site, checked, columns, self.schema, schema)
        if self.time is not None and self.time in schema:
            fact = (
                f'answers with the column "{self.time}", which is the time of stream "{self.name}"'
            )
            raise site.mistake(
                TimesDiffer, fact, hint="a row keeps its time: give the answer's another name"
            )
        stage = Action(
            name,
            self.name,
            checked.argv,
            columns,
            schema,
            checked.contract,
            checked.format,
            tuple((env or {}).items()),
            tuple(files),
            windows.positive(site, time_limit, "time_limit"),
            attempts,
            memory_bytes,
            cpu_seconds,
            user,
            actions.check_whitelist(site, conn_whitelist),
            site.where,
        )
        added = (
            None if self.schema is None else Schema((*self.schema.without(schema.names), *schema))
        )
        if added is not None:
            site.check_columns(added)
        return self._next(stage, added)

    def _action_columns(self, site: Site, given: str | Sequence[str] | None) -> tuple[str, ...]:
        if given is None:
            return ()
        names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
        return self._columns(site, names, "gives its program")

    def key_by(self, column: str | None) -> Stream:
        """Return the same stream with another key (None: without); windows, folds and journals below take it as their default."""
        site = Site(self.flow.name, self.name, "stream", here())
        return replace(
            self,
            key=None
            if column is None
            else site.column(self.schema, column, self.name, verb="is keyed by"),
        )

    def journal(
        self,
        name: str,
        *,
        partitions: int = 1,
        key: str | None = None,
        keep_for: str | timedelta | None = None,
        keep_bytes: int | None = None,
    ) -> Stream:
        """Return this stream as a journal of its own, which cuts the flow into groups: each runs and keeps its state by itself.

        Args:
            name: The journal's name.
            partitions: In how many parts it is written.
            key: The column by which rows find their partition; the stream's key if it is left out.
            keep_for: Keep what all have read for so long.
            keep_bytes: Keep so much of what all have read.
        """
        site = replace(self._site(name), kind="journal")
        if partitions < 1:
            raise site.mistake(
                InvalidOption, f"has {partitions} partitions", hint="give at least one"
            )
        if keep_bytes is not None and keep_bytes < 0:
            raise site.mistake(
                InvalidOption, f"keeps {keep_bytes} bytes", hint="give a number of bytes"
            )
        column = (
            self.key
            if key is None
            else site.column(self.schema, key, self.name, verb="is keyed by")
        )
        with site.naming("keep_for"):
            kept = None if keep_for is None else duration(keep_for)
        stage = Journal(name, self.name, partitions, column, kept, keep_bytes, site.where)
        # No row of a journal that a group writes is late.
        return self.flow._add(stage, replace(self, name=name, key=column, lateness=timedelta(0)))

    def sink(self, name: str, target: TargetSpec) -> None:
        """Send this stream's rows to a target. Sinks of one stream share a group, named after the first of them."""
        site = Site(self.flow.name, name, "sink", here())
        site.check_name()
        if not isinstance(target, TargetSpec):
            fact = f"has {type(target).__name__} as its target"
            raise site.mistake(
                InvalidOption,
                fact,
                hint='say where to: ms.parquet("out/results"), ms.console(), ...',
            )
        self.flow._add_sink(Sink(name, self.name, target, site.where))

    def _lookup(
        self, site: Site, table: Table, on: str | Sequence[str], within: object, how: str
    ) -> Stream:
        if within is not None:
            raise site.mistake(
                InvalidOption, "has within= for a table", hint="a table has no time: leave it out"
            )
        kind = joins.lookup_kind(site, how)
        columns = joins.columns_on(site, on, (self.name, self.schema), (table.path, table.schema))
        output = joins.joined(site, self.schema, table.schema, columns)
        return self._next(Lookup(site.name, self.name, table, columns, kind, site.where), output)

    def _site(self, name: str) -> Site:
        site = Site(self.flow.name, name, "stage", here())
        site.check_name()
        return site

    def _columns(self, site: Site, by: str | Sequence[str], verb: str) -> tuple[str, ...]:
        names = (by,) if isinstance(by, str) else tuple(by)
        return tuple(site.column(self.schema, name, self.name, verb=verb) for name in names)

    def _not_joined(self, left: Stream, on: Sequence[str]) -> list[str]:
        """Return the columns of this right side that a join leaves out."""
        return [*on, *([self.time] if self.time is not None and self.time == left.time else [])]

    def _check_own(self, site: Site, other: object) -> None:
        if not isinstance(other, Stream):
            fact = f"is given {type(other).__name__} where a stream should be"
            raise site.mistake(
                InvalidOption, fact, hint="pass what source(), window() and the others return"
            )
        if other.flow is not self.flow:
            fact = f'reads stream "{other.name}" of another flow, "{other.flow.name}"'
            raise site.mistake(ForeignStream, fact, hint="build both streams on one Flow")

    def _check_timed(self, site: Site, what: str, hint: str = "") -> None:
        if self.time is None:
            said = 'give its source a time column: time="at"' + (f", {hint}" if hint else "")
            raise site.mistake(
                NoTime, f'is a {what}, and stream "{self.name}" has no time', hint=said
            )

    def _check_time_kept(self, site: Site, output: Schema | None, what: str) -> None:
        if output is not None:
            site.check_columns(output)
        if self.time is not None and output is not None and self.time not in output:
            hint = f'add "{self.time} timestamp" to {what}, and to the rows'
            raise site.mistake(TimeDropped, f'drops the time column "{self.time}"', hint=hint)

    def _next(self, stage: Stage, output: Schema | None) -> Stream:
        return self._add(stage, output, self.time)

    def _add(self, stage: Stage, output: Schema | None, time: str | None) -> Stream:
        kept = self.key if output is None or (self.key is not None and self.key in output) else None
        return self.flow._add(
            stage, Stream(self.flow, stage.name, output, time, kept, self.lateness)
        )


def _said(time: str | None) -> str:
    return "not known" if time is None else f'"{time}"'


def _schema(site: Site, schema: str | Schema) -> Schema:
    with site.naming("schema"):
        return schema if isinstance(schema, Schema) else Schema.parse(schema)


def _check_callable(site: Site, function: object, parameters: int, shape: str) -> None:
    if not callable(function) or isinstance(function, type):
        fact = f"is given {type(function).__name__} where a function should be"
        raise site.mistake(InvalidFunction, fact, hint=f"it is called as {shape}")
    try:
        inspect.signature(function).bind(*[None] * parameters)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        fact = f'is given the function "{name}", which cannot be called as {shape}'
        raise site.mistake(
            InvalidFunction, fact, hint=f"it takes {parameters} parameter{'s'[: parameters > 1]}"
        ) from None
    except ValueError:
        return  # a function of C that does not tell its parameters
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        name = cast("Any", function).__name__
        raise site.mistake(
            InvalidFunction,
            f'is given "{name}", which does not return its result',
            hint="use a plain function",
        )
