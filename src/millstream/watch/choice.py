"""Which message goes to which peer now: pure rules.

                    0            ping period        resync period
    last success ───┼────────────────┼────────────────────┼───────────────▶ time
    to say          │ SYNC           │ SYNC               │ RESYNC; the stash is wiped
    nothing to say  │ -              │ PING               │ RESYNC

A peer that was never reached gets a RESYNC, and so does one that asked for it with RESET or whose
part of the change log was trimmed. Our own RESET stays on every message to a peer until a RESYNC of
that peer was merged.

A peer without a connection is greeted first, and gets its message when it has answered. One message
at a time is on its way to a peer. After one that was not acknowledged, the next waits for the time
that its kind has to wait: an attempt is repeated, but not hammered. After one that was acknowledged,
nothing waits. Times are microseconds of a clock that does not jump (`elapsed_us`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from millstream.clock import MICROSECOND
from millstream.errors import InvalidSettings
from millstream.flow import durations

_SECOND: Final = 1_000_000


class Kind(StrEnum):
    """What a message is for."""

    SYNC = "sync"
    """The newest changes of runs."""
    PING = "ping"
    """Nothing to say: are you there?"""
    RESYNC = "resync"
    """The whole state."""


@dataclass(frozen=True, slots=True)
class Periods:
    """When which message is due, in microseconds since the last success or the last attempt."""

    ping: int = 30 * _SECOND
    resync: int = 60 * _SECOND
    stash_again: int = 5 * _SECOND
    ping_again: int = 5 * _SECOND
    resync_again: int = 10 * _SECOND
    limit: int = 3 * _SECOND
    """How long connecting, sending and receiving may take."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                msg = f'the period "{field.name}" has no length'
                raise InvalidSettings(msg, hint='write a length of time, like "30 s"')
        if self.ping >= self.resync:
            msg = f'the period "ping" ({_text(self.ping)}) is not below "resync"'
            hint = f'"resync" is {_text(self.resync)}: a peer is pinged before it counts as away'
            raise InvalidSettings(msg, hint=hint)

    def again(self, kind: Kind) -> int:
        """Return how long a message of a kind waits after an attempt that failed."""
        if kind is Kind.SYNC:
            return self.stash_again
        return self.ping_again if kind is Kind.PING else self.resync_again


@dataclass(frozen=True, slots=True)
class Contact:
    """What we know of the way to a peer. `since`: from when on we could have reached it."""

    since: int
    succeeded_at: int | None = None
    attempted_at: int | None = None
    heard_at: int | None = None
    """When the peer's last message came."""
    asked_at: int | None = None
    """When the peer asked for a RESYNC that it has not got yet."""
    reset: bool = True
    """Whether we want a RESYNC of the peer."""
    on_its_way: Kind | None = None
    """The message whose acknowledgement or failure is awaited."""
    failed: bool = False
    """Whether the last attempt failed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A message that is due; `reset` asks the peer for a RESYNC."""

    kind: Kind
    reset: bool


def choose(
    contact: Contact, periods: Periods, now: int, *, stash: bool, trimmed: bool = False
) -> Choice | None:
    """Return the message that is due now, if any.

    Args:
        contact: What we know of the way to the peer.
        periods: When what is due.
        now: The time.
        stash: Whether there are changes that the peer has not acknowledged.
        trimmed: Whether the change log no longer has all of them.
    """
    kind = _wanted(contact, periods, now, stash=stash, trimmed=trimmed)
    if kind is None or contact.on_its_way is not None:
        return None
    begun = contact.attempted_at
    if contact.failed and begun is not None and now - begun < periods.again(kind):
        return None
    return Choice(kind, contact.reset)


def due_at(
    contact: Contact, periods: Periods, now: int, *, stash: bool, trimmed: bool = False
) -> int | None:
    """Return when to choose again if nothing happens until then.

    None: not before the message that is on its way was acknowledged or has failed.
    """
    if contact.on_its_way is not None:
        return None
    success = contact.since if contact.succeeded_at is None else contact.succeeded_at
    moments = [now, success + periods.ping, success + periods.resync]
    if contact.attempted_at is not None:
        moments += [contact.attempted_at + periods.again(kind) for kind in Kind]
    moments = sorted(moment for moment in moments if moment >= now)
    given = {"stash": stash, "trimmed": trimmed}
    found = (one for one in moments if choose(contact, periods, one, **given) is not None)
    return next(found, None)


def _wanted(
    contact: Contact, periods: Periods, now: int, *, stash: bool, trimmed: bool
) -> Kind | None:
    if contact.succeeded_at is None or contact.asked_at is not None or trimmed:
        return Kind.RESYNC
    if now - contact.succeeded_at >= periods.resync:
        return Kind.RESYNC
    if stash:
        return Kind.SYNC
    return Kind.PING if now - contact.succeeded_at >= periods.ping else None


def wiped(contact: Contact, periods: Periods, now: int) -> bool:
    """Tell whether a peer's stash is of no use any more, because its next message is a RESYNC."""
    return contact.succeeded_at is None or now - contact.succeeded_at >= periods.resync


def away(contact: Contact, periods: Periods, now: int) -> bool:
    """Tell whether a peer is away: neither reached nor heard of for the resync period."""
    signs = (contact.since, contact.succeeded_at, contact.heard_at)
    return now - max(sign for sign in signs if sign is not None) >= periods.resync


# what happens to a contact


def attempted(contact: Contact, kind: Kind, now: int) -> Contact:
    """A message was handed to the network."""
    return replace(contact, attempted_at=now, on_its_way=kind)


def greeted(contact: Contact) -> Contact:
    """The peer is there, which a first attempt found out: nothing waits."""
    return replace(contact, on_its_way=None, failed=False)


def succeeded(contact: Contact, now: int, *, asks: bool = False) -> Contact:
    """The message was acknowledged; `asks`: the acknowledgement has the peer's RESET."""
    asked_at = contact.asked_at
    if contact.on_its_way is Kind.RESYNC and _before(asked_at, contact.attempted_at):
        asked_at = None  # it has been answered
    return replace(
        contact,
        succeeded_at=now,
        asked_at=now if asks else asked_at,
        on_its_way=None,
        failed=False,
    )


def failed(contact: Contact) -> Contact:
    """The message was not acknowledged in time, or was refused."""
    return replace(contact, on_its_way=None, failed=True)


def heard(contact: Contact, now: int, *, asks: bool, resync: bool = False) -> Contact:
    """A message of the peer came; `asks`: with RESET; `resync`: a RESYNC, which was merged."""
    return replace(
        contact,
        heard_at=now,
        asked_at=now if asks else contact.asked_at,
        reset=contact.reset and not resync,
    )


def _before(asked_at: int | None, attempted_at: int | None) -> bool:
    return asked_at is None or (attempted_at is not None and asked_at <= attempted_at)


def _text(microseconds: int) -> str:
    return durations.format(microseconds * MICROSECOND)
