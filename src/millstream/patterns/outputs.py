"""Outputs: what the complex event contains, computed from the history of a match.

"origin, first.at as began, round(max(worse.delay)) as peak" is read into *pieces*, one for each
thing that is asked of the history (last(first.at), max(worse.delay)), which results.py computes in
columns for many matches at once; and the SQL that Spark makes of them. What stands inside an
aggregate is about one event and is a column that Spark has computed before: a *value*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.errors import DuplicateName, InvalidSql, PatternError, UnknownBlock
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.patterns.blocks import Block, all_blocks, leaves
from millstream.patterns.conditions import (
    EARLIER,
    Owner,
    Reader,
    argument_of,
    function_of,
)
from millstream.patterns.further import KNOWN, further, gathers, of_list, unfiltered
from millstream.patterns.gathered import LABEL
from millstream.patterns.pattern import Pattern
from millstream.patterns.vocabulary import Vocabulary

#: How pieces are called in the SQL of an output.
PIECE = "__piece{}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an output: `function` over value `value` of the events that some blocks took.

    `back` counts from the first or last event on: last 1 is the one before the last. `shift` moves
    on from there over all events of the match. A value of None is the event itself. A `final` one
    is about the whole match also where a row for each event comes out. One that `classifies` is
    about the name of the block that took the event. The function "row" is about the last event also
    where no block took it: that of an empty match.
    """

    function: str
    blocks: frozenset[int]
    value: int | None = None
    back: int = 0
    shift: int = 0
    final: bool = False
    classifies: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the complex event: SQL over pieces."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Outputs:
    """All columns of a complex event.

    Of `lags` each is a value that is not computed of its row: its number, that of which it is the
    earlier one, and how many rows back.
    """

    columns: tuple[Output, ...]
    pieces: tuple[Piece, ...]
    values: tuple[str, ...]
    lags: tuple[tuple[int, int, int], ...] = ()

    def sql_of(self, value: int) -> str:
        """Return the SQL of a value; of one from an earlier row, that of the value there."""
        source = next((source for target, source, _ in self.lags if target == value), value)
        return self.values[source]

    def is_row(self, output: Output) -> bool:
        """Tell whether an output is a column of the row, and no measure."""
        rows = [place for place, piece in enumerate(self.pieces) if piece.function == "row"]
        return output.sql in [PIECE.format(place) for place in rows]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Lag:
    """A column that is filled in with what `source` was `back` rows of the key before.

    Numbers are values, names are columns of rows.
    """

    target: int | str
    source: int | str
    back: int


@dataclass
class Collector:
    """Gathers pieces and values while outputs are read."""

    words: Vocabulary
    owner: Owner
    keys: Sequence[str]
    pieces: list[Piece] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    lags: list[tuple[int, int, int]] = field(default_factory=list)
    final: bool = False

    def value(self, sql: str) -> int:
        if sql not in self.values:
            self.values.append(sql)
        return self.values.index(sql)

    def earlier(self, sql: str, back: int) -> int:
        """Return the number of what another value was so many rows of the partition before."""
        lag = self.value(f"{EARLIER}({sql}, {back})"), self.value(sql), back
        if lag not in self.lags:
            self.lags.append(lag)
        return lag[0]

    def piece(self, piece: Piece) -> exp.Column:
        piece = replace(piece, final=self.final)
        if piece not in self.pieces:
            self.pieces.append(piece)
        return exp.column(PIECE.format(self.pieces.index(piece)))

    def classified(self, argument: exp.Expr) -> frozenset[int]:
        """Return the blocks that CLASSIFIER() or CLASSIFIER(u) is about; none for anything else.

        Raises:
            UnknownBlock: There is no such block.
        """
        if not isinstance(argument, exp.Anonymous) or argument.name.upper() != "CLASSIFIER":
            return frozenset()
        if not argument.expressions:
            return self.every
        name = argument.expressions[0].name
        if name.lower() not in self.words.blocks:
            fact = f'asks for "{argument.sql(dialect="spark")}", and has no variable "{name}"'
            hint = f"its variables are {', '.join(self.words.blocks)}"
            raise self.owner.mistake(UnknownBlock, fact, hint=hint)
        return self.words.blocks[name.lower()]

    @property
    def every(self) -> frozenset[int]:
        return frozenset().union(*self.words.blocks.values())


