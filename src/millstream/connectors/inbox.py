"""Inboxes: events that programs send. What takes them are links and the engine, not an origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, cast, get_args

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.durations import duration
from millstream.flow.schema import Schema
from millstream.flow.sources import Intake, Payload, SourceSpec
from millstream.flow.spec import Tree

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]*):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Inbox(SourceSpec):
    """Events that programs send: `millstream send FLOW.SOURCE`, or `ms.connect`.

    `producers` are the names of the keys that may send over a network; None: all that the host
    knows. At `runtimes`, host:port, runtimes send messages too, each a row of `format`; `nodes` are
    the names of those that may.
    """

    kind: ClassVar[str] = "inbox"
    bounded: ClassVar[bool] = False
    added: ClassVar[tuple[str, ...]] = ("nodes",)

    schema: Schema
    producers: tuple[str, ...] | None = None
    runtimes: str | None = None
    format: Payload = "json"
    nodes: tuple[str, ...] | None = None

    @property
    def intake(self) -> Intake:
        return Intake(self.producers, self.runtimes, self.format, self.nodes)

    @classmethod
    def from_yaml(cls, entry: Entry) -> Inbox:
        return inbox(
            entry.needed("inbox", "columns"),
            producers=entry.texts("producers"),
            runtimes=entry.text("runtimes"),
            format=entry.text("format") or "json",
            nodes=entry.texts("nodes"),
        )

    def to_yaml(self) -> Tree:
        return {
            "inbox": self.schema.ddl,
            "producers": None if self.producers is None else list(self.producers),
            "runtimes": self.runtimes,
            "format": None if self.format == "json" else self.format,
            "nodes": None if self.nodes is None else list(self.nodes),
        }


def inbox(
    ddl: str,
    *,
    producers: Sequence[str] | None = None,
    runtimes: str | None = None,
    format: str = "json",
    nodes: Sequence[str] | None = None,
) -> Inbox:
    """Events of this schema, sent by programs.

    Args:
        ddl: The columns, as in Spark SQL.
        producers: The names of the keys that may send over a network; without it, all that the host
            knows.
        runtimes: host:port, where runtimes send to (`millstream runtime --out`). They prove that
            they have the secret of the job; on this host, they need not if `nodes` is not given.
        format: What their messages hold: "json", an object each, or "raw", the bytes of the one
            column of binary or string; a timestamp beside it gets the moment of arrival.
        nodes: The names of the runtimes that may send (`millstream runtime --name`); without it,
            any.

    >>> inbox("flight string, delay double, at timestamp").schema.names
    ('flight', 'delay', 'at')
    """
    schema = Schema.parse(ddl)
    if runtimes is not None and (
        not _ADDRESS.fullmatch(runtimes) or int(runtimes.rpartition(":")[2]) > 65535
    ):
        raise InvalidOption(f'runtimes cannot send to "{runtimes}"', hint="expected host:port")
    allowed = None if producers is None else tuple(producers)
    named = None if nodes is None else tuple(nodes)
    return Inbox(schema, allowed, runtimes, _payload(schema, format), named)


def watchers(
    flow: Flow,
    name: str,
    columns: str,
    *,
    time: str,
    span: str | timedelta,
    lateness: str | timedelta = "1 hour",
    key: str | None = None,
    producers: Sequence[str] | None = None,
    partitions: int = 1,
) -> Stream:
    """Return what watchers find, each run once, from whichever device.

        alarms = ms.watchers(
            flow, "alarms", "sensor string, peak double, at timestamp", time="at", span="10 minutes"
        )

    It is an inbox of the name, and a `distinct` by the column "run" behind it. Watchers send there:
    `millstream watch patterns.py --out inbox:FLOW.alarms@tcp://host:port`.

    Args:
        flow: The flow.
        name: The source's name.
        columns: What the patterns emit, as in Spark SQL. "run", "pattern" and "device" are added.
        time: The time column: the moment at which a match is certain.
        span: How long a match lasts at most: the longest `within` of the patterns.
        lateness: For how long a device may be cut off; what it finds and sends after that is a dead
            letter.
        key: The column that later stages group by.
        producers: The names of the keys that may send over a network.
        partitions: In how many parts the journal is written.
    """
    schema = Schema.parse(columns)
    beside = ", ".join(f"{one} string" for one in ("run", "pattern", "device") if one not in schema)
    spec = inbox(f"{columns}, {beside}" if beside else columns, producers=producers)
    found = flow.source(name, spec, time=time, lateness=lateness, key=key, partitions=partitions)
    return found.distinct(f"each_{name}", by="run", within=duration(span) + duration(lateness))


def _payload(schema: Schema, format: str) -> Payload:
    if format not in get_args(Payload):
        hint = 'formats are "json" and "raw"'
        raise InvalidOption(f'messages cannot be of format "{format}"', hint=hint)
    if format == "raw" and raw_column(schema) is None:
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        msg = f"raw messages do not fit the columns {columns}"
        hint = "one column of binary or string, and if you like one of timestamp"
        raise InvalidOption(msg, hint=hint)
    return cast("Payload", format)


def raw_column(schema: Schema) -> str | None:
    """Return the column that takes the bytes of raw messages; None if the columns are others."""
    bytes_, moments = (
        [field.name for field in schema if field.type in types]
        for types in (("binary", "string"), ("timestamp",))
    )
    fits = len(bytes_) == 1 and len(moments) <= 1 and len(bytes_) + len(moments) == len(schema)
    return bytes_[0] if fits else None


connector = Connector(sources=(Inbox,))
