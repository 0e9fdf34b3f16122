"""The place of a stage: its flow, its name and the user's line, for the text of mistakes."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

from millstream.brokers.address import parse
from millstream.errors import (
    DuplicateColumn,
    FlowError,
    InvalidDuration,
    InvalidName,
    InvalidOption,
    UnknownColumn,
    Where,
)
from millstream.flow.durations import duration
from millstream.flow.schema import Field, Schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_OURS = ("millstream.flow", "millstream.patterns", "millstream.spark.match")


_placed: ContextVar[Where | None] = ContextVar("placed", default=None)


@contextmanager
def placed(where: Where) -> Iterator[None]:
    """Make `here` return this place: for flows that are read from a file."""
    token = _placed.set(where)
    try:
        yield
    finally:
        _placed.reset(token)


def here() -> Where | None:
    """Return the line of the user's that called into these rooms."""
    if (where := _placed.get()) is not None:
        return where
    frame = sys._getframe(1)
    while _is_ours(frame.f_globals.get("__name__", "")):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    code = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
    return Where(frame.f_code.co_filename, frame.f_lineno, code.strip())


def _is_ours(module: str) -> bool:
    return module == "millstream" or module.startswith(_OURS)


@dataclass(frozen=True, slots=True)
class Site:
    """Who makes a mistake, and where."""

    flow: str
    name: str
    kind: str = "stage"
    where: Where | None = None

    def __str__(self) -> str:
        own = f'{self.kind} "{self.name}"'
        return own if self.kind == "flow" else f'{own} of flow "{self.flow}"'

    def mistake(self, error: type[FlowError], fact: str, *, hint: str | None = None) -> FlowError:
        """Return the error that says `fact` of this stage."""
        return error(f"{self} {fact}", hint=hint, where=self.where)

    @contextmanager
    def naming(self, what: str) -> Iterator[None]:
        """Add the stage and its line to an error about a value that does not know them."""
        try:
            yield
        except FlowError as error:
            if error.where is not None:
                raise
            msg = f"{self} has a wrong {what}: {error.message}"
            raise type(error)(msg, hint=error.hint, where=self.where) from None

    def duration(self, value: str | timedelta, what: str) -> timedelta:
        """Return a length of time."""
        with self.naming(what):
            return duration(value)

    def positive(self, value: str | timedelta, what: str) -> timedelta:
        """Return a length of time above zero."""
        length = self.duration(value, what)
        if not length:
            hint = 'give a time above zero, like "1 hour"'
            raise self.mistake(InvalidDuration, f'has no length of time as "{what}"', hint=hint)
        return length

    def kept(
        self, partitions: int, keep_for: str | timedelta | None, keep_bytes: int | None
    ) -> timedelta | None:
        """Return how long a journal keeps what all have read, of checked options."""
        if partitions < 1:
            fact = f"has {partitions} partitions"
            raise self.mistake(InvalidOption, fact, hint="give at least one")
        if keep_bytes is not None and keep_bytes < 0:
            fact = f"keeps {keep_bytes} bytes"
            raise self.mistake(InvalidOption, fact, hint="give a number of bytes")
        return None if keep_for is None else self.duration(keep_for, "keep_for")

    def address(self, given: str | None) -> str | None:
        """Return where a journal is kept, checked; None: in the job's folder."""
        if given is not None:
            with self.naming("journal's address"):
                parse(given)
        return given

    def check_name(self) -> None:
        """Refuse a name that is missing, malformed or reserved."""
        if not isinstance(self.name, str) or not self.name:
            whose = "" if self.kind == "flow" else f' of flow "{self.flow}"'
            hint = f"the first argument is the name of the {self.kind}"
            raise InvalidName(f"a {self.kind}{whose} has no name", hint=hint, where=self.where)
        if self.name.startswith("__"):
            hint = 'names that start with "__" are ours'
            raise self.mistake(InvalidName, "has a reserved name", hint=hint)
        if not _NAME.fullmatch(self.name):
            hint = 'use letters, digits, "_" and "-", starting with a letter'
            raise self.mistake(InvalidName, "has a name that is not one word", hint=hint)

    def check_columns(self, schema: Schema) -> None:
        """Refuse column names that are ours."""
        for name in schema.names:
            if name.startswith("__"):
                fact = f'has a column "{name}", whose name is reserved'
                raise self.mistake(InvalidName, fact, hint='names that start with "__" are ours')

    def column(self, schema: Schema | None, name: str, owner: str, *, verb: str = "reads") -> str:
        """Return the column's name as the schema spells it."""
        if not isinstance(name, str) or not name:
            fact = f"{verb} a column without a name"
            raise self.mistake(InvalidName, fact, hint="name the column as text")
        if schema is None:
            return name
        return self.field(schema, name, owner, verb=verb).name

    def field(self, schema: Schema, name: str, owner: str, *, verb: str = "reads") -> Field:
        """Return the column of that name, or say which may have been meant."""
        found = schema.find(name)
        if found is None:
            fact = f'{verb} column "{name}", which "{owner}" does not have'
            raise self.mistake(UnknownColumn, fact, hint=meant(schema, name))
        return found

    def combined(self, *parts: Schema, hint: str) -> Schema:
        """Return one schema of several, refusing a name that two of them have."""
        fields: list[Field] = []
        for field in (field for part in parts for field in part):
            if any(other.name.lower() == field.name.lower() for other in fields):
                fact = f'would have two columns "{field.name}"'
                raise self.mistake(DuplicateColumn, fact, hint=hint)
            fields.append(field)
        return Schema(tuple(fields))


def meant(schema: Schema, name: str) -> str:
    """Return the hint for a column that is not there."""
    close = schema.closest(name)
    return f'did you mean "{close}"?' if close else f"its columns are {', '.join(schema.names)}"
