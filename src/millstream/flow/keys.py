"""Keys that are expressions: `key="upper(shop)"`, with a name of their own: `"... as shop_key"`.

A key is a column wherever there is one of that name; everything else is read as Spark SQL over the
columns of one row. Its value must follow from the row alone, since a row is read again after a
crash and must find its key again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from millstream.errors import DuplicateColumn, InvalidSql
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.flow.site import Site

# Spark's functions whose value does not follow from the row, without their underscores.
_FUNCTIONS = """
    currentcatalog currentdatabase currentdate currentschema currenttime currenttimestamp
    currenttimezone currentuser inputfileblocklength inputfileblockstart inputfilename
    localtimestamp monotonicallyincreasingid now rand randn random randstr sessionuser shuffle
    sparkpartitionid uniform user uuid
"""
_CHANGING: Final = frozenset(_FUNCTIONS.split())
_GENERATORS: Final = frozenset(
    ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "stack")
)
_ALIAS: Final = re.compile(
    r"\s*(?P<text>.+?)\s+as\s+(?P<name>\w+|`[^`]+`)\s*", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class KeyExpression:
    """A key that is computed: the name of its column, and the Spark SQL that makes it."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} as {expressions.column(self.name)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is computed of."""
        return expressions.columns(self.text)


def changing(tree: exp.Expr) -> str | None:
    """Return a function in a tree whose value does not follow from the row, if there is one."""
    found = (_function(node) for node in tree.walk() if isinstance(node, exp.Func))
    return next((name for name in found if name.replace("_", "") in _CHANGING), None)


def read_key(
    site: Site, schema: Schema | None, text: str, owner: str, verb: str
) -> KeyExpression | None:
    """Return the expression that a key is, None if it is the name of a column.

    Raises:
        InvalidSql: It is neither, or its value does not follow from the row.
        UnknownColumn: It uses a column that the stream does not have.
        DuplicateColumn: Its name is that of a column.
    """
    if not isinstance(text, str) or re.fullmatch(r"\w*", text) or (schema and text in schema):
        return None
    with site.naming(f'key "{text}"'):
        tree = expressions.parse(text)
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return None
    key = _named(text)
    with site.naming(f'key "{text}"'):
        inner = expressions.expression(key.text)
    _check(site, key, inner, verb)
    if schema is None:
        return key
    for column, _ in expressions.columns_in(inner):
        site.field(schema, column, owner, verb=verb)
    if key.name in schema:
        fact = f'{verb} "{key.text}" under the name of the column "{key.name}"'
        hint = f'give it another name: "{key.text} as {key.name}_key"'
        raise site.mistake(DuplicateColumn, fact, hint=hint)
    return key


def own_column(schema: Schema | None, key: str) -> str:
    """Return the name of a key if these columns have it already, else the key as it is."""
    if schema is None or not isinstance(key, str):
        return key
    found = schema.find(_named(key).name)
    return key if found is None else found.name


def _named(text: str) -> KeyExpression:
    # By the words as they are written: neither may change with the version of sqlglot.
    named = _ALIAS.fullmatch(text)
    if named is not None:
        return KeyExpression(named["name"].strip("`"), named["text"])
    return KeyExpression(re.sub(r"\W+", "_", text).strip("_").lower(), text)


def _check(site: Site, key: KeyExpression, tree: exp.Expr, verb: str) -> None:
    hint = "a key is a column or an expression of the columns of one row"
    if (name := changing(tree)) is not None:
        fact = f'{verb} "{key.text}", and {name}() is not the same when a row is read again'
    elif tree.find(exp.Query):
        fact = f'{verb} "{key.text}", which has a query in it'
    elif any(expressions.aggregates_in(tree)) or expressions.windowed(tree):
        fact = f'{verb} "{key.text}", which is an aggregate of many rows'
    elif any(_function(node) in _GENERATORS for node in tree.find_all(exp.Func)):
        fact = f'{verb} "{key.text}", which makes several rows of one'
    elif not key.columns:
        fact = f'{verb} "{key.text}", which uses no column'
    else:
        return
    raise site.mistake(InvalidSql, fact, hint=hint)


def _function(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""