def read_outputs(text: str, words: Vocabulary, keys: Sequence[str], owner: Owner) -> Outputs:
    """Return the outputs that a SELECT list describes.

    Raises:
        InvalidSql: It is not a list of expressions.
        PatternError: It asks for a column without saying of which block.
    """
    collector = Collector(words, owner, keys)
    columns = []
    for tree in select_list(text, owner):
        name = tree.alias_or_name
        if name == "*":
            fact = f'emits "{tree.sql(dialect="spark")}"'
            raise owner.mistake(PatternError, fact, hint="name the columns, such as a.at as began")
        if not name:
            fact = f'has an output "{tree.sql(dialect="spark")}" without a name'
            raise owner.mistake(PatternError, fact, hint='name it: "count(worse.*) as n"')
        plain = tree.this if isinstance(tree, exp.Alias) else tree
        columns.append(Output(name, rewritten(plain, collector).sql(dialect="spark")))
    twice = _twice([column.name for column in columns])
    if twice is not None:
        hint = "give each a name of its own"
        raise owner.mistake(DuplicateName, f'has two outputs "{twice}"', hint=hint)
    return Outputs(tuple(columns), tuple(collector.pieces), tuple(collector.values))


def _twice(names: list[str]) -> str | None:
    lowered = [name.lower() for name in names]
    return next((name for name in names if lowered.count(name.lower()) > 1), None)


def select_list(text: str, owner: Owner) -> list[exp.Expr]:
    """Return the expressions of a SELECT list."""
    if not text.strip():
        raise owner.mistake(PatternError, "emits nothing", hint='name a column: "a.at as began"')
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect="spark")
    except SqlglotError:
        tree = None
    if not isinstance(tree, exp.Select):
        others = ["query"]
    else:
        others = [part for part in tree.args if tree.args[part]]
    if tree is None or set(others) - {"expressions"}:
        raise owner.mistake(InvalidSql, f'has outputs that are not a list of expressions: "{text}"')
    return list(tree.expressions)


def rewritten(tree: exp.Expr, collector: Collector) -> exp.Expr:
    """Return a tree with a column of a piece for everything that is asked of the history."""
    reader = Reader(collector.words, collector.owner)

    def listed(argument: exp.Expr) -> str:
        if of_match(argument) and not collector.classified(argument):
            return _each(argument, reader, collector)
        return _aggregate("list", exp.ArrayAgg(this=argument.copy()), reader, collector).name

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            return rewritten(unfiltered(node), collector)
        if (made := further(node, listed)) is not None:
            return made
        function = _function(node)
        if function is not None and of_match(node) and not collector.classified(argument_of(node)):
            return of_list(function, listed(argument_of(node)))
        if function is not None:
            return _aggregate(function, node, reader, collector)
        if gathers(node) or isinstance(node, exp.Window):
            fact = f'uses "{node.sql(dialect="spark")}", which is no aggregate of a pattern'
            raise collector.owner.mistake(PatternError, fact, hint=f"use {KNOWN}")
        if isinstance(node, exp.Column):
            return _column(node, reader, collector)
        return node

    return tree.copy().transform(change)


def _function(node: exp.Expr) -> str | None:
    if isinstance(node, exp.ArrayAgg):
        return "list"
    return function_of(node)


def _aggregate(function: str, node: exp.Expr, reader: Reader, collector: Collector) -> exp.Column:
    argument = argument_of(node)
    if blocks := collector.classified(argument):
        return collector.piece(Piece(function, blocks, classifies=True))
    blocks = reader.blocks_in(argument, node)
    if isinstance(argument, exp.Star) or isinstance(getattr(argument, "this", None), exp.Star):
        if function != "count":
            fact = f'emits "{node.sql(dialect="spark")}"'
            raise collector.owner.mistake(PatternError, fact, hint="only count() takes a *")
        return collector.piece(Piece("count", blocks))
    _check_alone(argument, node, collector)
    plain = reader.unqualified(argument)
    reader.check_columns(plain)
    reader.check_summed(function, plain, node)
    return collector.piece(Piece(function, blocks, collector.value(plain.sql(dialect="spark"))))


def _check_alone(argument: exp.Expr, node: exp.Expr, collector: Collector) -> None:
    """Refuse an aggregate of what is not about one event alone."""
    for inner in argument.walk():
        name = inner.name.upper() if isinstance(inner, exp.Anonymous) else ""
        if gathers(inner) or name in _NAVIGATIONS:
            fact = f'has "{inner.sql(dialect="spark")}" inside of "{node.sql(dialect="spark")}"'
            hint = "an aggregate is about the columns of each event, and its CLASSIFIER()"
            raise collector.owner.mistake(PatternError, fact, hint=hint)


_NAVIGATIONS: Final = ("PREV", "NEXT", "FIRST", "LAST")


def of_match(tree: exp.Expr) -> bool:
    """Tell whether an expression is about what the match makes of an event, not the event alone."""
    return any(
        isinstance(one, exp.Anonymous) and one.name.upper() in ("CLASSIFIER", "MATCH_NUMBER")
        for one in tree.walk()
    )


