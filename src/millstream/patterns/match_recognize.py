"""SQL's MATCH_RECOGNIZE clause, read into the same automaton as our patterns.

sqlglot reads the query in its Spark dialect, to which the clause is added; WITHIN (Flink's) and
SUBSET, which it does not know, are cut out of the text first. The rules are those of SQL:2016: rows
of a partition follow each other directly, of the matches that begin at a row the preferred one
counts (a greedy quantifier prefers more, a reluctant one less, an alternation its first part), and
conditions see the row as taken already. What a stream cannot do is refused, with the reason.

PREV looks at the rows of the partition, so the last rows of every key are remembered. NEXT in
MEASURES is allowed where the row that it looks at is always one of the match: those behind it may
be long in coming.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from millstream.errors import FlowError, InvalidSql, UnknownBlock, UnsupportedSql
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.flow.site import here
from millstream.patterns.automaton import Automaton
from millstream.patterns.blocks import Block, Condition, leaves
from millstream.patterns.checks import check, endless
from millstream.patterns.compile import Build
from millstream.patterns.conditions import EARLIER, LAST_BACK, Owner, Reader
from millstream.patterns.literals import literal
from millstream.patterns.outputs import Collector, Output, Outputs, Piece, rewritten
from millstream.patterns.parts import Parts
from millstream.patterns.pattern import Pattern, Skip
from millstream.patterns.row_pattern import least_rows, read_row_pattern, rows_behind

_SKIPS = {"PAST LAST ROW": Skip("past_last"), "TO NEXT ROW": Skip("next")}


class MatchRecognize(Spark):
    """Spark SQL with the MATCH_RECOGNIZE clause, in which FIRST and LAST may have an offset."""

    class Tokenizer(Spark.Tokenizer):
        """Knows the word that begins the clause."""

        KEYWORDS = {**Spark.Tokenizer.KEYWORDS, "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE}  # noqa: RUF012

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        """Leaves FIRST and LAST alone: Spark's second argument means something else."""

        FUNCTIONS = {  # noqa: RUF012
            name: build
            for name, build in Spark.Parser.FUNCTIONS.items()
            if name not in ("FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE")
        }


@dataclass(frozen=True, slots=True)
class Recognition:
    """A MATCH_RECOGNIZE clause: what it reads, its automaton, and what it emits.

    `outputs` are the measures; with `all_rows` they are computed for every row of a match, from
    what came up to it unless they are final.
    """

    table: str
    partition: tuple[str, ...]
    order: str
    automaton: Automaton
    outputs: Outputs
    all_rows: bool
    alias: str | None = None


def read(sql: str, schema: Schema | None = None) -> tuple[exp.Expr, Recognition]:
    """Return the tree of a query with the clause still in it, and what the clause says.

    Raises:
        InvalidSql: It is not a query with one MATCH_RECOGNIZE clause.
        UnsupportedSql: It asks for what a stream cannot do, or we do not.
    """
    text, span, subsets = _cut_out(sql)
    try:
        tree = sqlglot.parse_one(text, dialect=MatchRecognize)
    except expressions.UNREADABLE as error:
        said = f"the query is not SQL: {expressions.reason(error)}"
        hint = "check the MATCH_RECOGNIZE clause there"
        raise InvalidSql(said, hint=hint, where=here()) from None
    clauses = list(tree.find_all(exp.MatchRecognize))
    if len(clauses) != 1:
        msg = f"the query has {len(clauses)} MATCH_RECOGNIZE clauses"
        raise InvalidSql(msg, hint="write one", where=here())
    return tree, _Clause(clauses[0], span, subsets, schema).recognition()


# What sqlglot does not know


