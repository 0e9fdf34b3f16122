"""The text of a query with a MATCH_RECOGNIZE clause, made into what sqlglot can read.

sqlglot reads the query in its Spark dialect, to which the clause is added. It does not know WITHIN
(Flink's) and SUBSET, which are cut out here, nor RUNNING and FINAL inside an expression, which
become functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from millstream.errors import FlowError, InvalidSql
from millstream.flow import expressions
from millstream.flow.site import here
from millstream.patterns.literals import literal

#: What RUNNING f(x) and FINAL f(x) are in the tree: functions of what they stand before.
RUNNING, FINAL = "__running", "__final"
_FRAMES: Final = {"RUNNING": RUNNING, "FINAL": FINAL}


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
class ClauseText:
    """A query that sqlglot can read, and what was cut out of it."""

    sql: str
    span: timedelta | None = None
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)


def cut_out(sql: str) -> ClauseText:
    """Return the text of a query without what sqlglot does not know, and what that says.

    Raises:
        InvalidSql: It is no SQL.
    """
    sql = _framed(_skip_to_last(_quoted(sql)))
    tokens = tokens_of(sql)
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
    return ClauseText(sql, span, subsets)


def tokens_of(sql: str) -> list[Token]:
    """Return the words and signs of a query.

    Raises:
        InvalidSql: It has none.
    """
    try:
        return MatchRecognize().tokenize(sql)
    except SqlglotError as error:
        msg = f"the query is not SQL: {expressions.reason(error)}"
        raise InvalidSql(msg, where=here()) from None


def _quoted(sql: str) -> str:
    """Return the text with `b` for a variable that its PATTERN has as "b", wherever it says so.

    To Spark that is a text; in standard SQL it is a name.
    """
    tokens = tokens_of(sql)
    after = _behind_pattern(tokens)
    if after is None:
        return sql
    first = next(at for at, one in enumerate(tokens) if one.text.upper() == "PATTERN")
    texts = [one for one in tokens if one.token_type == TokenType.STRING and sql[one.start] == '"']
    names = {one.text for one in tokens[first:after] if one in texts}
    for one in reversed(texts):
        if one.text in names:
            sql = f"{sql[: one.start]}`{one.text}`{sql[one.end + 1 :]}"
    return sql


def _skip_to_last(sql: str) -> str:
    """Return the text with SKIP TO LAST where it says SKIP TO, which means the same."""
    tokens = tokens_of(sql)
    words = [token.text.upper() for token in tokens]
    for place in range(len(words) - 2):
        if words[place : place + 2] == ["SKIP", "TO"] and words[place + 2] not in (
            "NEXT",
            "FIRST",
            "LAST",
        ):
            at = tokens[place + 1].end + 1
            return f"{sql[:at]} LAST{sql[at:]}"
    return sql


def _framed(sql: str) -> str:
    """Return the text with __final(f(x)) where an expression says FINAL f(x), so for RUNNING.

    Where a measure begins with it, sqlglot reads it by itself.
    """
    tokens = tokens_of(sql)
    edits: list[tuple[int, int, str]] = []
    depth, measures = 0, -1
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        measures = depth if token.text.upper() == "MEASURES" else measures
        frame = _FRAMES.get(token.text.upper())
        name, opening = (*(one.text for one in tokens[place + 1 : place + 3]), "", "")[:2]
        if frame is None or opening != "(" or not name.isidentifier():
            continue
        before = tokens[place - 1].text.upper()
        if before == "MEASURES" or (before == "," and depth == measures):
            continue
        end = tokens[closing(tokens, place + 2)]
        edits += [(token.start, token.end + 1, f"{frame}("), (end.end + 1, end.end + 1, ")")]
    for first, last, text in sorted(edits, reverse=True):
        sql = sql[:first] + text + sql[last:]
    return sql


def closing(tokens: list[Token], opening: int) -> int:
    """Return the place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
        if depth == 0:
            return at
    raise InvalidSql("the query is not SQL: a parenthesis is not closed", where=here())


def _behind_pattern(tokens: list[Token]) -> int | None:
    """Return the place behind PATTERN (...)."""
    for place, token in enumerate(tokens):
        following = tokens[place + 1 : place + 2]
        if token.text.upper() == "PATTERN" and following and following[0].text == "(":
            return closing(tokens, place + 1) + 1
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
        if words[at].lower() in found:
            msg = f'SUBSET has "{words[at]}" twice'
            raise InvalidSql(msg, hint="give each a name of its own", where=here())
        found[words[at].lower()] = tuple(
            word.lower() for word in words[at + 3 : end] if word != ","
        )
        at = end + 1 + (words[end + 1 : end + 2] == [","])
    return found
