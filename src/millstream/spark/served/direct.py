"""Rows that executors fetch themselves, where journals are in reach of all hosts.

The driver's service reads them for an executor that cannot: one that does not reach the broker, has no value for
the secret that the broker wants, or no library to ask with. That is tried again after a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millstream.errors import BrokerError, MissingExtra, SecretMissing
from millstream.journal import Excerpt, Slice

_log = logging.getLogger(__name__)
_AGAIN_S: Final = 300.0
#: When places may be asked again that this process does not reach.
_ask_at: dict[str, float] = {}


def slices_of(
    excerpt: Excerpt,
    start: int,
    stop: int,
    columns: Sequence[str],
    otherwise: Callable[[], Iterator[Slice]],
) -> Iterator[Slice]:
    """Yield what lies in [start, stop); what `otherwise` yields if it is not in reach."""
    first: Slice | None = None
    slices: Iterator[Slice] | None = None
    if time.monotonic() >= _ask_at.get(excerpt.place, 0.0):
        try:
            slices = excerpt.read(start, stop, columns)
            first = next(slices, None)
        except (BrokerError, SecretMissing, MissingExtra) as error:
            _log.warning("the driver reads %s for this executor: %s", excerpt.place, error)
            _ask_at[excerpt.place] = time.monotonic() + _AGAIN_S
            slices = None
    if slices is None:
        yield from otherwise()
    elif first is not None:
        yield first
        yield from slices
