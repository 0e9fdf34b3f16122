"""The seam to where rows come from: an origin pumps its rows into a feed."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import InternalError
from millstream.flow.sources import SourceSpec
from millstream.ingest.feed import Feed

Pause = Callable[[float], bool]
"""Waits so many seconds; False means that the source is being stopped."""

#: Rows that an origin hands over at a time.
CHUNK: Final = 16_384


class Origin(Protocol):
    """Something that brings rows, each with a number that never changes and that rises.

    The journal remembers the highest number of every sender (`Feed.highest`), also across crashes.
    An origin that is opened again may begin anywhere before that: rows that the journal has are
    passed over. A record that makes no row is refused under its number, and kept as a dead letter.
    """

    def pump(self, feed: Feed, pause: Pause) -> bool:
        """Bring rows until there are no more (True) or `pause` returns False (False).

        Between two blocks it calls `pause`, with 0 if there is nothing to wait for. It calls
        `feed.flush` before it acknowledges rows elsewhere, and before it returns True.
        """
        ...


@dataclass(frozen=True, slots=True)
class OriginContext:
    """What an origin is opened for: a source, its columns and time, its journal's folder."""

    source: str
    schema: pa.Schema
    time: str | None
    journal: Path
    #: What relative paths count from.
    root: Path
    clock: Clock
    #: How late rows of the source may be.
    lateness: timedelta = timedelta(0)


def open_origin(spec: SourceSpec, context: OriginContext) -> Origin:
    """Open what a source reads."""
    if spec.reader is None:
        raise InternalError(f'source "{context.source}" has nothing to read')
    origin: Origin = pkgutil.resolve_name(spec.reader)(spec, context)
    return origin
