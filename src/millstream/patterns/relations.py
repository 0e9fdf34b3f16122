"""Queries with MATCH_RECOGNIZE clauses, taken apart as text.

    WITH t AS (...) SELECT ... FROM (SELECT ... FROM t) AS s (a, b) MATCH_RECOGNIZE (...) AS m JOIN u ...
                                    |------- relation --------|

A clause with the relation before it is cut out and becomes the name of a table; what stands around it
stays as it is and is Spark's. So a query may have any form, and any number of clauses, also inside of
each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sqlglot import Token, TokenType

from millstream.errors import InvalidSql
from millstream.flow.site import here
from millstream.patterns.clause_text import closing, tokens_of

#: Words that stand before a relation, and so end what is read backwards.
_BEFORE: Final = ("FROM", "JOIN", ",", "(", "LATERAL", "APPLY")
#: Words behind a clause that are no alias of it.
_BEHIND: Final = frozenset(
    """
    WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT MINUS JOIN INNER LEFT RIGHT FULL CROSS
    NATURAL ANTI SEMI OUTER ON USING LATERAL WINDOW CLUSTER DISTRIBUTE SORT PIVOT UNPIVOT
    TABLESAMPLE QUALIFY OFFSET MATCH_RECOGNIZE
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A MATCH_RECOGNIZE clause in a query.

    Attributes:
        relation: What it reads: a table, or a query in parentheses, with its own alias.
        text: The clause from its first word to its closing parenthesis.
        tables: The common table expressions that the relation may name, each with its name.
        start: Where the relation begins in the query.
        end: Where the clause ends.
        named: The table's name, or the alias of the relation.
        aliased: Whether an alias stands behind the clause.
    """

    relation: str
    text: str
    tables: tuple[tuple[str, str], ...]
    start: int
    end: int
    named: str
    aliased: bool

    @property
    def reading(self) -> str:
        """The query of the rows that it reads."""
        known = ", ".join(text for _, text in self.tables)
        return f"{f'WITH {known} ' if known else ''}SELECT * FROM {self.relation}"  # noqa: S608

    @property
    def alone(self) -> str:
        """The clause over a table of its own, as a whole query."""
        return f"SELECT * FROM {_quoted(self.named or 'rows')} {self.text}"  # noqa: S608

    def replaced(self, sql: str, table: str) -> str:
        """Return the query with a table in place of the clause and what it reads."""
        alias = "" if self.aliased else f" AS {_quoted(self.named or 'matches')}"
        return f"{sql[: self.start]}{table}{alias}{sql[self.end :]}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def first_clause(sql: str) -> Clause | None:
    """Return the first clause of a query whose relation has none itself; None if there is none.

    Raises:
        InvalidSql: Nothing that can be read stands before or behind it.
    """
    tokens = tokens_of(sql)
    for at, token in enumerate(tokens):
        opens = tokens[at + 1 : at + 2]
        if token.token_type == TokenType.MATCH_RECOGNIZE and opens and opens[0].text == "(":
            return _clause(sql, tokens, at)
    return None


def has_window_pattern(sql: str) -> bool:
    """Tell whether a query has a row pattern in a window, and so no clause of its own."""
    words = [token.text.upper() for token in tokens_of(sql)]
    return ("PATTERN", "(") in pairwise(words) and bool({"WINDOW", "OVER"} & {*words})


def _clause(sql: str, tokens: list[Token], at: int) -> Clause:
    end = closing(tokens, at + 1)
    first, named = _relation(tokens, at)
    behind = tokens[end + 1 : end + 2]
    aliased = bool(behind) and _is_name(behind[0]) and behind[0].text.upper() not in _BEHIND
    relation = sql[tokens[first].start : tokens[at - 1].end + 1]
    text = sql[tokens[at].start : tokens[end].end + 1]
    around = tuple(_tables(sql, tokens, first))
    return Clause(relation, text, around, tokens[first].start, tokens[end].end + 1, named, aliased)


def _is_name(token: Token) -> bool:
    if token.token_type == TokenType.STRING:
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()


def _relation(tokens: list[Token], at: int) -> tuple[int, str]:
    """Return where the relation before a clause begins, and its name."""
    last = at - 1
    named = ""
    if last >= 0 and tokens[last].text == ")" and not _is_start(tokens, _opening(tokens, last) - 1):
        last = _opening(tokens, last) - 1
        if _is_start(tokens, last - 1):
            return last, tokens[last].text  # a table function: range(5)
        # The columns of an alias: t (a, b).
        named, last = tokens[last].text, last - 1
    elif last >= 1 and _is_name(tokens[last]) and not _continues(tokens, last):
        named, last = tokens[last].text, last - 1
    if named and last >= 0 and tokens[last].text.upper() == "AS":
        last -= 1
    if last >= 0 and tokens[last].text == ")":
        first = _opening(tokens, last)
        # A table function has a name before its parentheses.
        return (first if _is_start(tokens, first - 1) else first - 1), named
    first = last
    while first >= 2 and tokens[first - 1].text == ".":
        first -= 2
    if first < 1 or not _is_name(tokens[first]) or not _is_start(tokens, first - 1):
        msg = "the query has no table before MATCH_RECOGNIZE"
        raise InvalidSql(msg, hint="write FROM trades MATCH_RECOGNIZE (...)", where=here())
    return first, named or tokens[last].text


def _continues(tokens: list[Token], last: int) -> bool:
    """Tell whether a name is that of a table, and no alias behind one."""
    return tokens[last - 1].text == "." or _is_start(tokens, last - 1)


def _is_start(tokens: list[Token], at: int) -> bool:
    return at < 0 or tokens[at].text.upper() in _BEFORE


def _opening(tokens: list[Token], last: int) -> int:
    """Return the place of the parenthesis that the one at `last` closes."""
    depth = 0
    for at in range(last, -1, -1):
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
        if depth == 0:
            return at
    raise InvalidSql("the query is not SQL: a parenthesis is not opened", where=here())


def _tables(sql: str, tokens: list[Token], before: int) -> list[tuple[str, str]]:
    """Return the common table expressions that are whole before a place, and may be named there."""
    found: dict[str, str] = {}
    inside: list[tuple[tuple[int, ...], int]] = []
    opened: list[int] = []
    for at in range(before):
        word = tokens[at].text
        if word == "(":
            opened.append(at)
        elif word == ")":
            opened.pop()
        elif word.upper() == "WITH" and tokens[at + 1].text.upper() != "UNMATCHED":
            inside.append((tuple(opened), at))
    for around, at in inside:
        # Only queries that the place is inside of.
        if tuple(opened[: len(around)]) == around:
            found |= dict(_expressions(sql, tokens, at, before))
    return list(found.items())


def _expressions(sql: str, tokens: list[Token], at: int, before: int) -> list[tuple[str, str]]:
    """Return "name (columns) AS (query)" of each expression of a WITH, up to a place."""
    found: list[tuple[str, str]] = []
    place = at + 1 + (tokens[at + 1].text.upper() == "RECURSIVE")
    while place < before:
        first, name = place, tokens[place].text
        place += 1
        if tokens[place].text == "(":
            place = closing(tokens, place) + 1
        place += tokens[place].text.upper() == "AS"
        if place >= before or tokens[place].text != "(":
            break
        end = closing(tokens, place)
        if end >= before:
            break
        found.append((name, sql[tokens[first].start : tokens[end].end + 1]))
        if tokens[end + 1].text != ",":
            break
        place = end + 2
    return found
