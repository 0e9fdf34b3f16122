"""Ingest: from origins (`connectors/<system>/origin.py`) into journals, each row once.

    origin -> parse -> check -> route -> append
               |        |
               +--------+--> dead letters, with the reason and the place

An origin numbers its records by their place (a line of a file, a row of a
recording), and the journal remembers the highest place that it has of every
sender. A restart goes on behind it: nothing is repeated and nothing is left out.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.ingest.feed import Feed, JournalFeed
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
    "JournalFeed",
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

_HOMES: Final = {
    "feed": ("Feed", "JournalFeed"),
    "idle": ("Progress", "left_over", "proposals"),
    "ingest": ("Ingest", "IngestStatistics", "open", "open_feed"),
    "origin": ("Origin", "OriginContext"),
    "parse": ("parse_rows",),
    "rows": ("Refused", "Rows"),
    "settings": ("SourceSettings", "declare", "declared", "grow"),
}


def __getattr__(name: str) -> Any:
    # Loaded when asked for: a client that sends rows needs few of these.
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found
