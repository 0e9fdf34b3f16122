"""The watchers that an engine was told of: it asks them when somebody asks for them.

Watchers need no engine, and send it no more than what they find. Where they serve their status is
told when the engine is started (`--watcher`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from millstream.errors import MillstreamError
from millstream.watch.asking import asked

_TIMEOUT_S: Final = 3.0
_AT_ONCE: Final = 8


class WatcherSeen(msgspec.Struct, frozen=True):
    """A watcher: its status, as it says itself (`millstream watch status --json`), or why not."""

    url: str
    status: dict[str, Any] | None = None
    problem: str | None = None


def seen(urls: Sequence[str]) -> list[WatcherSeen]:
    """Ask all watchers, some at once."""
    if not urls:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(urls))) as pool:
        return list(pool.map(_one, urls))


def _one(url: str) -> WatcherSeen:
    try:
        found = asked(url, timeout=_TIMEOUT_S)
        return WatcherSeen(url, msgspec.json.decode(found, type=dict[str, Any]))
    except (MillstreamError, msgspec.MsgspecError) as error:
        return WatcherSeen(url, problem=str(error))