def _cut_out(sql: str) -> tuple[str, timedelta | None, dict[str, tuple[str, ...]]]:
    """Return the text without WITHIN and SUBSET, and what they say."""
    try:
        tokens = MatchRecognize().tokenize(sql)
    except SqlglotError as error:
        msg = f"the query is not SQL: {expressions.reason(error)}"
        raise InvalidSql(msg, where=here()) from None
    sql, tokens = _skip_to_last(sql, tokens)
    after = _behind_pattern(tokens)
    span: timedelta | None = None
    subsets: dict[str, tuple[str, ...]] = {}
    cuts: list[tuple[int, int]] = []
    while after is not None and after < len(tokens):
        word = tokens[after].text.upper()
        if word == "WITHIN":
            end = _until(tokens, after, ("SUBSET", "DEFINE"))
            span = _span(sql[tokens[after].end + 1 : tokens[end].start])
        elif word == "SUBSET":
            end = _until(tokens, after, ("WITHIN", "DEFINE"))
            subsets |= _subsets([token.text for token in tokens[after + 1 : end]])
        else:
            break
        cuts.append((tokens[after].start, tokens[end].start))
        after = end
    for first, last in reversed(cuts):
        sql = sql[:first] + " " * (last - first) + sql[last:]
    return sql, span, subsets


def _skip_to_last(sql: str, tokens: list[Token]) -> tuple[str, list[Token]]:
    """Return the text with SKIP TO LAST where it says SKIP TO, which means the same."""
    words = [token.text.upper() for token in tokens]
    for place in range(len(words) - 2):
        if words[place : place + 2] == ["SKIP", "TO"] and words[place + 2] not in (
            "NEXT",
            "FIRST",
            "LAST",
        ):
            at = tokens[place + 1].end + 1
            sql = f"{sql[:at]} LAST{sql[at:]}"
            return sql, MatchRecognize().tokenize(sql)
    return sql, tokens


def _behind_pattern(tokens: list[Token]) -> int | None:
    """Return the place behind PATTERN (...)."""
    for place, token in enumerate(tokens):
        if (
            token.text.upper() == "PATTERN"
            and tokens[place + 1 : place + 2]
            and tokens[place + 1].text == "("
        ):
            depth = 0
            for at in range(place + 1, len(tokens)):
                depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
                if depth == 0:
                    return at + 1
    return None


def _until(tokens: list[Token], first: int, words: tuple[str, ...]) -> int:
    for at in range(first + 1, len(tokens)):
        if tokens[at].text.upper() in words:
            return at
    hint = "say what the variables mean"
    raise InvalidSql("the MATCH_RECOGNIZE clause has no DEFINE", hint=hint, where=here())


def _span(text: str) -> timedelta:
    try:
        tree = expressions.parse(text.strip())
        node = literal(tree) if isinstance(tree, exp.Interval) else None
    except FlowError as error:
        hint = error.hint
        raise type(error)(f"WITHIN is wrong: {error.message}", hint=hint, where=here()) from None
    if node is None or not node.of:
        hint = "write WITHIN INTERVAL '10' MINUTE"
        raise InvalidSql(f'WITHIN has "{text.strip()}"', hint=hint, where=here())
    return timedelta(microseconds=node.of)


