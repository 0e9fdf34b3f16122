"""FIRST, LAST, PREV, NEXT, CLASSIFIER and MATCH_NUMBER, in DEFINE and in MEASURES.

PREV in DEFINE is a value that is filled in from the rows before. In MEASURES each of these is a
piece of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from sqlglot import exp

from millstream.errors import FlowError, UnsupportedSql
from millstream.patterns.clause_text import FINAL, RUNNING
from millstream.patterns.conditions import EARLIER, LAST_BACK, Reader
from millstream.patterns.further import gathers
from millstream.patterns.gathered import LABEL, NUMBER, PLACE
from millstream.patterns.literals import literal
from millstream.patterns.outputs import Collector, Piece, labelled, of_match, rewritten

_ENDS: Final = ("FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE")
_AROUND: Final = ("PREV", "NEXT")


class Clause(Protocol):
    """What is asked of the clause that a condition or a measure stands in."""

    @property
    def batch(self) -> bool:
        """Whether all rows are there."""

    @property
    def order_column(self) -> str:
        """The column that the rows are ordered by."""

    def mistake(self, error: type[FlowError], fact: str, hint: str) -> FlowError: ...
    def check_next(self, piece: Piece, collector: Collector) -> None: ...


def called(node: exp.Expr) -> str:
    """Return the name of a function that sqlglot does not know, in upper case."""
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def _text(node: exp.Expr) -> str:
    return node.sql(dialect="spark")


def _offset(node: exp.Expr, clause: Clause) -> int:
    name = called(node)
    default = 1 if name in _AROUND else 0
    if len(node.expressions) < 2:
        return default
    found = literal(node.expressions[1])
    if found is None or not isinstance(found.of, int) or found.of < 0:
        fact = f"has an offset in {name} that is not a whole number"
        raise clause.mistake(UnsupportedSql, fact, "write PREV(x, 2)")
    return found.of


def _inside(node: exp.Expr, clause: Clause) -> exp.Expr:
    """Return what PREV or NEXT is about: FIRST or LAST of something, or a plain expression.

    Raises:
        UnsupportedSql: It is about another PREV, NEXT or an aggregate, as SQL forbids.
    """
    inner: exp.Expr = node.expressions[0]
    while called(inner) == RUNNING.upper():
        inner = inner.expressions[0]
    around = [one for one in inner.walk() if called(one) in _AROUND or gathers(one)]
    if around:
        fact = f'has "{_text(around[0])}" inside of {called(node)}'
        raise clause.mistake(UnsupportedSql, fact, "write PREV(x, 2) for the row two before")
    return inner


# DEFINE


class Lags:
    """Turns PREV into values: what a column was so many rows of the partition before.

    NEXT is the same with a negative number of rows.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, int, str]] = []

    def rewritten(self, tree: exp.Expr, clause: Clause, own: Mapping[str, str]) -> exp.Expr:
        """Return a condition in which PREV is a column, and FIRST and LAST are ours.

        `own` are the variable and the unions that it belongs to, in lower case, with the
        variable's name: CLASSIFIER() of the row that is asked, in the condition of a variable.
        """

        def change(node: exp.Expr) -> exp.Expr:
            name = called(node)
            if name == "NEXT" and not clause.batch:
                hint = "a stream cannot look at rows that have not come: say it of the row after, with PREV"
                raise clause.mistake(UnsupportedSql, "uses NEXT in DEFINE", hint)
            if name == FINAL.upper():
                hint = "a condition sees the rows up to its own: leave FINAL out"
                raise clause.mistake(UnsupportedSql, "uses FINAL in DEFINE", hint)
            if name == RUNNING.upper():
                return self.rewritten(node.expressions[0], clause, own)
            if name in _AROUND:
                return self._prev(node, clause)
            if name in _ENDS:
                return _end(node, node.expressions[0], clause)
            if gathers(node):
                return _of_each(node, clause)
            if name == "CLASSIFIER" and (called_here := _classified(node, own)):
                return exp.Literal.string(called_here)
            if name == "CLASSIFIER":
                return _placed(node, "last", 0, 0, clause)
            return _of_each(node, clause) if name == "MATCH_NUMBER" else node

        return tree.copy().transform(change)

    def _prev(self, node: exp.Expr, clause: Clause) -> exp.Expr:
        inner, offset = _inside(node, clause), _offset(node, clause)
        offset = -offset if called(node) == "NEXT" else offset
        end, back, argument = "last", 0, inner
        if called(inner) in _ENDS:
            end = "first" if called(inner).startswith("FIRST") else "last"
            back, argument = _offset(inner, clause), inner.expressions[0]
        if of_match(argument):
            return _placed(argument, end, back, -offset, clause)
        if called(inner) in _ENDS:
            return _end(inner, self._hidden(inner.expressions[0], offset), clause)
        return self._hidden(inner, offset)

    def _hidden(self, column: exp.Expr, offset: int) -> exp.Expr:
        """Return a column that no table has: the value is filled in from the rows before."""
        tables = {part.table for part in column.find_all(exp.Column) if part.table}
        plain = column.copy().transform(
            lambda one: exp.column(one.name) if isinstance(one, exp.Column) else one
        )
        hidden = f"{EARLIER}{len(self.found)}"
        self.found.append((_text(plain), offset, hidden))
        return exp.column(hidden, table=next(iter(tables), None))

    def of(self, values: tuple[str, ...], sources: list[int]) -> tuple[tuple[int, int, int], ...]:
        """Return for each earlier value its number, that of its source, and how many rows back."""
        known = zip(self.found, sources, strict=True)
        return tuple(
            (values.index(name), source, offset)
            for (_, offset, name), source in known
            if name in values
        )


