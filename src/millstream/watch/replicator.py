"""A device among its peers: drives it over the wire and the disk.

    events ──▶ device ──▶ records ──▶ disk, synced ──▶ what is complete
                                            └────────▶ messages that are due ──▶ peers
    a peer's message ──▶ device ──▶ records ──▶ disk, synced ──▶ acknowledgement

Whoever uses the device holds `lock`, and calls `save` before anything leaves and `wake` afterwards.
One thread listens, another one sends: it sleeps until a message is due, an answer comes, or it is
woken.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from millstream.clock import MICROSECOND, Clock, SystemClock
from millstream.errors import DeviceRefused, StateDamaged, StateNotWritten
from millstream.links.transport import Loop
from millstream.watch import choice
from millstream.watch.device import Complete, Device
from millstream.watch.disk import Store
from millstream.watch.messages import Ack, Hello, Records, Say
from millstream.watch.pieces import pieces
from millstream.watch.session import Acknowledged, Failed, Greeted, Sender, Sessions
from millstream.watch.settings import Settings
from millstream.watch.wire import Line, Listener, own_key

_log = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0

OnComplete: TypeAlias = Callable[[Complete, bool], None]
"""Gets a match, and whether this device publishes it. Called without the lock; it must be quick."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot on disk: of which patterns, and the state."""

    digest: str
    state: Records


_snapshots: Final = msgspec.msgpack.Decoder(Stored)
_records: Final = msgspec.msgpack.Decoder(Records)
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """What is known of a peer. Times are seconds ago; None: never."""

    name: str
    address: str
    away: bool
    reached_s: float | None
    heard_s: float | None
    stash: int
    resync: bool
    """Whether its next message is a RESYNC."""
    offset_s: float | None
    """How far its clock is ahead of ours."""
    incarnation: str | None
    reason: str | None
    """Why the last message to it failed."""
    refused: tuple[int, str] | None
    """How many of its messages were refused here, and why the last one."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The state of replication on a device."""

    device: str
    incarnation: str
    digest: str
    peers: tuple[PeerStatus, ...]
    strangers: tuple[int, str] | None
    """How many messages of unknown devices were refused, and why the last one."""
    log_bytes: int
    unwritten: str | None
    """Why the disk does not take the state; nothing leaves the device meanwhile."""


