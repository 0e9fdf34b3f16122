"""What a copy of a partition asks of its original, and what that answers.

A copy is the original byte for byte: its segments, their indexes, the senders' names. The checksums
say that the two are still the same: that of the segment's header, which holds the state at its
start, and that of the last entry, which holds its position, its times and the checksum of its data.
"""

from __future__ import annotations

from dataclasses import dataclass

NOWHERE = -1
"""The segment of a copy that has none."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a copy has come: `entries` and `data` bytes of one segment; checksum 0: unknown.

    The data may reach further than the entries: an entry is sent after its data, which may take
    several pieces.
    """

    segment: int = NOWHERE
    header: int = 0
    entries: int = 0
    entry: int = 0
    data: int = 0
    end: int = 0
    senders: int = 0
    schemas: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaChunk:
    """What follows: bytes of one segment, from `start` of its data on, and whole entries.

    Its data ends where its last entry's does, unless there are no entries: then it is a part of the
    next one's.
    """

    segment: int
    start: int
    #: The first position that the original still has.
    begin: int
    #: How many bytes there are after this piece.
    behind: int
    #: The index's header, if the segment is to be begun.
    header: bytes = b""
    data: bytes = b""
    index: bytes = b""
    #: The names of the senders after those that the copy has.
    senders: tuple[str, ...] = ()
    #: The journal's description, if the copy may not have it.
    description: bytes = b""
    #: The original does not go back to where the copy is: what the copy holds is to be removed.
    anew: bool = False

    @property
    def empty(self) -> bool:
        return not (self.header or self.data or self.index or self.description)
