"""A query with a MATCH_RECOGNIZE clause as a stage of a flow.

    SELECT symbol, bottom, at
    FROM trades MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at ...) WHERE bottom < 10

The clause is matched like any pattern; what stands around it is a stateless query over the matches.
With ONE ROW PER MATCH the time of the result is the stream's time column: the moment at which a
match is certain. With ALL ROWS PER MATCH that column is the row's own, as SQL says, and the moment
is in `match_time`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from sqlglot import exp

from millstream.errors import DuplicateName, TimesDiffer, UnknownStream, UnsupportedSql, Where
from millstream.flow import durations
from millstream.flow import query as queries
from millstream.flow.ddl import quoted
from millstream.flow.schema import Schema
from millstream.flow.site import Site, here
from millstream.patterns.clause_text import MatchRecognize
from millstream.patterns.match_recognize import Recognition, read
from millstream.patterns.recipe import Recipe, output_schema, recognition_recipe

#: The time of the rows that ALL ROWS PER MATCH emits.
MATCH_TIME: Final = "match_time"


@dataclass(frozen=True, slots=True)
class Query:
    """A MATCH_RECOGNIZE clause with the query around it."""

    #: In SQL a match may hold up others, so earlier runs have an effect on later ones.
    independent: ClassVar[bool] = False
    predicates: ClassVar[tuple[()]] = ()

    sql: str
    table: str
    #: The columns of PARTITION BY.
    own_keys: tuple[str, ...]
    order: str
    reach: timedelta | None = None
    warnings: tuple[str, ...] = ()
    all_rows: bool = False
    where: Where | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, sql: str) -> Query:
        """Return the query that a text is.

        Raises:
            InvalidSql: It is not a query with one MATCH_RECOGNIZE clause.
            UnsupportedSql: It asks for what a stream cannot do.
        """
        found = read(sql)[1]
        if found.computed:
            fact = f'has "{found.computed[0][1]}" in PARTITION BY, which is not a column'
            msg = f"the MATCH_RECOGNIZE clause {fact}"
            raise UnsupportedSql(msg, hint="compute it in a stage before", where=here())
        within, warnings = found.automaton.within, found.automaton.warnings
        span = None if within is None else timedelta(microseconds=within)
        clause = found.table, found.partition, found.order
        return cls(sql, *clause, span, warnings, found.all_rows, here())

    def recipe(self, schema: Schema, time: str) -> Recipe:
        """Return the recipe of the clause over events with these columns."""
        made = recognition_recipe(read(self.sql, schema)[1], schema, time)
        made = replace(made, certain=self.certain(time)) if self.all_rows else made
        if any(name.lower() == made.certain.lower() for name in made.plans[0].outputs.names):
            msg = f'the MATCH_RECOGNIZE clause emits "{made.certain}", which is the moment at which a match is certain'
            hint = f"name it otherwise: ... AS own_{made.certain}"
            raise DuplicateName(msg, hint=hint, where=self.where)
        return made

    def certain(self, time: str) -> str:
        """Return the column that tells when a match is certain, given the stream's time column."""
        return MATCH_TIME if self.all_rows else time

    def around(self, table: str) -> str:
        """Return the query that reads a table of the clause's rows in place of the clause."""
        tree, found = read(self.sql)
        return reading(tree, found, table)

    # What a flow asks (flow/matching.py); the clause itself states its key and its columns.

    def outcome(self, schema: Schema, *, time: str, key: Sequence[str], emit: str | None) -> Schema:  # noqa: ARG002
        """Return the columns of the clause's rows in events with these columns."""
        return output_schema(self.recipe(schema, time), schema)

    def described(self) -> dict[str, Any]:
        """Return the query as data that JSON can hold, in its normal form."""
        tree = read(self.sql)[0]
        text = tree.sql(dialect=MatchRecognize, comments=False, normalize_functions="lower")
        facts = {"query": " ".join(text.split()), "subsets": _subsets(self.sql)}
        span = None if self.reach is None else durations.format(self.reach)
        return {name: fact for name, fact in {**facts, "within": span}.items() if fact}


def _subsets(sql: str) -> dict[str, list[int]]:
    """Return the unions of variables, which are not part of the tree."""
    automaton = read(sql)[1].automaton
    own = {name.lower() for name in automaton.blocks}
    return {name: sorted(blocks) for name, blocks in automaton.names if name not in own}


def reading(tree: exp.Expr, found: Recognition, table: str) -> str:
    """Return the query of a tree that reads a table in place of the clause and its own table."""
    clause = tree.find(exp.MatchRecognize)
    assert clause is not None
    select = clause.parent
    assert isinstance(select, exp.Select)
    alias = found.alias or found.table.rsplit(".", maxsplit=1)[-1].strip("`")
    read_from = exp.to_table(quoted(table), dialect="spark").as_(alias, quoted=True)
    select.set("from_", exp.From(this=read_from))
    select.set("match", None)
    return tree.sql(dialect="spark")


@dataclass(frozen=True, slots=True)
class Recognized:
    """A query that fits a stream: its pattern, key, columns and time."""

    pattern: Query
    by: tuple[str, ...]
    output: Schema | None
    time: str


def recognized(query: str, stream: str, schema: Schema | None, time: str, site: Site) -> Recognized:
    """Return a MATCH_RECOGNIZE query over a stream, checked against its columns and time.

    Raises:
        FlowError: It does not fit the stream, or asks for what a stream cannot do.
    """
    pattern = Query.of(query)
    if pattern.table.strip("`") != stream:
        fact = f'matches rows FROM "{pattern.table}", but its stream is "{stream}"'
        hint = f"write FROM {quoted(stream)} MATCH_RECOGNIZE (...)"
        raise site.mistake(UnknownStream, fact, hint=hint)
    if pattern.order.lower() != time.lower():
        fact = f'has ORDER BY "{pattern.order}" in its MATCH_RECOGNIZE, but the time of stream "{stream}" is "{time}"'
        hint = f"write ORDER BY {quoted(time)}: a stream is in the order of its time"
        raise site.mistake(TimesDiffer, fact, hint=hint)
    by = tuple(
        site.column(schema, name, stream, verb="has PARTITION BY") for name in pattern.own_keys
    )
    certain = pattern.certain(time)
    inner = None if schema is None else pattern.outcome(schema, time=time, key=by, emit=None)
    output = queries.output_of(pattern.around(stream), stream, inner, certain, site)
    known = () if output is None else output.names
    spelled = next((name for name in known if name.lower() == certain.lower()), certain)
    return Recognized(pattern, by, output, spelled)
