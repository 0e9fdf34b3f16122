"""Ingest: from origins (`connectors/<system>/origin.py`) into journals, each row once.

    origin -> parse -> check -> route -> append
               |        |
               +--------+--> dead letters, with the reason and the place

An origin numbers its records by their place (a line of a file, a row of a
recording), and the journal remembers the highest place that it has of every
sender. A restart goes on behind it: nothing is repeated and nothing is left out.
"""

from millstream.ingest.feed import Feed
from millstream.ingest.idle import Progress, left_over, proposals
from millstream.ingest.ingest import Ingest, IngestStatistics, open, open_feed  # noqa: A004 (read as ingest.open)
from millstream.ingest.origin import Origin, OriginContext
from millstream.ingest.parse import parse_rows
from millstream.ingest.rows import Refused, Rows
from millstream.ingest.settings import SourceSettings, declare, declared, grow

__all__ = [
    "Feed",
    "Ingest",
    "IngestStatistics",
    "Origin",
    "OriginContext",
    "Progress",
    "Refused",
    "Rows",
    "SourceSettings",
    "declare",
    "declared",
    "grow",
    "left_over",
    "open",
    "open_feed",
    "parse_rows",
    "proposals",
]
