"""Millstream: long-lived event flows on Apache Spark.

    import millstream as ms

    flow = ms.Flow("flights", window="1 hour")
    departures = flow.source("departures", ms.inbox("origin string, delay double, at timestamp"), time="at", key="origin")
    hourly = departures.window("hourly", every="1 hour", flights="count(*)", delay="avg(delay)")
    hourly.sink("hourly", ms.parquet("out/hourly"))

These are the public names, and nothing else.
"""

from millstream.errors import MillstreamError
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.sources import files, inbox, rate, replay
from millstream.flow.stream import Stream
from millstream.flow.targets import console, csv, jsonl, memory, parquet, postgres, table
from millstream.plan.groups import plan

__version__ = "0.1.0"

__all__ = [
    "Flow",
    "MillstreamError",
    "Stream",
    "__version__",
    "console",
    "csv",
    "files",
    "inbox",
    "jsonl",
    "load",
    "memory",
    "parquet",
    "plan",
    "postgres",
    "rate",
    "replay",
    "table",
]
