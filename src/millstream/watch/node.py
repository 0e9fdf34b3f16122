"""A device with its outbox, in the order that loses nothing.

    events ──▶ device ──▶ outbox, synced ──▶ the device's log, synced ──▶ acknowledged, released

A crash before the last step forgets the events, which come again since nobody acknowledged them;
what they had found is in the outbox, where it is found again by its run. A crash after it forgets
nothing. What a peer's message completes is in the log first, and is looked for there at the start.

Peers learn that a match is delivered when all outputs have it. Until then they publish it if this
device is away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from millstream.clock import Clock
from millstream.errors import QueueFull, StateNotWritten, WatchError
from millstream.watch import choice
from millstream.watch.complex_event import ComplexEvent, run_text
from millstream.watch.device import Complete, Device
from millstream.watch.disk import Store
from millstream.watch.inputs import EventId, Rejected
from millstream.watch.messages import RunId
from millstream.watch.outbox import Outbox
from millstream.watch.replicator import Replication, Replicator
from millstream.watch.settings import Settings, taker

#: How many runs are listed that some peer does not know.
MOST: Final = 20
_AGAIN_S: Final = 0.5
_NEVER: Final = -(1 << 62)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What a watcher has done since it was started."""

    events: int = 0
    elsewhere: int = 0
    found: dict[str, int] = field(default_factory=dict)


class _Stuck(NamedTuple):
    """What there is to tell while the disk refuses."""

    live: dict[str, int]
    unknown: dict[str, list[str]]
    replication: Replication


Event = tuple[EventId, int, Mapping[str, Any], str | None]
"""An event of ours: id, time, row, and the sensor that it is shared by, if devices share sensors."""


