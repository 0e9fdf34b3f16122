"""Millstream runs event flows on Apache Spark.

    import millstream as ms

    flow = ms.Flow("flights", switch_every="1 hour")
    events = ms.inbox("origin string, delay double, at timestamp")
    departures = flow.source("departures", events, time="at", key="origin")
    hourly = departures.window("hourly", every="1 hour", flights="count(*)", delay="avg(delay)")
    hourly.sink("hourly", ms.parquet("out/hourly"))

These are the public names, and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.connectors.console import console
    from millstream.connectors.files import csv, files, jsonl, parquet, replay
    from millstream.connectors.inbox import inbox, watchers
    from millstream.connectors.kafka import kafka, kafka_topic
    from millstream.connectors.memory import memory
    from millstream.connectors.outbox import outbox
    from millstream.connectors.postgres import postgres
    from millstream.connectors.rate import rate
    from millstream.errors import MillstreamError
    from millstream.flow.compiled import compiled
    from millstream.flow.flow import Flow
    from millstream.flow.load import load
    from millstream.flow.stream import Stream
    from millstream.flow.targets import table
    from millstream.links.async_client import AsyncClient, connect_async
    from millstream.links.client import Client, connect
    from millstream.patterns.pattern import Pattern, Phenomenon
    from millstream.secrets import secret
    from millstream.spark.match import match, sql
    from millstream.watch.watcher import Watcher
    from millstream.web.matches import plot
    from millstream.web.show import show

__version__ = "0.2.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Flow",
    "MillstreamError",
    "Pattern",
    "Phenomenon",
    "Stream",
    "Watcher",
    "__version__",
    "compiled",
    "connect",
    "connect_async",
    "console",
    "csv",
    "files",
    "inbox",
    "jsonl",
    "kafka",
    "kafka_topic",
    "load",
    "match",
    "memory",
    "outbox",
    "parquet",
    "plot",
    "postgres",
    "rate",
    "replay",
    "secret",
    "show",
    "sql",
    "table",
    "watchers",
]

_HOMES: Final = {
    "millstream.connectors.console": ("console",),
    "millstream.connectors.files": ("csv", "files", "jsonl", "parquet", "replay"),
    "millstream.connectors.inbox": ("inbox", "watchers"),
    "millstream.connectors.kafka": ("kafka", "kafka_topic"),
    "millstream.connectors.memory": ("memory",),
    "millstream.connectors.outbox": ("outbox",),
    "millstream.connectors.postgres": ("postgres",),
    "millstream.connectors.rate": ("rate",),
    "millstream.errors": ("MillstreamError",),
    "millstream.flow.compiled": ("compiled",),
    "millstream.flow.flow": ("Flow",),
    "millstream.flow.load": ("load",),
    "millstream.flow.stream": ("Stream",),
    "millstream.flow.targets": ("table",),
    "millstream.patterns.pattern": ("Pattern", "Phenomenon"),
    "millstream.secrets": ("secret",),
    "millstream.spark.match": ("match", "sql"),
    "millstream.watch.watcher": ("Watcher",),
    "millstream.web.matches": ("plot",),
    "millstream.web.show": ("show",),
    "millstream.links.async_client": ("AsyncClient", "connect_async"),
    "millstream.links.client": ("Client", "connect"),
}


def __getattr__(name: str) -> Any:
    # Loaded when asked for: Spark starts several Python processes for each
    # query, which need our journals and none of what describes a flow.
    for home, names in _HOMES.items():
        if name in names:
            return _loaded(home, name)
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream.errors import UnknownName
    from millstream.flow.site import here
    from millstream.flow.spelling import intended

    hint = intended(name, __all__, "its names are")
    raise UnknownName(f'millstream has no "{name}"', hint=hint, where=here())


def _loaded(home: str, name: str) -> Any:
    try:
        found = getattr(import_module(home), name)
    except ImportError as error:
        from millstream.extras import missing

        raise missing(error, f"ms.{name}") or error from error
    if not isinstance(found, FunctionType):
        return found
    from millstream.flow.spelling import spelled

    # Kept, so that it is the same function every time.
    return globals().setdefault(name, spelled(found))


def __dir__() -> list[str]:
    return sorted(__all__)
