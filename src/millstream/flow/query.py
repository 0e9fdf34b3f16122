"""Queries of `sql` stages: stateless, over one stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from sqlglot import exp

from millstream.errors import DuplicateColumn, InvalidSql, StatefulSql, TimeDropped, UnknownStream
from millstream.flow import expressions
from millstream.flow.ddl import quoted
from millstream.flow.schema import Field, Schema
from millstream.flow.site import Site

_CLAUSES = {
    "group": ("GROUP BY", "window(...)"),
    "having": ("HAVING", "window(...)"),
    "distinct": ("DISTINCT", "distinct(...)"),
    "joins": ("a join", "join(...)"),
    "limit": ("LIMIT", None),
    "offset": ("OFFSET", None),
    "order": ("ORDER BY", None),
    "sort": ("SORT BY", None),
    "cluster": ("CLUSTER BY", None),
    "distribute": ("DISTRIBUTE BY", None),
    "windows": ("a window function", "window(...) or fold(...)"),
    "qualify": ("QUALIFY", "window(...) or fold(...)"),
    "pivots": ("PIVOT", "window(...)"),
}

#: What makes several rows of one, or of several, and functions that do or whose value changes.
_MORE = (
    exp.SetOperation,
    exp.Lateral,
    exp.UDTF,
    exp.With,
    exp.TableSample,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
)
_NAMES = """
    explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple
    variant_explode variant_explode_outer rand randn random randstr uniform uuid shuffle
    monotonically_increasing_id spark_partition_id input_file_name input_file_block_start
    input_file_block_length reflect java_method try_reflect