def _classified(node: exp.Expr, own: Mapping[str, str]) -> str | None:
    """Return what CLASSIFIER() or CLASSIFIER(x) is for the row, if x is about the row itself."""
    if not node.expressions:
        return next(iter(own.values()), None)
    return own.get(node.expressions[0].name.lower())


def _of_each(tree: exp.Expr, clause: Clause) -> exp.Expr:
    """Return an expression of each row with our words for its label, and the match's number."""

    def change(node: exp.Expr) -> exp.Expr:
        name = called(node)
        if name in (*_AROUND, *_ENDS):
            fact = f'has "{_text(node)}" inside of "{_text(tree)}"'
            raise clause.mistake(
                UnsupportedSql, fact, "an aggregate is about the columns of each row"
            )
        if name == "CLASSIFIER":
            table = node.expressions[0].name if node.expressions else None
            return exp.column(LABEL, table=table)
        if name == "MATCH_NUMBER" and not clause.batch:
            hint = "a stream looks for many matches at once: use it in MEASURES"
            raise clause.mistake(UnsupportedSql, "uses MATCH_NUMBER in DEFINE", hint)
        return exp.Anonymous(this=NUMBER) if name == "MATCH_NUMBER" else node

    return tree.copy().transform(change)


def _placed(argument: exp.Expr, end: str, back: int, shift: int, clause: Clause) -> exp.Expr:
    """Return what an expression is at one row of the match, counted from the first or the last."""
    numbers = [exp.Literal.number(back), exp.Literal.string(str(shift))]
    parts = [_of_each(argument, clause), exp.Literal.string(end), *numbers]
    return exp.Anonymous(this=PLACE, expressions=parts)


def _end(node: exp.Expr, argument: exp.Expr, clause: Clause) -> exp.Expr:
    """Return FIRST or LAST, perhaps with an offset, of an argument."""
    offset, last = _offset(node, clause), called(node).startswith("LAST")
    if (offset and not last) or of_match(argument):
        return _placed(argument, "last" if last else "first", offset, 0, clause)
    if offset:
        return exp.Anonymous(
            this=LAST_BACK, expressions=[argument.copy(), exp.Literal.number(offset)]
        )
    return (exp.Last if last else exp.First)(this=argument.copy())


def own_row(tree: exp.Expr, names: frozenset[str]) -> exp.Expr:
    """Return the condition of a variable in which its own columns are those of the row.

    `names` are the variable and the unions that it belongs to. The last row of these, and of all
    variables together, is the row that the condition is asked of: outside of aggregates, A.v and
    LAST(A.v) in the condition of A are v, and so is LAST(v).
    """

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Last) and all(
            column.table.lower() in ("", *names) for column in node.find_all(exp.Column)
        ):
            return plain(node.this)
        if isinstance(node, exp.Column) and len(node.parts) == 2 and node.table.lower() in names:
            return exp.column(node.this.copy())
        return node

    def plain(part: exp.Expr) -> exp.Expr:
        return outside_aggregates(part.copy(), change)

    return plain(tree)


# MEASURES


def navigated(tree: exp.Expr, collector: Collector, clause: Clause) -> exp.Expr:
    """Return a measure with pieces for everything that is not an aggregate."""

    def change(node: exp.Expr) -> exp.Expr:
        name = called(node)
        if name in (RUNNING.upper(), FINAL.upper()):
            return _framed(node, collector, clause)
        if name == "MATCH_NUMBER":
            return collector.piece(Piece("match_number", collector.every))
        if name == "MATCH_ROWTIME":
            _check_timed(clause)
            return _one(exp.column(clause.order_column), "last", 0, collector)
        if name == "CLASSIFIER":
            return _one(node, "last", 0, collector)
        if name in (*_ENDS, *_AROUND):
            return _navigation(node, name, collector, clause)
        if isinstance(node, exp.Column) and len(node.parts) == 1 and not _stays(node, collector):
            # A column without a variable is that of the last row.
            return _one(node, "last", 0, collector)
        return node

    return outside_aggregates(tree.copy(), change)


