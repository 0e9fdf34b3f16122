"""The entries of a job's log, and what they amount to."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from millstream.errors import LogDamaged

#: No generation: nobody has claimed the job yet.
NOBODY: Final = -1


class Holder(msgspec.Struct, frozen=True):
    """Who drives a job: for people to read, and for engines to know their own."""

    host: str
    process: int
    since_us: int = 0
    #: The id of its engine, if it has one: leases go by it.
    engine: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Decided(msgspec.Struct, frozen=True):
    """An epoch that exists."""

    epoch: int
    #: What the target publishes: it alone can read it.
    content: str
    #: What Spark had logged for the batch: whoever runs it again reads the same.
    offsets: str = ""


class State(msgspec.Struct, frozen=True):
    """What all entries up to some number amount to."""

    generation: int = NOBODY
    holder: Holder | None = None
    released: bool = True
    #: The last decision of every sender and target.
    decided: dict[str, Decided] = {}
    #: The offsets of the epoch before it, if that was decided too.
    before: dict[str, str] = {}
    #: The record of the job's switches.
    switch: str | None = None
    #: The numbers of all claims: their slots are never freed.
    claims: tuple[int, ...] = ()
    #: The state in which the job rests, if nobody is to run it: "drained", "finished" ...
    settled: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What all entries have: a token that no other entry has, so that a writer knows its own."""

    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)


class Claim(Entry, frozen=True, tag="claim"):
    """A driver takes the job; its generation is the number of this entry."""

    holder: Holder


class Written(Entry, frozen=True, kw_only=True):
    """An entry of a driver that has the job."""

    generation: int


class Decision(Written, frozen=True, tag="decision"):
    """An epoch exists from now on."""

    key: str
    decided: Decided


class SwitchStep(Written, frozen=True, tag="switch"):
    """A switch has taken a step."""

    record: str


class Renewal(Written, frozen=True, tag="renewal"):
    """The driver is alive."""


class Release(Written, frozen=True, tag="release"):
    """The driver has stopped, and nobody needs to wait for it."""


class Settled(Written, frozen=True, tag="settled"):
    """The job rests in a state, and nobody is to run it; with None it is to run again."""

    state: str | None


class Summary(Written, frozen=True, tag="summary"):
    """What everything before amounts to: nobody reads further back."""

    state: State


AnyEntry = Claim | Decision | SwitchStep | Renewal | Release | Settled | Summary


def encode(entry: AnyEntry) -> bytes:
    """Return an entry as it is stored."""
    return msgspec.json.encode(entry)


def decode(content: bytes) -> AnyEntry:
    """Return an entry from what is stored.

    Raises:
        LogDamaged: It is none.
    """
    try:
        entry: AnyEntry = msgspec.json.decode(content, type=AnyEntry)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"an entry of the job's log cannot be read: {error}") from error
    return entry


def after(state: State, number: int, entry: AnyEntry) -> State:
    """Return what everything up to an entry amounts to.

    Raises:
        LogDamaged: It is of a driver that did not have the job.
    """
    change = msgspec.structs.replace
    if isinstance(entry, Claim):
        claims = (*state.claims, number)
        return change(state, generation=number, holder=entry.holder, released=False, claims=claims)
    if entry.generation != state.generation:
        msg = f"entry {number} of the job's log is of generation {entry.generation}"
        hint = "does anything else write there?"
        raise LogDamaged(f"{msg}, and the job was generation {state.generation}'s", hint=hint)
    match entry:
        case Decision():
            return _decided(state, entry.key, entry.decided)
        case SwitchStep():
            return change(state, switch=entry.record)
        case Release():
            return change(state, released=True)
        case Settled():
            return change(state, settled=entry.state)
        case _:
            return state


def _decided(state: State, key: str, decided: Decided) -> State:
    last = state.decided.get(key)
    offsets = last.offsets if last is not None and last.epoch == decided.epoch - 1 else ""
    return msgspec.structs.replace(
        state,
        decided={**state.decided, key: decided},
        before={**state.before, key: offsets},
    )
