"""SQL's MATCH_RECOGNIZE clause, read into the same automaton as our patterns.

The rules are those of SQL:2016: rows of a partition follow each other directly, of the matches that
begin at a row the preferred one counts (a greedy quantifier prefers more, a reluctant one less, an
alternation its first part), and conditions see the row as taken already. What a stream cannot do is
refused, with the reason.

PREV looks at the rows of the partition, so the last rows of every key are remembered. NEXT in
MEASURES is allowed where the row that it looks at is always one of the match: those behind it may
be long in coming.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp

from millstream.errors import FlowError, InvalidSql, UnknownBlock, UnknownColumn, UnsupportedSql
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.flow.site import here, meant
from millstream.patterns.automaton import Automaton
from millstream.patterns.blocks import Block, Condition, leaves
from millstream.patterns.checks import endless
from millstream.patterns.clause_checks import check_calls, check_names, check_rows, check_unions
from millstream.patterns.clause_text import ClauseText, MatchRecognize, cut_out
from millstream.patterns.compile import Build
from millstream.patterns.conditions import Owner, Reader, Test, read_test
from millstream.patterns.further import counted
from millstream.patterns.history import GATHERING, MATCH_NUMBER
from millstream.patterns.navigation import Lags, framed, navigated, own_row
from millstream.patterns.ordering import Ordering
from millstream.patterns.outputs import Collector, Output, Outputs, Piece, rewritten
from millstream.patterns.parts import Parts
from millstream.patterns.pattern import Pattern, Skip
from millstream.patterns.row_pattern import least_rows, read_row_pattern, rows_behind
from millstream.patterns.vocabulary import Vocabulary

_SKIPS = {"PAST LAST ROW": Skip("past_last"), "TO NEXT ROW": Skip("next")}


@dataclass(frozen=True, slots=True)
class Recognition:
    """A MATCH_RECOGNIZE clause: what it reads, its automaton, and what it emits.

    `outputs` are the measures; with `all_rows` they are computed for every row of a match, from
    what came up to it unless they are final. On a stream, `orders` is its time alone, and no match
    is `empty`. Empty matches may be `omitted`, and `unmatched` rows may come out.
    """

    table: str
    partition: tuple[str, ...]
    orders: tuple[Ordering, ...]
    automaton: Automaton
    outputs: Outputs
    all_rows: bool
    alias: str | None = None
    empty: bool = False
    omitted: bool = False
    unmatched: bool = False
    #: The columns of the partition that are computed: name and SQL.
    computed: tuple[tuple[str, str], ...] = ()

    @property
    def order(self) -> str:
        """The column that the rows are ordered by first; empty if that is no plain rising one."""
        return self.orders[0].rising_column


def read(
    sql: str, schema: Schema | None = None, *, batch: bool = False
) -> tuple[exp.Expr, Recognition]:
    """Return the tree of a query with the clause still in it, and what the clause says.

    Args:
        sql: The query.
        schema: The columns of the rows that the clause reads.
        batch: Whether these rows are all there are, so that nothing is kept between two batches.

    Raises:
        InvalidSql: It is not a query with one MATCH_RECOGNIZE clause.
        UnsupportedSql: It asks for what a stream cannot do, or we do not.
    """
    text = cut_out(sql)
    tree, clause = _parsed(text.sql)
    return tree, _Clause(clause, text, schema, batch).recognition()


def _parsed(sql: str) -> tuple[exp.Expr, exp.MatchRecognize]:
    """Return the tree of a query, and the clause in it."""
    try:
        tree = sqlglot.parse_one(sql, dialect=MatchRecognize)
    except expressions.UNREADABLE as error:
        said = f"the query is not SQL: {expressions.reason(error)}"
        hint = "check the MATCH_RECOGNIZE clause there"
        raise InvalidSql(said, hint=hint, where=here()) from None
    clauses = list(tree.find_all(exp.MatchRecognize))
    if len(clauses) != 1:
        msg = f"the query has {len(clauses)} MATCH_RECOGNIZE clauses"
        raise InvalidSql(msg, hint="write one", where=here())
    for part in ("measures", "define"):
        trees = clauses[0].args.get(part) or ()
        clauses[0].set(part, [one.transform(counted) for one in trees])
    for text in list(clauses[0].find_all(exp.Literal)):
        if text.is_string and isinstance(text.parent, exp.Select):
            # Spark takes SELECT 'x' in parentheses for a literal of a type "SELECT".
            text.replace(exp.alias_(text.copy(), "found"))
    for count in clauses[0].find_all(exp.Count):
        count.set("this", count.this or exp.Star())
    return tree, clauses[0]


def _is_column(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and len(tree.parts) == 1


def _no_quotient(tree: exp.Expr) -> exp.Expr:
    """Return null for a division by 0: Spark would fail, even where the result is not asked for."""
    divisor = tree.expression if isinstance(tree, exp.Div) else None
    if isinstance(divisor, exp.Literal) and divisor.is_number and not float(divisor.name):
        return exp.null()
    return tree


def _computed(tree: exp.Expr) -> tuple[str, str]:
    """Return the name and the SQL of a computed column, which is called as it is written."""
    plain = tree.this if isinstance(tree, exp.Alias) else tree
    sql = plain.sql(dialect="spark", normalize_functions="lower")
    return (tree.alias if isinstance(tree, exp.Alias) else sql), sql


@dataclass
class _Clause:
    """Reads one clause."""

    clause: exp.MatchRecognize
    text: ClauseText
    schema: Schema | None = None
    batch: bool = False
    owner: Owner = field(default_factory=lambda: Owner("the MATCH_RECOGNIZE clause", here()))
    blocks: tuple[Block, ...] = ()
    leaves: list[Block] = field(default_factory=list)
    empty: bool = False

    def recognition(self) -> Recognition:
        arg = self.clause.args
        self.check()
        keys = arg.get("partition_by") or ()
        computed = tuple(_computed(one) for one in keys if not _is_column(one))
        partition = tuple(
            self.column(one, "PARTITION BY") if _is_column(one) else _computed(one)[0]
            for one in keys
        )
        automaton, words = self.automaton(partition)
        all_rows = self.rows()
        outputs = self.measures(words, partition)
        automaton = replace(
            automaton, numbered=any(piece.function == "match_number" for piece in outputs.pieces)
        )
        alias = arg.get("alias")
        said = self.rows_said()
        return Recognition(
            self.table,
            partition,
            self.orders(),
            automaton,
            outputs,
            all_rows,
            alias and alias.name,
            self.empty,
            "OMIT EMPTY" in said,
            "UNMATCHED" in said,
            computed,
        )

    def check(self) -> None:
        """Refuse what SQL forbids, before anything is made of it."""
        arg = self.clause.args
        measures = [one.this for one in arg.get("measures") or ()]
        define = arg.get("define") or ()
        for tree in (*define, *measures):
            check_calls(tree.this if isinstance(tree, exp.Alias) else tree, self.mistake)
        check_names([one.alias for one in define], [one.alias for one in measures], self.mistake)
        check_rows(self.rows_said(), self.row_pattern({}), self.mistake)

    @property
    def table(self) -> str:
        """The table that the clause reads."""
        select = self.clause.parent
        read_from = select.args.get("from_") if isinstance(select, exp.Select) else None
        table = None if read_from is None else read_from.this
        if not isinstance(table, exp.Table) or (select is not None and select.args.get("joins")):
            fact = "reads more than one table"
            raise self.mistake(UnsupportedSql, fact, "name the query that it reads as a view first")
        return table.sql(dialect="spark") if table.args.get("db") else table.name

    def mistake(self, error: type[FlowError], fact: str, hint: str) -> FlowError:
        return self.owner.mistake(error, fact, hint=hint)

    def column(self, tree: exp.Expr, what: str) -> str:
        if not _is_column(tree):
            fact = f'has "{tree.sql(dialect="spark")}" in {what}, which is not a column'
            raise self.mistake(UnsupportedSql, fact, "compute it in a column of the table first")
        found = None if self.schema is None else self.schema.find(tree.name)
        if self.schema is not None and found is None:
            fact = f'has "{tree.name}" in {what}, which the rows do not have'
            raise self.mistake(
                UnknownColumn, fact, meant(self.schema, tree.name) or "name a column"
            )
        return tree.name if found is None else found.name

    @property
    def order_column(self) -> str:
        """The column that the rows are ordered by first; empty if that is no plain rising one."""
        return self.orders()[0].rising_column

    def orders(self) -> tuple[Ordering, ...]:
        order = self.clause.args.get("order")
        columns = [] if order is None else order.expressions
        if not columns and self.batch and self.text.span is None:
            # As any order will do, one that depends on the rows alone.
            return (Ordering("0"),)
        if not columns:
            raise self.mistake(
                UnsupportedSql,
                "has no ORDER BY",
                "a stream is in the order of its time: ORDER BY it",
            )
        if not self.batch and (len(columns) > 1 or columns[0].args.get("desc")):
            hint = "a stream is in the order of its time, rising: ORDER BY that column alone"
            raise self.mistake(UnsupportedSql, "orders by more than the rising time", hint)
        if not self.batch:
            self.column(columns[0].this, "ORDER BY")
        found = tuple(map(Ordering.of, columns))
        if self.text.span is not None and not found[0].rising_column:
            fact = "has WITHIN, and does not ORDER BY a time first"
            raise self.mistake(UnsupportedSql, fact, "ORDER BY the time column first, rising")
        return found

    def rows_said(self) -> str:
        rows = self.clause.args.get("rows")
        return "ONE ROW PER MATCH" if rows is None else " ".join(rows.name.upper().split())

    def rows(self) -> bool:
        said = self.rows_said()
        if "UNMATCHED" in said and not self.batch:
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
        lags = Lags()
        trees: dict[str, exp.Expr] = {}
        spelled = {leaf.name.lower(): leaf.name for leaf in leaves(self.row_pattern({}))}
        for one in self.clause.args.get("define") or ():
            name = spelled.get(one.alias.lower(), one.alias)
            own = dict.fromkeys(self.unions_of(one.alias.lower()), name)
            # A plain FALSE would be taken for a mistake, a query alone for no expression.
            said = exp.not_(exp.true()) if one.this == exp.false() else one.this
            said = exp.and_(said, exp.true()) if isinstance(said, exp.Subquery) else said
            said = said.transform(_no_quotient)
            trees[one.alias.lower()] = lags.rewritten(said, self, own)
        said = {name: tree.sql(dialect="spark") for name, tree in trees.items()}
        parts = self.parts(self.pattern(said))
        define, of_rows = self.conditions(trees, parts.words)
        pattern = self.pattern(define)
        parts = self.parts(pattern)
        self.blocks, self.leaves = pattern.blocks, parts.blocks
        pattern = replace(pattern, skip=self.skip(dict(parts.words.blocks)), keys=partition)
        reader = Reader(parts.words, self.owner)
        for source, _, _ in lags.found:
            reader.check_columns(expressions.parse(source))
        sources = [parts.words.value(source) for source, _, _ in lags.found]
        build = Build(pattern, parts, prefers=True)
        built = build.automaton()
        at_first = build.finder.empty_at_first
        self.empty = build.finder.empty or at_first
        tests = tuple(replace(one, event=of_rows.get(one.label, one.event)) for one in built.tests)
        warnings = tuple(endless(replace(pattern, name="match_recognize")))
        known = lags.of(built.values, sources)
        gathers = any(one.function in GATHERING for one in built.registers)
        searched = self.batch and (gathers or MATCH_NUMBER in built.values)
        built = replace(built, empty=self.empty, empty_at_first=at_first, searched=searched)
        return replace(built, tests=tests, lags=known, warnings=warnings), parts

    def row_pattern(self, define: dict[str, Condition]) -> tuple[Block, ...]:
        text = self.clause.args["pattern"].name
        return read_row_pattern(text, define, self.mistake, batch=self.batch)

    def pattern(self, define: dict[str, str]) -> Pattern:
        blocks = self.row_pattern({**define})
        names = {leaf.name.lower() for leaf in leaves(blocks)}
        unknown = [name for name in define if name not in names]
        if unknown:
            fact = f'defines "{unknown[0]}", which its PATTERN does not have'
            raise self.mistake(UnknownBlock, fact, "leave it out")
        if not self.batch and all(block.nullable for block in blocks):
            fact = "has a PATTERN that matches no row at all"
            raise self.mistake(
                UnsupportedSql,
                fact,
                "a stream would emit one for every row: let it take at least one",
            )
        return Pattern("match_recognize", blocks, self.text.span, where=self.owner.where)

    def parts(self, pattern: Pattern) -> Parts:
        parts = Parts.of(pattern, self.schema)
        parts.words.blocks = self.unions(dict(parts.words.blocks))
        return parts

    def conditions(
        self, trees: dict[str, exp.Expr], words: Vocabulary
    ) -> tuple[dict[str, str], dict[str, str | None]]:
        """Return the condition of each variable, and what of some conditions Spark can tell.

        A variable's own columns are those of the row. Runs of streams remember them nevertheless
        where they always did: what runs remember is in checkpoints. Spark can tell of the row then.
        """
        define = {name: tree.sql(dialect="spark") for name, tree in trees.items()}
        shared = list(define.values())
        of_rows: dict[str, str | None] = {}
        for name, tree in trees.items():
            own = own_row(tree, frozenset(self.unions_of(name))).sql(dialect="spark")
            said = define[name]
            if self.batch or own == said or self.told(said, words) is None:
                define[name] = own
            elif shared.count(said) == 1 and (told := self.told(own, words)) is not None:
                of_rows[said] = told.event
        return define, of_rows

    def unions_of(self, name: str) -> list[str]:
        """Return a variable and the unions that it belongs to."""
        unions = [union for union, members in self.text.subsets.items() if name in members]
        return [name, *unions]

    def told(self, condition: str, words: Vocabulary) -> Test | None:
        """Return the test of a condition; None if runs could never be asked it.

        That they can be asked any function is younger than their checkpoints.
        """
        try:
            found = read_test(condition, Vocabulary(words.blocks, words.schema), self.owner)
        except FlowError:
            return None
        nodes = [] if found.history is None else found.history.walk()
        return None if any(node.op == "sql" for node in nodes) else found

    def unions(self, names: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        check_unions(self.text.subsets, list(names), self.mistake)
        for union, members in self.text.subsets.items():
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
            frame = str(measure.args.get("window_frame") or "").upper()
            said = framed(alias.this, frame) if frame else alias.this
            tree = navigated(said, collector, self)
            columns.append(Output(alias.alias, rewritten(tree, collector).sql(dialect="spark")))
        return Outputs(
            tuple(columns), tuple(collector.pieces), tuple(collector.values), tuple(collector.lags)
        )

    def check_next(self, piece: Piece, collector: Collector) -> None:
        """Refuse NEXT where the row may lie behind the match, or is not known yet."""
        if self.batch:
            return
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