def _check_timed(clause: Clause) -> None:
    if not clause.order_column:
        fact = "uses MATCH_ROWTIME, and does not ORDER BY a time first"
        raise clause.mistake(UnsupportedSql, fact, "ORDER BY the time column first, rising")


def framed(tree: exp.Expr, frame: str) -> exp.Expr:
    """Return a measure whose first function has the frame that the measure begins with."""
    changed = tree.copy()
    first = _leftmost(changed)
    replaced = exp.Anonymous(this=RUNNING if frame == "RUNNING" else FINAL)
    root = first is changed
    if not root:
        first.replace(replaced)
    replaced.set("expressions", [first])
    return replaced if root else changed


def _leftmost(tree: exp.Expr) -> exp.Expr:
    """Return the function or column that the text of an expression begins with."""
    if isinstance(tree, exp.Binary | exp.Paren | exp.Between | exp.In):
        return _leftmost(tree.this)
    return tree


def _framed(node: exp.Expr, collector: Collector, clause: Clause) -> exp.Expr:
    """Return what RUNNING or FINAL stands before, computed so."""
    before, collector.final = collector.final, called(node) == FINAL.upper()
    try:
        return rewritten(navigated(node.expressions[0], collector, clause), collector)
    finally:
        collector.final = before


def _stays(node: exp.Column, collector: Collector) -> bool:
    return node.name.startswith("__piece") or node.name.lower() in [
        key.lower() for key in collector.keys
    ]


def outside_aggregates(tree: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Change the nodes of a tree that are not inside an aggregate."""
    changed: exp.Expr = change(tree)
    if changed is not tree or gathers(tree):
        return changed
    for key, value in list(tree.args.items()):
        if isinstance(value, exp.Expr):
            tree.set(key, outside_aggregates(value, change))
        elif isinstance(value, list):
            tree.set(
                key,
                [
                    outside_aggregates(one, change) if isinstance(one, exp.Expr) else one
                    for one in value
                ],
            )
    return tree


def _navigation(node: exp.Expr, name: str, collector: Collector, clause: Clause) -> exp.Expr:
    """Return the piece of FIRST(x, n) or LAST(x, n), perhaps inside of PREV(x, n) or NEXT(x, n)."""
    offset = _offset(node, clause)
    if name in _ENDS:
        function = "first" if name.startswith("FIRST") else "last"
        return _one(node.expressions[0], function, offset, collector)
    argument, function, back = _inside(node, clause), "last", 0
    if called(argument) == FINAL.upper():
        unwrapped = exp.Anonymous(this=name, expressions=[argument.expressions[0]])
        unwrapped.append("expressions", exp.Literal.number(offset))
        return _framed(exp.Anonymous(this=FINAL, expressions=[unwrapped]), collector, clause)
    if called(argument) in _ENDS:
        function = "first" if called(argument).startswith("FIRST") else "last"
        argument, back = argument.expressions[0], _offset(argument, clause)
    if name == "PREV" and of_match(argument):
        return _one(argument, function, back, collector, shift=-offset)
    if name == "PREV" or (clause.batch and not of_match(argument)):
        earlier = offset if name == "PREV" else -offset
        return _one(argument, function, back, collector, earlier=earlier)
    blocks = _blocks(argument, collector)
    clause.check_next(Piece(function, blocks, back=back, shift=offset), collector)
    return _one(argument, function, back, collector, shift=offset)


def _blocks(argument: exp.Expr, collector: Collector) -> frozenset[int]:
    reader = Reader(collector.words, collector.owner)
    return collector.classified(argument) or reader.blocks_in(argument, argument)


def _apart(
    argument: exp.Expr, function: str, back: int, collector: Collector, moved: tuple[int, int]
) -> exp.Expr:
    """Return what an expression with CLASSIFIER() is at a row: made of what its parts are there."""
    Reader(collector.words, collector.owner).blocks_in(labelled(argument, collector), argument)

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) or collector.classified(node):
            return _one(node, function, back, collector, *moved)
        if called(node) == "MATCH_NUMBER":
            return collector.piece(Piece("match_number", collector.every))
        return node

    return argument.copy().transform(change)


def _one(
    argument: exp.Expr,
    function: str,
    back: int,
    collector: Collector,
    shift: int = 0,
    earlier: int = 0,
) -> exp.Expr:
    """Return the piece of a row, `shift` rows on in the match or `earlier` in the partition."""
    if of_match(argument) and not collector.classified(argument):
        return _apart(argument, function, back, collector, (shift, earlier))
    blocks = _blocks(argument, collector)
    if collector.classified(argument):
        return collector.piece(Piece(function, blocks, None, back, shift, classifies=True))
    reader = Reader(collector.words, collector.owner)
    plain = reader.unqualified(argument)
    reader.check_columns(plain)
    sql = _text(plain)
    value = collector.earlier(sql, earlier) if earlier else collector.value(sql)
    return collector.piece(Piece(function, blocks, value, back, shift))