def _each(argument: exp.Expr, reader: Reader, collector: Collector) -> str:
    """Return SQL for the list of what an expression with CLASSIFIER() is for each event."""
    _check_alone(argument, argument, collector)
    blocks = reader.blocks_in(labelled(argument, collector), argument)
    labels = collector.piece(Piece("list", blocks, classifies=True)).name
    lists = {labels: labels}

    def change(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column | exp.Anonymous) and not _asks(node):
            return node
        if not isinstance(node, exp.Anonymous):
            plain = reader.unqualified(node)
            reader.check_columns(plain)
            value = collector.value(plain.sql(dialect="spark"))
            name = collector.piece(Piece("list", blocks, value)).name
        elif node.name.upper() == "CLASSIFIER":
            name = labels
        elif node.name.upper() == "MATCH_NUMBER":
            return collector.piece(Piece("match_number", collector.every))
        else:
            return node
        lists[name] = name
        return exp.column(name, table="z")

    said = argument.copy().transform(change).sql(dialect="spark")
    return f"transform(arrays_zip({', '.join(lists)}), z -> {said})"


def _asks(node: exp.Expr) -> bool:
    """Tell whether a node asks a query, which Spark does not do for each element of a list."""
    return isinstance(node, exp.Subquery | exp.Exists) or node.args.get("query") is not None


def labelled(argument: exp.Expr, collector: Collector) -> exp.Expr:
    """Return an expression in which CLASSIFIER(u) is a column of u."""

    def change(node: exp.Expr) -> exp.Expr:
        if not collector.classified(node):
            return node
        return exp.column(LABEL, table=node.expressions[0].name if node.expressions else None)

    return argument.copy().transform(change)


def _column(node: exp.Column, reader: Reader, collector: Collector) -> exp.Expr:
    name = node.parts[0].name
    if name.startswith("__piece"):
        return node
    if len(node.parts) > 1 and name.lower() in collector.words.blocks:
        blocks, plain = reader.column_of(node)
        reader.check_columns(plain)
        return collector.piece(Piece("last", blocks, collector.value(plain.sql(dialect="spark"))))
    if name.lower() in [key.lower() for key in collector.keys]:
        return collector.piece(
            Piece("last", collector.every, collector.value(node.sql(dialect="spark")))
        )
    schema = collector.words.schema
    if len(node.parts) > 1 and (schema is None or name not in schema):
        hint = f"its blocks are {', '.join(collector.words.blocks)}"
        fact = f'emits a column of block "{name}", which it does not have'
        raise collector.owner.mistake(UnknownBlock, fact, hint=hint)
    column = node.sql(dialect="spark")
    hint = f"say of which block: {next(iter(collector.words.blocks), 'a')}.{column}, or max({column}) over all"
    fact = f'emits column "{column}", which is not its key'
    raise collector.owner.mistake(PatternError, fact, hint=hint)


def default_outputs(
    pattern: Pattern, words: Vocabulary, keys: Sequence[str], schema: Schema
) -> Outputs:
    """Return the outputs of a pattern that names none: its key, and the events of each block."""
    collector = Collector(words, Owner("the pattern"), keys)
    columns = [Output(key, rewritten(_parsed(key), collector).sql(dialect="spark")) for key in keys]
    columns += [
        Output(block.name, _events_of(block, pattern, schema, collector))
        for block in leaves(pattern.blocks)
        if not block.negated
    ]
    return Outputs(tuple(columns), tuple(collector.pieces), tuple(collector.values))


def _parsed(column: str) -> exp.Expr:
    return expressions.parse(expressions.column(column))


def _events_of(block: Block, pattern: Pattern, schema: Schema, collector: Collector) -> str:
    blocks = collector.words.blocks[block.name.lower()]
    many = several(block, pattern)
    pieces = {
        name: collector.piece(
            Piece("list" if many else "last", blocks, collector.value(expressions.column(name)))
        )
        for name in schema.names
    }
    if many:
        zipped = ", ".join(piece.name for piece in pieces.values())
        fields = ", ".join(f"{_text(name)}, z.{piece.name}" for name, piece in pieces.items())
        return f"transform(arrays_zip({zipped}), z -> named_struct({fields}))"
    fields = ", ".join(f"{_text(name)}, {piece.name}" for name, piece in pieces.items())
    count = collector.piece(Piece("count", blocks)).name
    return f"if({count} > 0, named_struct({fields}), null)"


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def several(block: Block, pattern: Pattern) -> bool:
    """Tell whether a block may take more than one event."""
    around = [
        one
        for one in all_blocks(pattern.blocks)
        if one.loops and any(leaf is block for leaf in leaves((one,)))
    ]
    return bool(around)