class Node:
    """A device that is open. Any thread may call.

    Args:
        device: What matches and merges.
        settings: Its peers, periods and limits.
        clock: The machine's.
        store: The device's files; None keeps nothing.
        outbox: Where complex events wait for their outputs.
        lateness: How long absence waits for events that are late, in microseconds.
        stamps: Whether events have this device's time.
        on_found: Gets what this device publishes.
        on_failed: Gets matches whose columns could not be computed.
    """

    def __init__(
        self,
        device: Device,
        settings: Settings,
        clock: Clock,
        *,
        store: Store | None = None,
        outbox: Outbox | None = None,
        lateness: int = 0,
        stamps: bool = False,
        on_found: Callable[[Sequence[ComplexEvent]], None] = lambda _: None,
        on_failed: Callable[[Complete], None] = lambda _: None,
    ) -> None:
        self.device, self._settings, self._clock = device, settings, clock
        self.outbox = outbox
        self.counts = Counts()
        self.stopping = threading.Event()
        self._on_found, self._on_failed, self._lateness = on_found, on_failed, lateness
        self._stuck: _Stuck | None = None
        #: The largest time of an event, and when that came.
        self._newest = (_NEVER, 0)
        self._saves = store is not None
        self._replicator = Replicator(
            device, settings, store, on_complete=self._completed, stamps=stamps, clock=clock
        )
        self._guard = self._replicator.lock
        #: The runs that some outputs do not have, by the texts that stand for them there.
        self._left: dict[str, RunId] = {}
        if outbox is not None:
            outbox.on_delivered = self._delivered
            outbox.release()
        self._publish(device.undelivered)

    def start(self) -> None:
        """Listen to the peers, and speak to them."""
        self._replicator.start()

    # events

    def take(self, events: Sequence[Event]) -> tuple[list[ComplexEvent], list[Rejected]]:
        """Take events in, and return what they complete; they are durable when this returns.

        Raises:
            WatchError: The watcher stopped before they were.
        """
        completes: list[Complete] = []
        bad: list[Rejected] = []
        taken = 0
        now, newest = self._clock.now_us(), self._newest[0]
        # An event that is far ahead of the clock must not end the runs of others.
        ahead = now + self.device.sharing.ahead
        offer, failures = self.device.event, self.device.failures
        with self._guard:
            present = self._present() if self._settings.sensors else None
            for place, (event_id, at, row, sensor) in enumerate(events):
                if present is not None and self._elsewhere(sensor, present):
                    self.counts.elsewhere += 1
                    continue
                completes += offer(event_id, at, row, clock=now)
                if failures:
                    bad.append(Rejected(place, failures[0].message))
                    failures.clear()
                    continue
                taken += 1
                if newest < at <= ahead:
                    newest = at
            self.counts.events += taken
            if newest > self._newest[0]:
                self._newest = newest, self._clock.elapsed_us()
            found = self._committed(completes) if completes or self._saves else []
        self._replicator.wake()
        if found:
            self._on_found(found)
        return found, bad

    def _present(self) -> frozenset[str]:
        periods, now = self._settings.periods, self._clock.elapsed_us()
        contacts = self.device.contacts.items()
        return frozenset(
            [self.device.name, *(n for n, one in contacts if not choice.away(one, periods, now))]
        )

    def _elsewhere(self, sensor: str | None, present: frozenset[str]) -> bool:
        """Tell whether another device takes a sensor."""
        if sensor is None:
            return False
        return taker(sensor, self._settings, present) not in (None, self.device.name)

    def tick(self) -> None:
        """Let time pass: what is complete by that is found.

        Events of a key do this for their own key; this looks at all of them.
        """
        with self._guard:
            at, came = self._newest
            if at == _NEVER:
                return
            # Without events, their time passes as the clock does.
            past = at + self._clock.elapsed_us() - came - self._lateness
            found = self._committed(self.device.advance(past))
        if found:
            self._replicator.wake()
            self._tell(found)

    # what is found

    def _committed(self, completes: Iterable[Complete]) -> list[ComplexEvent]:
        """Make durable what the device knows, and what it publishes of that."""
        ours = [one for one in completes if one.by == self.device.name]
        found = self._complex_events(ours)
        if self.outbox is not None and found:
            self._until_room(partial(self.outbox.append, found))
        self._note(ours)
        if self._saves:
            self._until_room(self._replicator.save)
        if self.outbox is not None:
            self.outbox.release()
        for event in found:
            self.counts.found[event.pattern] = self.counts.found.get(event.pattern, 0) + 1
        return found

    def _completed(self, complete: Complete, publish: bool) -> None:
        """Take what a peer's message completed, and what one that is away left."""
        if publish:
            self._publish([complete])

    def _publish(self, completes: Sequence[Complete]) -> None:
        if not completes:
            return
        with self._guard:
            found = self._complex_events(completes)
            if self.outbox is not None:
                self._until_room(partial(self.outbox.append, found))
                self.outbox.release()
            self._note(completes)
            for event in found:
                self.counts.found[event.pattern] = self.counts.found.get(event.pattern, 0) + 1
        self._tell(found)

    def _note(self, completes: Iterable[Complete]) -> None:
        """Note that matches are delivered, or that they will be: a device alone needs no more."""
        for one in completes:
            if self.outbox is not None and self.device.contacts and one.failed is None:
                self._left[run_text(one.id)] = one.id
            else:
                self.device.delivered(one.id)

    def _delivered(self, runs: Sequence[str]) -> None:
        """Let peers know that all outputs have the matches of some runs."""
        with self._guard:
            for run in runs:
                if run in self._left:
                    self.device.delivered(self._left.pop(run))
            if self._saves:
                self._until_room(self._replicator.save)
        self._replicator.wake()

    def _tell(self, found: Sequence[ComplexEvent]) -> None:
        if found:
            self._on_found(found)

    def _complex_events(self, completes: Iterable[Complete]) -> list[ComplexEvent]:
        found = []
        for one in completes:
            if one.failed is None:
                found.append(self._complex(one))
            else:
                self._on_failed(one)
        return found

    def _complex(self, one: Complete) -> ComplexEvent:
        columns = {**one.event, "unconfirmed": True} if one.unconfirmed else one.event
        return ComplexEvent(run_text(one.id), one.id.pattern, self.device.name, one.at, columns)

    def _until_room(self, write: Callable[[], None]) -> None:
        """Write to the disk; while it refuses, all wait, and those who send are not acknowledged.

        Raises:
            WatchError: The watcher is stopping.
        """
        trouble = False
        while True:
            try:
                write()
            except (QueueFull, StateNotWritten) as error:
                if not trouble:
                    _log.error("%s; waiting until it works", error)
                    self._stuck = _Stuck(self.live(), self.unknown(), self._refused(error.message))
                trouble = True
                if self.stopping.wait(_AGAIN_S):
                    raise WatchError(f"stopped while the disk refused: {error}") from error
            else:
                self._stuck = None
                return

    def _refused(self, reason: str) -> Replication:
        return replace(self._replicator.status(), unwritten=reason)

    # asking

    @contextmanager
    def _asking(self) -> Iterator[_Stuck | None]:
        """Hold the guard; or, while the disk refuses and a writer holds it, yield what was then."""
        while (stuck := self._stuck) is None:
            if self._guard.acquire(timeout=_AGAIN_S):
                try:
                    yield None
                finally:
                    self._guard.release()
                return
        yield stuck

    def replication(self) -> Replication:
        """Return how replication stands."""
        with self._asking() as stuck:
            return self._replicator.status() if stuck is None else stuck.replication

    def live(self) -> dict[str, int]:
        """Return how many runs of each pattern are live."""
        with self._asking() as stuck:
            if stuck is not None:
                return stuck.live
            return {name: matcher.live for name, matcher in self.device.matchers.items()}

    def unknown(self, most: int = MOST) -> dict[str, list[str]]:
        """Return the newest runs that some peers do not know, with those peers."""
        found: dict[RunId, list[str]] = {}
        with self._asking() as stuck:
            if stuck is not None:
                return stuck.unknown
            for peer in self.device.contacts:
                for entry in self.device.log.changes(peer)[1]:
                    found.setdefault(entry.id, []).append(peer)
        newest = list(found.items())[-most:]
        return {run_text(run_id): list(dict.fromkeys(peers)) for run_id, peers in newest}

    def close(self) -> None:
        """Stop speaking to peers, and close the files."""
        self._replicator.stop()
        with self._guard:
            if self.outbox is not None:
                self.outbox.close()