"""
_NOT_ONE = frozenset(_NAMES.split())

_CLAUSE = re.compile(r"\bmatch_recognize\s*\(", re.IGNORECASE)


def recognizes(query: str) -> bool:
    """Tell whether a query has a MATCH_RECOGNIZE clause."""
    return isinstance(query, str) and _CLAUSE.search(query) is not None


def tables_in(query: str) -> tuple[str, ...]:
    """Return what a query reads FROM, in order; it may have a MATCH_RECOGNIZE clause."""
    pairs = pairwise(expressions.words(query))
    read = (after for word, after in pairs if word.upper() == "FROM")
    return tuple(name for name in read if name not in ("(", "LATERAL"))


def chooses(query: str) -> bool:
    """Tell whether a query only chooses rows and columns: each result is of one row, the same every time."""
    tree = expressions.parse(query)
    if not isinstance(tree, exp.Select) or tree.find(*_MORE) is not None:
        return False
    inner = [one for one in tree.find_all(exp.Select) if one is not tree]
    if not all(isinstance(one.parent and one.parent.parent, exp.From) for one in inner):
        return False
    called = [
        one.name if isinstance(one, exp.Anonymous) else one.sql_name()
        for one in tree.find_all(exp.Func)
    ]
    return not any(name.lower() in _NOT_ONE for name in called)


def choice_of(query: str, input_name: str) -> tuple[list[exp.Expr], exp.Expr] | None:
    """Return what a query selects of the rows of a stream, and the condition on which it keeps them.

    The condition is TRUE if all rows stay. None if the query does anything else.
    """
    tree = expressions.parse(query)
    if not isinstance(tree, exp.Select) or not chooses(query):
        return None
    parts = {name.removesuffix("_"): part for name, part in tree.args.items() if part}
    if not parts.keys() <= {"expressions", "from", "where"} or "from" not in parts:
        return None
    table = parts["from"].this
    plain = isinstance(table, exp.Table) and {name for name, part in table.args.items() if part}
    if plain != {"this"} or table.name.lower() != input_name.lower():
        return None
    where = parts.get("where")
    return tree.expressions, exp.true() if where is None else where.this


def output_of(
    query: str, input_name: str, schema: Schema | None, time: str | None, site: Site
) -> Schema | None:
    """Return the columns of a query over the stream `input_name`, None where only Spark can tell.

    Raises:
        InvalidSql: It is not a query.
        UnknownStream: It reads something else than the stream.
        StatefulSql: It needs state.
        UnknownColumn: It uses a column that the stream does not have.
        TimeDropped: It puts something else into the time column, or leaves it out.
    """
    with site.naming("query"):
        tree = expressions.parse(query)
    if not isinstance(tree, exp.Query):
        hint = f"write a SELECT that reads {quoted(input_name)}"
        raise site.mistake(InvalidSql, "has a query that is not a SELECT", hint=hint)
    _refuse_state(tree, site)
    output = _Reader(input_name, schema, site).output(tree, {})
    if time is not None:
        _keep_time(tree, time, output, site)
    return output


def _keep_time(tree: exp.Query, time: str, output: Schema | None, site: Site) -> None:
    for item in (item for select in tree.find_all(exp.Select) for item in select.expressions):
        if item.alias.lower() == time.lower() and item.this.name.lower() != time.lower():
            fact = f'puts "{item.this.sql(dialect="spark")}" into the time column "{time}"'
            hint = f'keep "{time}" as it is and give the new value another name'
            raise site.mistake(TimeDropped, fact, hint=hint)
    if output is not None and time not in output:
        fact = f'drops the time column "{time}"'
        raise site.mistake(TimeDropped, fact, hint=f'add "{time}" to the SELECT list')


def _refuse_state(tree: exp.Query, site: Site) -> None:
    for what, instead in _stateful(tree):
        fact = f"has {what} in its query, and what needs state must be a stage of its own"
        hint = "a stream has no end that one could wait for: leave it out"
        hint = f"use the stream's {instead} instead" if instead else hint
        raise site.mistake(StatefulSql, fact, hint=hint)


def _stateful(tree: exp.Query) -> Iterator[tuple[str, str | None]]:
    for operation in tree.find_all(exp.SetOperation):
        instead = "merge(...)" if isinstance(operation, exp.Union) else "join(...)"
        yield type(operation).__name__.upper(), instead
    for select in tree.find_all(exp.Select, exp.Subquery, exp.Table):
        yield from (found for name, found in _CLAUSES.items() if select.args.get(name))
    if tree.find(exp.Window):
        yield _CLAUSES["windows"]
    if any(_correlated(node) for node in tree.find_all(exp.Exists, exp.In, exp.Subquery)):
        yield "a subquery", "join(...)"
    for function in expressions.aggregates_in(tree):
        text = function.sql(dialect="spark", normalize_functions="lower")
        yield f'the aggregate "{text}"', "window(...)"


def _correlated(node: exp.Expr) -> bool:
    """Tell whether a node is a query inside an expression, which Spark makes a join of."""
    if isinstance(node, exp.Subquery):
        return not isinstance(node.parent, exp.From)
    return isinstance(node, exp.Exists) or bool(node.args.get("query"))


class _Reader:
    """Follows a query from the stream to its outermost SELECT."""

    def __init__(self, name: str, schema: Schema | None, site: Site) -> None:
        self.name = name
        self.schema = schema
        self.site = site

    def output(self, tree: exp.Expr, named: dict[str, Schema | None]) -> Schema | None:
        if isinstance(tree, exp.Subquery):
            return self.output(tree.this, named)
        if not isinstance(tree, exp.Select):
            return None
        inner = dict(named)
        for table in tree.ctes:
            inner[table.alias.lower()] = self.output(table.this, inner)
        return self.selected(tree, inner)

    def selected(self, select: exp.Select, named: dict[str, Schema | None]) -> Schema | None:
        source = select.args.get("from_")
        if source is None:
            hint = f"add FROM {quoted(self.name)}"
            raise self.site.mistake(InvalidSql, "has a query that reads no stream", hint=hint)
        schema, table = self.read(source.this, named)
        if select.args.get("laterals"):
            # A generator's columns are Spark's to tell, so nothing can be checked here.
            return None
        if schema is not None:
            self.check(select, schema, table)
        return self.columns(select, schema, table)

    def read(
        self, table: exp.Expr, named: dict[str, Schema | None]
    ) -> tuple[Schema | None, set[str]]:
        if isinstance(table, exp.Subquery):
            return self.output(table, named), {table.alias}
        names = {table.name, table.alias_or_name}
        if table.name.lower() in named:
            return named[table.name.lower()], names
        if table.name != self.name or table.args.get("db"):
            fact = f'reads FROM "{table.name}", but its stream is "{self.name}"'
            raise self.site.mistake(UnknownStream, fact, hint=f"write FROM {quoted(self.name)}")
        return self.schema, names

    def check(self, select: exp.Select, schema: Schema, tables: set[str]) -> None:
        # Spark lets a later expression use an earlier one's alias.
        aliases = {item.alias.lower() for item in select.expressions if item.alias}
        own = [*select.expressions, select.args.get("where")]
        for part in (part for part in own if part is not None):
            for name, node in expressions.columns_in(part, tables):
                if name.lower() not in aliases:
                    self.site.field(schema, name, self.name, verb=expressions.verb(node))

    def columns(self, select: exp.Select, schema: Schema | None, tables: set[str]) -> Schema | None:
        fields: list[Field] = []
        for item in select.expressions:
            found = _fields(item, schema, tables)
            if found is None:
                return None
            fields += found
        names = [field.name.lower() for field in fields]
        twice = next((field.name for field in fields if names.count(field.name.lower()) > 1), None)
        if twice is not None:
            hint = f'give one of them another name: "... AS {twice}_2"'
            raise self.site.mistake(DuplicateColumn, f'would have two columns "{twice}"', hint=hint)
        return Schema(tuple(fields))


def _fields(item: exp.Expr, schema: Schema | None, tables: set[str]) -> list[Field] | None:
    """Return the columns of one item of a SELECT, None where only Spark can tell."""
    if isinstance(item, exp.Star):
        return _starred(item, schema)
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return _starred(item.this, schema) if item.table in tables else None
    if isinstance(item, exp.Alias):
        return [Field(item.alias, _type(item.this, schema, tables))]
    if isinstance(item, exp.Column):
        # Spark keeps the name as it is written here.
        return [Field(item.name, _type(item, schema, tables))]
    if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column):
        return [Field(item.this.name, _type(item, schema, tables))]
    # An expression without a name: Spark makes one up, and a generator may even make several.
    return None


def _type(node: exp.Expr, schema: Schema | None, tables: set[str]) -> str | None:
    if isinstance(node, exp.Column) and schema is not None and _plain(node, tables):
        found = schema.find(node.name)
        return None if found is None else found.type
    return expressions.type_in(node, schema or Schema(()))


def _plain(column: exp.Column, tables: set[str]) -> bool:
    return len(column.parts) == 1 or (len(column.parts) == 2 and column.table in tables)


def _starred(star: exp.Star, schema: Schema | None) -> list[Field] | None:
    if schema is None or star.args.get("replace") or star.args.get("rename"):
        return None
    gone = {column.name.lower() for column in star.args.get("except_") or ()}
    return [field for field in schema if field.name.lower() not in gone]
