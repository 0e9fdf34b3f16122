"""What devices write to each other, and to their disks: flat msgspec records, never pickle."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from millstream.watch.choice import Kind

EventId = tuple[str, int]
"""The sender of an event and its number there: an event that reaches two devices is one event."""

Status = Literal[0, 1, 2]
LIVE: Status = 0
HALTED: Status = 1
COMPLETED: Status = 2

MOST_NAME = 256
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_NAME)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
#: A time that a datetime can have, from the year 1 to 9999.
Time = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]


class Fork(NamedTuple):
    """Where a run left the one that it comes from: which block took an event, after how many.

    The event counts where the other run can take the block again; where it cannot, events compete
    for the place.
    """

    event: tuple[str, int] | None
    block: int
    depth: int


class RunId(NamedTuple):
    """A run: the same on every device."""

    pattern: str
    key: tuple[Any, ...]
    first: tuple[str, int]
    forks: tuple[Fork, ...] = ()

    def text(self) -> str:
        """Return the id in full, for those who debug; users know a run by `run_text` of it."""
        forks = "".join(
            f"/{'' if fork.event is None else '{}:{}'.format(*fork.event)}@{fork.block}.{fork.depth}"
            for fork in self.forks
        )
        key = ",".join(str(part) for part in self.key)
        return f"{self.pattern}|{key}|{self.first[0]}:{self.first[1]}{forks}"


class Happened(msgspec.Struct, frozen=True, array_like=True):
    """An event of a run's history: the columns that conditions and outputs look at."""

    sender: Name
    number: Count
    at: Time
    row: dict[str, Any]


class RunRecord(msgspec.Struct, frozen=True, array_like=True):
    """A state of a run.

    Its history is for each event the block that took it, and the event's place in the list beside.
    `states` are the automaton's after it, and `waits` counts the moves since the last event that
    was taken; `by` names the device whose event completed or halted the run.
    """

    id: RunId
    status: Status
    history: list[tuple[Count, Count]]
    states: list[Count] = []
    waits: Count = 0
    by: str = ""
    at: Time = 0


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first message on a connection."""

    device: Name
    incarnation: Name
    digest: str
    clock: Moment


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a hello: go on."""

    device: Name
    incarnation: Name
    clock: Moment


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to what is not accepted."""

    reason: str


class Say(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """SYNC, PING or RESYNC; `reset` asks for a RESYNC in return.

    `position` is the place in the sender's change log up to which the receiver then knows all.
    """

    kind: Kind
    number: Count
    reset: bool
    position: Count
    events: list[Happened] = []
    runs: list[RunRecord] = []
    delivered: list[RunId] = []
    clock: Moment = 0
    incarnation: str = ""


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message was merged and written to disk; `reset` asks for a RESYNC."""

    number: Count
    reset: bool
    clock: Moment = 0


class Records(msgspec.Struct, frozen=True, array_like=True):
    """What a device's disk holds of a moment: events, and the states of runs that changed."""

    events: list[Happened] = []
    runs: list[RunRecord] = []
    delivered: list[RunId] = []
    remembered: list[tuple[str, tuple[Any, ...], Count]] = []
    now: Moment = 0
