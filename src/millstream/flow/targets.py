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


@dataclass(frozen=True, slots=True)
class Outbox:
    """A source of another flow, on this host or elsewhere; each result is in its journal once."""

    address: str
    source: str
    key_file: str | None = None
    server_file: str | None = None
    end: bool = False


TargetSpec = Parquet | JsonLines | Csv | Console | Memory | Postgres | Outbox


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


def outbox(
    where: str | PathLike[str],
    source: str,
    *,
    key: str | PathLike[str] | None = None,
    server: str | PathLike[str] | None = None,
    end: bool = False,
) -> Outbox:
    """Results as events of another flow's inbox, each once.

    An epoch is in all partitions of that source or in none; who reads two of them may see it in one
    before the other.

    Args:
        where: "tcp://host:port", or a data folder on this host, as for `connect`.
        source: "flow.source"; its columns are matched by name.
        key: The file of our own key, if the other side wants keys.
        server: The file of the other side's public key.
        end: Whether that source ends when the results do.
    """
    address = fspath(where)
    if "://" in address and not address.startswith("tcp://"):
        raise InvalidOption(
            f'"{address}" is not an address', hint='write "tcp://host:port", or a data folder'
        )
    flow, _, name = source.partition(".")
    if not flow or not name:
        raise InvalidOption(
            f'"{source}" does not name a source of another flow', hint='write "flow.source"'
        )
    if (key is None) != (server is None):
        raise InvalidOption(
            "keys come in twos: our own, and the public one of the other side",
            hint="give key= and server=",
        )
    ours, theirs = (None if file is None else fspath(file) for file in (key, server))
    return Outbox(address, source, ours, theirs, end)


def table(
    path: str | PathLike[str], *, format: str | None = None, schema: str | None = None
) -> Table:
    """A static table in a file or folder, to join a stream with."""
    return Table(
        fspath(path),
        format_of(fspath(path), format),
        None if schema is None else Schema.parse(schema),
    )