def _subsets(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the unions that "U = (A, B), V = (C)" says."""
    found: dict[str, tuple[str, ...]] = {}
    at = 0
    while at < len(words):
        if words[at + 1 : at + 3] != ["=", "("] or ")" not in words[at:]:
            hint = "write SUBSET u = (a, b)"
            raise InvalidSql(f'SUBSET has "{" ".join(words)}"', hint=hint, where=here())
        end = words.index(")", at)
        found[words[at].lower()] = tuple(
            word.lower() for word in words[at + 3 : end] if word != ","
        )
        at = end + 1 + (words[end + 1 : end + 2] == [","])
    return found


# The clause


@dataclass
class _Clause:
    """Reads one clause."""

    clause: exp.MatchRecognize
    span: timedelta | None
    subsets: dict[str, tuple[str, ...]]
    schema: Schema | None
    owner: Owner = field(default_factory=lambda: Owner("the MATCH_RECOGNIZE clause", here()))
    blocks: tuple[Block, ...] = ()
    leaves: list[Block] = field(default_factory=list)

    def recognition(self) -> Recognition:
        arg = self.clause.args
        table = self.source()
        partition = tuple(self.column(one, "PARTITION BY") for one in arg.get("partition_by") or ())
        automaton, words = self.automaton(partition)
        all_rows = self.rows()
        outputs = self.measures(words, partition)
        automaton = replace(
            automaton, numbered=any(piece.function == "match_number" for piece in outputs.pieces)
        )
        alias = arg.get("alias")
        name = table.sql(dialect="spark") if table.args.get("db") else table.name
        return Recognition(
            name, partition, self.order(), automaton, outputs, all_rows, alias and alias.name
        )

    def source(self) -> exp.Table:
        """Return the table that the clause reads."""
        select = self.clause.parent
        read_from = select.args.get("from_") if isinstance(select, exp.Select) else None
        table = None if read_from is None else read_from.this
        if not isinstance(table, exp.Table) or (select is not None and select.args.get("joins")):
            fact = "reads more than one table"
            raise self.mistake(UnsupportedSql, fact, "name the query that it reads as a view first")
        return table

    def mistake(self, error: type[FlowError], fact: str, hint: str) -> FlowError:
        return self.owner.mistake(error, fact, hint=hint)

    def column(self, tree: exp.Expr, what: str) -> str:
        if not isinstance(tree, exp.Column) or len(tree.parts) != 1:
            fact = f'has "{tree.sql(dialect="spark")}" in {what}, which is not a column'
            raise self.mistake(UnsupportedSql, fact, "compute it in a column of the table first")
        return tree.name

    def order(self) -> str:
        order = self.clause.args.get("order")
        columns = [] if order is None else order.expressions
        if not columns:
            raise self.mistake(
                UnsupportedSql,
                "has no ORDER BY",
                "a stream is in the order of its time: ORDER BY it",
            )
        if len(columns) > 1 or columns[0].args.get("desc"):
            hint = "a stream is in the order of its time, rising: ORDER BY that column alone"
            raise self.mistake(UnsupportedSql, "orders by more than the rising time", hint)
        return self.column(columns[0].this, "ORDER BY")

    def rows(self) -> bool:
        rows = self.clause.args.get("rows")
        said = "ONE ROW PER MATCH" if rows is None else rows.name.upper()
        if "UNMATCHED" in said:
            raise self.mistake(
                UnsupportedSql,
                "asks for unmatched rows",
                "a stream cannot tell that a row will never match",
            )
        return said.startswith("ALL ROWS")

    def skip(self, words: dict[str, frozenset[int]]) -> Skip:
        after = self.clause.args.get("after")
        said = "PAST LAST ROW" if after is None else " ".join(after.name.split()[3:])
        if said.upper() in _SKIPS:
            return _SKIPS[said.upper()]
        parts = said.split()
        kind, name = (
            ("to_first" if parts[1].upper() == "FIRST" else "to_last"),
            parts[-1].strip('`"'),
        )
        if name.lower() not in words:
            fact = f'skips to "{name}", which its PATTERN does not have'
            raise self.mistake(UnknownBlock, fact, "name a variable")
        return Skip(kind, name)  # type: ignore[arg-type]

    # DEFINE

    def automaton(self, partition: tuple[str, ...]) -> tuple[Automaton, Parts]:
        lags = _Lags()
        define: dict[str, Condition] = {}
        for one in self.clause.args.get("define") or ():
            define[one.alias.lower()] = lags.rewritten(one.this, self).sql(dialect="spark")
        blocks = read_row_pattern(self.clause.args["pattern"].name, define, self.mistake)
        names = {leaf.name.lower() for leaf in leaves(blocks)}
        unknown = [name for name in define if name not in names]
        if unknown:
            fact = f'defines "{unknown[0]}", which its PATTERN does not have'
            raise self.mistake(UnknownBlock, fact, "leave it out")
        pattern = Pattern("match_recognize", blocks, self.span, where=self.owner.where)
        if all(block.nullable for block in blocks):
            fact = "has a PATTERN that matches no row at all"
            raise self.mistake(UnsupportedSql, fact, "let it take at least one row")
        check(pattern)
        parts = Parts.of(pattern, self.schema)
        self.blocks, self.leaves = blocks, parts.blocks
        parts.words.blocks = self.unions(dict(parts.words.blocks))
        pattern = replace(pattern, skip=self.skip(dict(parts.words.blocks)), keys=partition)
        reader = Reader(parts.words, self.owner)
        for source, _, _ in lags.found:
            reader.check_columns(expressions.parse(source))
        sources = [parts.words.value(source) for source, _, _ in lags.found]
        built = Build(pattern, parts, prefers=True).automaton()
        warnings = tuple(endless(replace(pattern, name="match_recognize")))
        return replace(built, lags=lags.of(built.values, sources), warnings=warnings), parts

    def unions(self, names: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        for union, members in self.subsets.items():
            unknown = [name for name in members if name not in names]
            if unknown:
                fact = f'has "{unknown[0]}" in SUBSET, not in its PATTERN'
                raise self.mistake(UnknownBlock, fact, "name its variables")
            names[union] = frozenset().union(*(names[name] for name in members))
        return names

    # MEASURES

    def measures(self, parts: Parts, partition: tuple[str, ...]) -> Outputs:
        collector = Collector(parts.words, self.owner, partition)
        columns: list[Output] = []
        for measure in self.clause.args.get("measures") or ():
            alias = measure.this
            if not isinstance(alias, exp.Alias):
                fact = f'has a measure "{alias.sql()}" without a name'
                raise self.mistake(UnsupportedSql, fact, "write AS name")
            collector.final = str(measure.args.get("window_frame") or "").upper() == "FINAL"
            tree = _navigated(alias.this, collector, self)
            columns.append(Output(alias.alias, rewritten(tree, collector).sql(dialect="spark")))
        return Outputs(
            tuple(columns), tuple(collector.pieces), tuple(collector.values), tuple(collector.lags)
        )

    def check_next(self, piece: Piece, collector: Collector) -> None:
        """Refuse NEXT where the row may lie behind the match, or is not known yet."""
        if self.rows() and not collector.final:
            fact = "uses NEXT for each row of a match"
            raise self.mistake(UnsupportedSql, fact, "write FINAL NEXT(...)")
        if piece.function == "first" and piece.blocks == collector.every:
            sure = sum(least_rows(block) for block in self.blocks) - 1 - piece.back
        else:
            behind = rows_behind(self.blocks, self.leaves, piece.blocks) or 0
            sure = behind + (piece.back if piece.function == "last" else 0)
        if piece.shift > sure:
            rows = "row" if piece.shift == 1 else "rows"
            fact = f"looks {piece.shift} {rows} on with NEXT, which may lie behind the match"
            hint = "a stream does not wait for rows behind a match: give them a variable at the end of the PATTERN"
            raise self.mistake(UnsupportedSql, fact, hint)


class _Lags:
    """Turns PREV into values: what a column was so many rows of the partition before."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, str]] = []

    def rewritten(self, tree: exp.Expr, clause: _Clause) -> exp.Expr:
        def change(node: exp.Expr) -> exp.Expr:
            name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
            if name == "NEXT":
                hint = "a stream cannot look at rows that have not come: say it of the row after, with PREV"
                raise clause.mistake(UnsupportedSql, "uses NEXT in DEFINE", hint)
            if name == "PREV":
                return self._prev(node, clause)
            if name in ("FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE"):
                offset = _offset(node, clause)
                if offset and name.startswith("LAST"):
                    return exp.Anonymous(
                        this=LAST_BACK,
                        expressions=[node.expressions[0], exp.Literal.number(offset)],
                    )
                if offset:
                    fact = f'uses "{node.sql(dialect="spark")}" in DEFINE'
                    hint = "a run remembers the first and the last rows of a variable, none between"
                    raise clause.mistake(UnsupportedSql, fact, hint)
                kind = exp.First if name.startswith("FIRST") else exp.Last
                return kind(this=node.expressions[0])
            if name in ("CLASSIFIER", "MATCH_NUMBER"):
                raise clause.mistake(UnsupportedSql, f"uses {name} in DEFINE", "use it in MEASURES")
            return node

        return tree.copy().transform(change)

    def _prev(self, node: exp.Expr, clause: _Clause) -> exp.Expr:
        column, offset = node.expressions[0], _offset(node, clause)
        tables = {part.table for part in column.find_all(exp.Column) if part.table}
        plain = column.copy().transform(
            lambda one: exp.column(one.name) if isinstance(one, exp.Column) else one
        )
        source = plain.sql(dialect="spark")
        # A column that no table has: the value is filled in from the rows before.
        hidden = f"{EARLIER}{len(self.found)}"
        self.found.append((source, offset, hidden))
        return exp.column(hidden, table=next(iter(tables), None))

    def of(self, values: tuple[str, ...], sources: list[int]) -> tuple[tuple[int, int, int], ...]:
        """Return for each earlier value its number, that of its source, and how many rows back."""
        known = zip(self.found, sources, strict=True)
        return tuple(
            (values.index(name), source, offset)
            for (_, offset, name), source in known
            if name in values
        )


def _offset(node: exp.Expr, clause: _Clause) -> int:
    name = node.name.upper()
    default = 1 if name in ("PREV", "NEXT") else 0
    if len(node.expressions) < 2:
        return default
    found = literal(node.expressions[1])
    if found is None or not isinstance(found.of, int) or found.of < 0:
        fact = f"has an offset in {name} that is not a whole number"
        raise clause.mistake(UnsupportedSql, fact, "write PREV(x, 2)")
    return found.of


def _navigated(tree: exp.Expr, collector: Collector, clause: _Clause) -> exp.Expr:
    """Return a measure with pieces for FIRST, LAST, PREV, NEXT, CLASSIFIER and MATCH_NUMBER."""

    def change(node: exp.Expr) -> exp.Expr:
        name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
        if name in ("CLASSIFIER", "MATCH_NUMBER"):
            return collector.piece(Piece(name.lower(), collector.every))
        if name in ("FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE", "PREV", "NEXT"):
            return _navigation(node, name, collector, clause)
        if isinstance(node, exp.Column) and len(node.parts) == 1 and not _stays(node, collector):
            # A column without a variable is that of the last row.
            return _one(exp.Last(this=node), "last", 0, collector)
        return node

    return _outside_aggregates(tree.copy(), change)


def _stays(node: exp.Column, collector: Collector) -> bool:
    return node.name.startswith("__piece") or node.name.lower() in [
        key.lower() for key in collector.keys
    ]


def _outside_aggregates(tree: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Change the nodes of a tree that are not inside an aggregate."""
    if isinstance(tree, exp.AggFunc):
        return tree
    changed: exp.Expr = change(tree)
    if changed is not tree:
        return changed
    for key, value in list(tree.args.items()):
        if isinstance(value, exp.Expr):
            tree.set(key, _outside_aggregates(value, change))
        elif isinstance(value, list):
            tree.set(
                key,
                [
                    _outside_aggregates(one, change) if isinstance(one, exp.Expr) else one
                    for one in value
                ],
            )
    return tree


def _navigation(node: exp.Expr, name: str, collector: Collector, clause: _Clause) -> exp.Expr:
    """Return the piece of FIRST(x, n) or LAST(x, n), perhaps inside of PREV(x, n) or NEXT(x, n)."""
    offset = _offset(node, clause)
    inner = node.expressions[0]
    if name in ("PREV", "NEXT"):
        function, back = "last", 0
        if isinstance(inner, exp.Anonymous) and inner.name.upper() in ("FIRST", "LAST"):
            node, function, back = inner, inner.name.lower(), _offset(inner, clause)
        if name == "PREV":
            return _one(node, function, back, collector, earlier=offset)
        clause.check_next(
            Piece(function, _blocks(node, collector), back=back, shift=offset), collector
        )
        return _one(node, function, back, collector, shift=offset)
    return _one(node, "first" if name.startswith("FIRST") else "last", offset, collector)


def _blocks(node: exp.Expr, collector: Collector) -> frozenset[int]:
    return Reader(collector.words, collector.owner).blocks_in(_argument(node), node)


def _argument(node: exp.Expr) -> exp.Expr:
    found: exp.Expr = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    return found


def _one(
    node: exp.Expr, function: str, back: int, collector: Collector, shift: int = 0, earlier: int = 0
) -> exp.Expr:
    """Return the piece of a row, `shift` rows on in the match or `earlier` in the partition."""
    reader = Reader(collector.words, collector.owner)
    plain = reader.unqualified(_argument(node))
    reader.check_columns(plain)
    sql = plain.sql(dialect="spark")
    value = collector.earlier(sql, earlier) if earlier else collector.value(sql)
    return collector.piece(Piece(function, _blocks(node, collector), value, back, shift))
