"""Where a flow's events come from, as data. All of them go through a journal of the source's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Literal, cast, get_args

from millstream.errors import InvalidOption
from millstream.flow.schema import Schema

Format = Literal["parquet", "jsonl", "csv"]
Payload = Literal["json", "raw"]
"""What a message of a runtime holds: a JSON object, or the bytes of the one column that takes them."""
_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
}
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]*):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Inbox:
    """Events that programs send: `millstream send FLOW.SOURCE`, or `ms.connect`.

    `producers` are the names of the keys that may send over a network; None: all that the host
    knows. At `runtimes`, host:port, runtimes send messages too, each a row of `format`.
    """

    schema: Schema
    producers: tuple[str, ...] | None = None
    runtimes: str | None = None
    format: Payload = "json"

    @property
    def bounded(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Files:
    """A folder, a file or a glob of files; with `follow`, files that appear later too."""

    path: str
    format: Format
    schema: Schema
    follow: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @property
    def bounded(self) -> bool:
        return not self.follow


@dataclass(frozen=True, slots=True)
class Rate:
    """A generator: so many rows a second, for ever or so many in all."""

    rows_per_second: float
    rows: int | None = None

    @property
    def schema(self) -> Schema:
        return Schema.parse("value long, at timestamp")

    @property
    def bounded(self) -> bool:
        return self.rows is not None


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded file, given out in event time: `speed` times as fast as it happened, or (None) at once."""

    path: str
    format: Format
    schema: Schema
    speed: float | None = None
    time: str | None = None

    @property
    def bounded(self) -> bool:
        return True

    def timed_by(self, time: str | None) -> Replay:
        """Return the replay with the source's time column, unless it has one of its own."""
        return self if self.time is not None else replace(self, time=time)


SourceSpec = Inbox | Files | Rate | Replay


def inbox(
    ddl: str,
    *,
    producers: Sequence[str] | None = None,
    runtimes: str | None = None,
    format: str = "json",
) -> Inbox:
    """Events of this schema, sent by programs.

    Args:
        ddl: The columns, as in Spark SQL.
        producers: The names of the keys that may send over a network; without it, all that the host
            knows.
        runtimes: host:port, where runtimes send to (`millstream runtime --out`): plain TCP, without
            keys.
        format: What their messages hold: "json", an object each, or "raw", the bytes of the one
            column of binary or string; a timestamp beside it gets the moment of arrival.

    >>> inbox("flight string, delay double, at timestamp").schema.names
    ('flight', 'delay', 'at')
    """
    schema = Schema.parse(ddl)
    if runtimes is not None and (
        not _ADDRESS.fullmatch(runtimes) or int(runtimes.rpartition(":")[2]) > 65535
    ):
        raise InvalidOption(f'runtimes cannot send to "{runtimes}"', hint="expected host:port")
    return Inbox(
        schema, None if producers is None else tuple(producers), runtimes, _payload(schema, format)
    )


def _payload(schema: Schema, format: str) -> Payload:
    if format not in get_args(Payload):
        raise InvalidOption(
            f'messages cannot be of format "{format}"', hint='formats are "json" and "raw"'
        )
    if format == "raw" and raw_column(schema) is None:
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        msg = f"raw messages do not fit the columns {columns}"
        raise InvalidOption(
            msg, hint="one column of binary or string, and if you like one of timestamp"
        )
    return cast("Payload", format)


def raw_column(schema: Schema) -> str | None:
    """Return the column that takes the bytes of raw messages; None if the columns are others."""
    bytes_, moments = (
        [field.name for field in schema if field.type in types]
        for types in (("binary", "string"), ("timestamp",))
    )
    return (
        bytes_[0]
        if len(bytes_) == 1 and len(moments) <= 1 and len(bytes_) + len(moments) == len(schema)
        else None
    )


def files(
    path: str | PathLike[str],
    ddl: str,
    *,
    format: str | None = None,
    follow: bool = False,
    **options: str | int | bool,
) -> Files:
    """The rows of files: Parquet, JSON lines or CSV (`format` is told by the suffix if it is left out).

    Args:
        path: A file, a folder or a glob.
        ddl: The columns, as in Spark SQL.
        format: "parquet", "jsonl" or "csv".
        follow: Go on with files that appear later; without it the source ends.
        options: For the reader of the format, such as header=False or sep=";" for CSV.
    """
    text = tuple(sorted((name, _text(value)) for name, value in options.items()))
    return Files(fspath(path), format_of(fspath(path), format), Schema.parse(ddl), follow, text)


def rate(rows_per_second: float, *, rows: int | None = None) -> Rate:
    """Rows "value long, at timestamp" at a steady rate, for trying things out."""
    if rows_per_second <= 0:
        msg = f"a rate of {rows_per_second} rows a second makes no rows"
        raise InvalidOption(msg, hint="give a number above 0")
    if rows is not None and rows < 0:
        msg = f"a rate source cannot make {rows} rows"
        raise InvalidOption(msg, hint="leave rows= out for no end")
    return Rate(rows_per_second, rows)


def replay(
    path: str | PathLike[str],
    ddl: str,
    *,
    speed: float | None = None,
    time: str | None = None,
    format: str | None = None,
) -> Replay:
    """The rows of a recorded file, `speed` times as fast as they happened (None: as fast as they can be read).

    The rows must be in the order in which they should come; `time` is the source's time column if
    it is left out.
    """
    if speed is not None and speed <= 0:
        msg = f"a replay at {speed} times the speed never ends"
        raise InvalidOption(msg, hint="give a speed above 0, or none for full speed")
    return Replay(fspath(path), format_of(fspath(path), format), Schema.parse(ddl), speed, time)


def format_of(path: str, format: str | None) -> Format:
    """Return the format of the files at `path`, by its suffix if none is given."""
    if format in get_args(Format):
        return cast("Format", format)
    if format is not None:
        msg = f'files at "{path}" cannot be of format "{format}"'
        raise InvalidOption(msg, hint='formats are "parquet", "jsonl" and "csv"')
    found = next(
        (kind for suffix, kind in _SUFFIXES.items() if path.lower().rstrip("/").endswith(suffix)),
        None,
    )
    if found is None:
        msg = f'the suffix of "{path}" does not tell its format'
        raise InvalidOption(msg, hint='say format="parquet", "jsonl" or "csv"')
    return found


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
