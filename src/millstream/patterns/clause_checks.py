"""What SQL forbids in a MATCH_RECOGNIZE clause, whatever could be made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from millstream.errors import DuplicateName, UnknownBlock, UnsupportedSql
from millstream.patterns.blocks import Block, leaves
from millstream.patterns.further import gathers
from millstream.patterns.row_pattern import Mistake

_ENDS: Final = ("FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE")
_AROUND: Final = ("PREV", "NEXT")
#: How many arguments a function takes at least and at most.
_COUNTS: Final = {
    **dict.fromkeys((*_ENDS, *_AROUND), (1, 2)),
    "CLASSIFIER": (0, 1),
    "MATCH_NUMBER": (0, 0),
    "MATCH_ROWTIME": (0, 0),
}


def check_calls(tree: exp.Expr, mistake: Mistake) -> None:
    """Refuse functions of rows with wrong arguments, or inside of each other."""
    for node in tree.walk():
        name = _called(node)
        if name in _COUNTS:
            _check_arguments(node, name, mistake)
        if name in _ENDS:
            inner = [one for one in node.expressions[0].walk() if _navigates(one)]
            if inner:
                fact = f'has "{_text(inner[0])}" inside of {name}'
                raise mistake(UnsupportedSql, fact, f"{name} is about the columns of one row")
    if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star):
        fact = f'has "{_text(tree)}" as a measure'
        raise mistake(UnsupportedSql, fact, "name a column, or count it")


def _check_arguments(node: exp.Expr, name: str, mistake: Mistake) -> None:
    least, most = _COUNTS[name]
    if not least <= len(node.expressions) <= most:
        counts = f"{least} to {most}" if least < most else str(most)
        fact = f'has "{_text(node)}"'
        raise mistake(UnsupportedSql, fact, f"{name} takes {counts} arguments")
    if name == "CLASSIFIER" and any(not isinstance(one, exp.Column) for one in node.expressions):
        fact = f'has "{_text(node)}"'
        raise mistake(UnsupportedSql, fact, "name a variable: CLASSIFIER(A)")


def _navigates(node: exp.Expr) -> bool:
    return _called(node) in (*_ENDS, *_AROUND) or gathers(node)


def check_names(defined: Iterable[str], measures: Iterable[str], mistake: Mistake) -> None:
    """Refuse a variable that is defined twice, and two measures of one name."""
    for names, verb in ((defined, "defines"), (measures, "has the measure")):
        twice = _twice([name.lower() for name in names])
        if twice is not None:
            raise mistake(DuplicateName, f'{verb} "{twice}" twice', "leave one of them out")


def check_unions(
    unions: Mapping[str, Sequence[str]], variables: Iterable[str], mistake: Mistake
) -> None:
    """Refuse unions with the name of a variable, and those of what is no variable."""
    known = set(variables)
    for union, members in unions.items():
        if union in known:
            hint = "give the union a name of its own"
            raise mistake(DuplicateName, f'has the variable "{union}" as a SUBSET', hint)
        for name in members:
            if name not in known:
                fact = f'has "{name}" in SUBSET, not in its PATTERN'
                raise mistake(UnknownBlock, fact, "name its variables")


def check_rows(rows: str, blocks: tuple[Block, ...], mistake: Mistake) -> None:
    """Refuse to leave rows of matches out where rows that match nothing come out."""
    if "UNMATCHED" in rows and any(not leaf.shown for leaf in leaves(blocks)):
        fact = "has an exclusion {- -}, and asks for unmatched rows"
        raise mistake(UnsupportedSql, fact, "leave one of them out: SQL has no such output")


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)


def _called(node: exp.Expr) -> str:
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def _text(node: exp.Expr) -> str:
    return node.sql(dialect="spark")
