"""Where a flow's results go, and the static tables that streams are joined with, as data."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal

from millstream.errors import InvalidOption
from millstream.flow.schema import Schema
from millstream.flow.sources import Format, format_of


@dataclass(frozen=True, slots=True)
class Parquet:
    """A folder of Parquet files; each result is in it once."""

    path: str


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A folder of files with a JSON object per line; each result is in it once."""

    path: str


@dataclass(frozen=True, slots=True)
class Csv:
    """A folder of CSV files with a header; each result is in it once."""

    path: str


@dataclass(frozen=True, slots=True)
class Console:
    """The terminal: the first `rows` of each batch. A batch may be shown again after a crash."""

    rows: int = 20


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the running process, for tests and notebooks."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A table in PostgreSQL; each result is in it once."""

    url: str
    table: str
    mode: Literal["append"] = "append"


TargetSpec = Parquet | JsonLines | Csv | Console | Memory | Postgres


@dataclass(frozen=True, slots=True)
class Table:
    """A static table that a stream looks rows up in."""

    path: str
    format: Format
    schema: Schema | None = None


def parquet(path: str | PathLike[str]) -> Parquet:
    """Results as Parquet files in a folder, each once."""
    return Parquet(fspath(path))


def jsonl(path: str | PathLike[str]) -> JsonLines:
    """Results as lines of JSON in files in a folder, each once."""
    return JsonLines(fspath(path))


def csv(path: str | PathLike[str]) -> Csv:
    """Results as CSV files in a folder, each once."""
    return Csv(fspath(path))


def console(*, rows: int = 20) -> Console:
    """Results on the terminal, up to `rows` a batch."""
    if rows < 1:
        msg = f"a console that shows {rows} rows shows nothing"
        raise InvalidOption(msg, hint="give a number above 0")
    return Console(rows)


def memory() -> Memory:
    """Results kept in memory, for tests and notebooks."""
    return Memory()


def postgres(url: str, *, table: str) -> Postgres:
    """Results as rows of a PostgreSQL table, each once.

    Args:
        url: As psycopg takes it: "postgresql://user@host/database".
        table: The table's name, with its schema if need be. It is made if it is not there.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        msg = f'"{url}" is not the address of a PostgreSQL database'
        raise InvalidOption(msg, hint='write "postgresql://user@host/database"')
    return Postgres(url, table)


def table(path: str | PathLike[str], *, format: str | None = None, schema: str | None = None) -> Table:
    """A static table in a file or folder, to join a stream with."""
    return Table(fspath(path), format_of(fspath(path), format), None if schema is None else Schema.parse(schema))
