"""Spark SQL column lists, read without Spark.

The types are those that a journal can hold. Each has one spelling here, Spark's own short one
("long" becomes "bigint"), so that schemas can be compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TypeVar

from millstream.errors import InvalidSchema, UnknownType

_T = TypeVar("_T")
_OTHERWISE = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_PLAIN = {
    **{word: word for word in ("string", "boolean", "double", "binary", "date", "timestamp_ntz")},
    **{word: word for word in _OTHERWISE.values()},
    **_OTHERWISE,
}
_WITH_LENGTH = ("varchar", "char", "character")
_DECIMAL = ("decimal", "dec", "numeric")
_NESTED = ("array", "map", "struct")
_TOKEN = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([A-Za-z0-9_]+)|([<>(),:]))"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_DECIMAL = 38
_HINT = 'write columns as in Spark SQL: "flight string, delay double, at timestamp"'


def parse_columns(text: str) -> list[tuple[str, str]]:
    """Return the (name, type) pairs of a column list."""
    reader = _Reader(text)
    return reader.whole(lambda: reader.listed(reader.column))


def parse_type(text: str) -> str:
    """Return the one spelling of a type."""
    reader = _Reader(text)
    return reader.whole(reader.type)


def split_types(text: str) -> list[str]:
    """Return the types in a list of them, as in a map."""
    reader = _Reader(text)
    return reader.whole(lambda: reader.listed(reader.type))


def quoted(name: str) -> str:
    """Return `name` as Spark SQL reads it."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidSchema(f"a schema must be text, not {type(text).__name__}", hint=_HINT)
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        found = self.next.lower() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.wrong(f'"{token}"')

    def whole(self, read: Callable[[], _T]) -> _T:
        """Read what the whole text is."""
        found = read()
        if self.next:
            raise self.wrong('"," or the end')
        return found

    def listed(self, read: Callable[[], _T]) -> list[_T]:
        """Read one or more, with commas between them."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def wrong(self, expected: str) -> InvalidSchema:
        found = f'"{self.next}"' if self.next else "the end"
        msg = f'the schema "{self.text}" has {found} where {expected} should be'
        return InvalidSchema(msg, hint=_HINT)

    def column(self) -> tuple[str, str]:
        name = self.name()
        self.take(":")
        found = self.type()
        if self.take("not"):
            msg = f'column "{name}" of the schema "{self.text}" is "not null"'
            raise InvalidSchema(msg, hint='any column may be null: leave "not null" out')
        if self.take("comment"):
            self.comment()
        return name, found

    def comment(self) -> None:
        if not self.next.startswith(("'", '"')):
            raise self.wrong("the text of a comment")
        while self.next.startswith(("'", '"')):
            self.at += 1

    def name(self) -> str:
        token = self.next
        if not token or token[0] in "<>(),:'\"":
            raise self.wrong("a column name")
        self.at += 1
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def type(self) -> str:
        word = self.next.lower()
        if not word or not (word[0].isalnum() or word[0] == "_"):
            raise self.wrong("a type")
        self.at += 1
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _DECIMAL:
            return self.decimal()
        if word in _WITH_LENGTH:
            return self.text_of_length()
        if word in _NESTED:
            return {"array": self.array, "map": self.map, "struct": self.struct}[word]()
        msg = f'"{word}" in the schema "{self.text}" is not a type'
        raise UnknownType(msg, hint=_known_types(word))

    def decimal(self) -> str:
        if not self.take("("):
            return "decimal(10,0)"
        precision = self.number()
        scale = self.number() if self.take(",") else 0
        self.expect(")")
        if not scale <= precision <= _LONGEST_DECIMAL or precision == 0:
            msg = f'"decimal({precision},{scale})" is not a type'
            raise UnknownType(msg, hint="the precision is 1 to 38, the scale at most the precision")
        return f"decimal({precision},{scale})"

    def text_of_length(self) -> str:
        # Spark checks the length only when it writes tables; in a stream they are strings.
        self.expect("(")
        self.number()
        self.expect(")")
        return "string"

    def number(self) -> int:
        if not self.next.isdigit():
            raise self.wrong("a number")
        self.at += 1
        return int(self.tokens[self.at - 1])

    def array(self) -> str:
        return f"array<{self.between(self.type)}>"

    def map(self) -> str:
        def pair() -> str:
            key = self.type()
            self.expect(",")
            return f"{key},{self.type()}"

        return f"map<{self.between(pair)}>"

    def struct(self) -> str:
        columns = self.between(lambda: self.listed(self.column))
        return f"struct<{','.join(f'{quoted(name)}:{found}' for name, found in columns)}>"

    def between(self, inner: Callable[[], _T]) -> _T:
        self.expect("<")
        found = inner()
        self.expect(">")
        return found


def _tokens(text: str) -> list[str]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            found = text[at:].strip()[:1]
            msg = f'the schema "{text}" has "{found}", which is not part of a column list'
            raise InvalidSchema(msg, hint=_HINT)
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


def _known_types(word: str) -> str:
    names = [*_PLAIN, "decimal", "varchar", *_NESTED]
    close = get_close_matches(word, names, n=1)
    every = f"types are {', '.join(sorted(set(_PLAIN.values())))}, decimal, array, map, struct"
    return f'did you mean "{close[0]}"?' if close else every