class Replicator:
    """Drives a device; `start` connects it to its peers.

    Args:
        device: What matches and merges.
        settings: Where the peers are, periods, limits.
        store: The device's files; None keeps nothing.
        on_complete: Gets matches that peers' messages complete, and those of peers that are away.
        stamps: Whether devices stamp events: then their clocks have to agree.
        clock: The machine's.

    Raises:
        StateDamaged: The files are damaged.
    """

    def __init__(
        self,
        device: Device,
        settings: Settings,
        store: Store | None = None,
        *,
        on_complete: OnComplete = lambda _complete, _publish: None,
        stamps: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._device, self._settings, self._store = device, settings, store
        self._on_complete, self._stamps = on_complete, stamps
        self._clock = clock or SystemClock()
        self.digest = digest_of(device)
        self.lock = threading.RLock()
        self._sessions = Sessions(
            device.name, device.incarnation, self.digest, [peer.name for peer in settings.peers]
        )
        self._lines: dict[str, Line] = {}
        self._reasons: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._listener: Listener | None = None
        self._loop: Loop | None = None
        self._unwritten: str | None = None
        if store is not None:
            self._recover(store)

    # what the watcher calls

    def start(self) -> None:
        """Listen, and begin to speak to peers.

        Raises:
            InvalidSettings: A device has no key.
            InvalidKey: The file of ours is missing, damaged or open to others.
            LinkBroken: The port is taken.
        """
        if not self._settings.peers:
            return
        keys = own_key(self._settings)
        self._listener = Listener(self._settings, keys, self._sessions, self._merge, self._clock)
        self._loop = loop = Loop("watcher")
        skew = self._settings.skew // MICROSECOND if self._stamps else None
        hello = Hello(self._device.name, self._device.incarnation, self.digest, 0)
        for peer in self._settings.peers:
            sender = Sender(peer.name, hello, limit=self._settings.periods.limit, skew=skew)
            self._lines[peer.name] = Line(loop, peer, keys, sender, self._clock, self._done)
        loop.turn = self._turn
        self._listener.start()
        loop.start()

    def stop(self) -> None:
        """End; what is on its way may or may not arrive, and is sent again by the next start."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._loop is not None:
            self._loop.turn = lambda _now: None  # nothing is sent any more
            for line in self._lines.values():
                self._loop.soon(line.close)
            self._loop.stop()
            self._loop = None

    def save(self) -> None:
        """Make durable what the device knows; you hold the lock.

        Raises:
            StateNotWritten: The disk refused.
        """
        records = self._device.records()
        if self._store is None or (records is None and self._unwritten is None):
            return
        try:
            if self._store.full:
                self._store.begin(self._snapshot())
            elif records is not None:
                self._store.append(_encode(records))
        except StateNotWritten as error:
            if self._unwritten is None:
                _log.error("%s", error)
            self._unwritten = error.message
            raise
        self._unwritten = None

    def wake(self) -> None:
        """Send what has become due; any thread may ask."""
        if self._loop is not None:
            self._loop.soon(_nothing)

    def status(self) -> Replication:
        """Return how replication stands."""
        refusals = {} if self._listener is None else self._listener.refusals()
        with self.lock:
            peers = tuple(self._peer(name, refusals) for name in self._device.contacts)
            known = set(self._device.contacts)
            strangers = next((one for name, one in refusals.items() if name not in known), None)
            log_bytes = 0 if self._store is None else self._store.log_bytes
            return Replication(
                self._device.name,
                self._device.incarnation,
                self.digest,
                peers,
                strangers,
                log_bytes,
                self._unwritten,
            )

    # the disk

    def _recover(self, store: Store) -> None:
        found = store.recover()
        if found.snapshot is not None:
            try:
                stored = _snapshots.decode(found.snapshot)
                if stored.digest == self.digest:
                    for records in (stored.state, *map(_records.decode, found.records)):
                        self._device.restore(records)
                else:
                    _log.warning("the patterns have changed since: the stored runs are left out")
            except msgspec.MsgspecError as error:
                msg = f"the stored state cannot be read: {error}"
                raise StateDamaged(msg, hint="move the folder away to start empty") from error
        store.begin(self._snapshot())

    def _snapshot(self) -> bytes:
        return _encode(Stored(self.digest, self._device.snapshot()))

    # the wire

    def _merge(self, peer: str, say: Say) -> Ack:
        """Merge a peer's message; on the listener's thread."""
        with self.lock:
            now, clock = self._clock.elapsed_us(), self._clock.now_us()
            try:
                ack, found = self._device.receive(peer, say, now, clock=clock)
            except DeviceRefused as error:
                self._note_refusal(peer, error.message)
                raise
            self._refused.pop(peer, None)
            self.save()
        self.wake()
        for complete in found:
            self._on_complete(complete, complete.by == self._device.name)
        return ack

    def _note_refusal(self, peer: str, reason: str) -> None:
        if self._refused.get(peer) != _gist(reason):
            self._refused[peer] = _gist(reason)
            _log.warning("a message of peer %s is refused: %s", peer, reason)

    def _turn(self, _now: float) -> float | None:
        """Send what is due; return when to look again, in seconds."""
        with self.lock:
            for line in self._lines.values():
                line.look()
            now = self._clock.elapsed_us()
            try:
                self.save()
            except StateNotWritten:
                return now / 1e6 + _AGAIN_S
            ready = {peer for peer, line in self._lines.items() if line.greeted}
            for peer in self._device.contacts.greetings(now, ready=ready):
                self._lines[peer].greet()
            for peer, say in self._device.due(now, ready=ready):
                self._lines[peer].send(pieces(say, self._settings.limits.piece))
            orphans = self._device.orphans(now)
            moments = [
                self._device.contacts.due_at(now),
                *(line.deadline for line in self._lines.values()),
            ]
        for complete in orphans:
            self._on_complete(complete, True)
        waits = [moment for moment in moments if moment is not None]
        return min(waits) / 1e6 if waits else None

    def _done(self, peer: str, outcome: Greeted | Acknowledged | Failed) -> None:
        with self.lock:
            if isinstance(outcome, Greeted):
                self._device.contacts.greeted(peer, found=True)
                return
            if isinstance(outcome, Acknowledged):
                self._reasons.pop(peer, None)
                self._device.acknowledged(peer, outcome.ack, self._clock.elapsed_us())
                return
            if _gist(self._reasons.get(peer, "")) != _gist(outcome.reason):
                level = logging.WARNING if outcome.refused else logging.INFO
                _log.log(level, "peer %s: %s", peer, outcome.reason)
            self._reasons[peer] = outcome.reason
            if outcome.number is None:
                self._device.contacts.greeted(peer, found=False)
            else:
                self._device.failed(peer, outcome.number)

    def _peer(self, name: str, refusals: Mapping[str, tuple[int, str]]) -> PeerStatus:
        now = self._clock.elapsed_us()
        contact, log = self._device.contacts[name], self._device.log
        line = self._lines.get(name)
        offset = None if line is None else line.offset
        return PeerStatus(
            name,
            next(peer.address for peer in self._settings.peers if peer.name == name),
            choice.away(contact, self._settings.periods, now),
            _ago(contact.succeeded_at, now),
            _ago(contact.heard_at, now),
            log.stash(name),
            log.trimmed(name) or contact.asked_at is not None,
            None if offset is None else offset / 1e6,
            self._sessions.incarnation(name),
            self._reasons.get(name),
            refusals.get(name),
        )


def digest_of(device: Device) -> str:
    """Return what two devices compare: equal if they watch the same patterns."""
    found = sorted(matcher.pattern.digest for matcher in device.matchers.values())
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _ago(moment: int | None, now: int) -> float | None:
    return None if moment is None else (now - moment) / 1e6


def _gist(reason: str) -> str:
    """Return a reason without its numbers, which change with every attempt."""
    return "".join(letter for letter in reason if not letter.isdigit())


def _nothing() -> None:
    """What a loop does when it is woken: it takes its turn."""
