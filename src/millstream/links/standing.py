"""Who is at the other end of a connection.

own         this process, a UNIX socket of this user, or our own key
producer    a key that we know
open        TCP without keys
unknown     a key that was removed since it connected

What each of them may ask of an inbox is in peers.py. This file is apart from it because a watcher,
which has no Arrow, knows peers too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.links.grants import ROWS_ONLY, Grant


class Standing(Enum):
    """What a peer is to us."""

    OWN = "own"
    PRODUCER = "producer"
    OPEN = "open"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end; `name` is that of its key."""

    standing: Standing
    name: str | None = None
    grant: Grant = ROWS_ONLY


OWN: Final = Peer(Standing.OWN)
OPEN: Final = Peer(Standing.OPEN)
UNKNOWN: Final = Peer(Standing.UNKNOWN)
