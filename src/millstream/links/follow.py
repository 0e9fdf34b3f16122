"""What travels between an engine that follows a partition and the one that has it.

follower                                     owner
   |--- follow: how far my copy goes ---------->|   answered when there is more, or after a while
   |<-- followed: the bytes that come next -----|
   |--- passed: how far my readers are -------->|   so that it removes only what nobody needs
   |--- level: you are idle, say so ----------->|   done, unless something has come meanwhile
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from millstream.links.frame import Checksum, Count, Frame, Moment, Name, Number

if TYPE_CHECKING:  # those who only send rows need no copies
    from millstream.journal.copies import Reached, ReplicaChunk

LONGEST_S = 60.0
"""How long a request may wait for news."""


class CopyReached(msgspec.Struct, frozen=True, array_like=True):
    """How far a copy has come: the fields of `Reached`."""

    segment: Number
    header: Checksum
    entries: Count
    entry: Checksum
    data: Count
    end: Count
    senders: Count
    schemas: Count

    @classmethod
    def of(cls, reached: Reached) -> CopyReached:
        return msgspec.convert(reached, cls, from_attributes=True)

    def plain(self) -> Reached:
        from millstream.journal.copies import Reached

        return Reached(**msgspec.structs.asdict(self))


class Follow(Frame, frozen=True, tag="follow"):
    """What comes after this? Answer within `wait_s`, with nothing if there is nothing."""

    source: Name
    partition: Count
    reached: CopyReached
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class Level(Frame, frozen=True, tag="level"):
    """Say that nothing before `floor` will come, if nothing has come after `position`."""

    source: Name
    partition: Count
    floor: Moment
    position: Count


class Passed(Frame, frozen=True, tag="passed"):
    """The readers of the copy, and how far they are; what lies before `begin` was removed here."""

    source: Name
    partition: Count
    readers: dict[Name, Count]
    begin: Count


class Followed(Frame, frozen=True, tag="followed"):
    """What comes next: the fields of `ReplicaChunk`."""

    segment: Number
    start: Count
    begin: Count
    behind: Count
    header: bytes
    data: bytes
    index: bytes
    senders: tuple[str, ...]
    description: bytes
    anew: bool

    @classmethod
    def of(cls, request: int, piece: ReplicaChunk) -> Followed:
        return cls(
            request,
            piece.segment,
            piece.start,
            piece.begin,
            piece.behind,
            piece.header,
            piece.data,
            piece.index,
            piece.senders,
            piece.description,
            piece.anew,
        )

    def piece(self) -> ReplicaChunk:
        from millstream.journal.copies import ReplicaChunk

        fields = msgspec.structs.asdict(self)
        del fields["request"]
        return ReplicaChunk(**fields)
