"""A device: the runs of its patterns, what of them each peer knows, and what is to be sent.

    event     ──▶ matchers ──▶ runs that changed ──▶ change log ──▶ SYNC to each peer behind it
    a message ──▶ merge    ──▶ runs that changed ──▶ change log ──▶ to those who do not know it

Nothing here reads a clock, a socket or a file: times and messages are arguments. The caller writes
`records()` to its disk before it sends a message, acknowledges one, or publishes a match.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from millstream.errors import ConditionFailed, DeviceRefused, ImpossiblePattern
from millstream.patterns.edge import EdgePattern, See
from millstream.patterns.scalar.function import Row
from millstream.watch import choice
from millstream.watch.changes import LIMIT, ChangeLog
from millstream.watch.choice import Kind, Periods
from millstream.watch.contacts import Contacts
from millstream.watch.matcher import Matcher
from millstream.watch.messages import Ack, EventId, Records, RunId, Say
from millstream.watch.plain import PlainMatcher
from millstream.watch.records import Reader, Writer
from millstream.watch.room import MOST_RUNS, Room
from millstream.watch.runs import Key, Run

_FORGET_PARTS: Final = 8
"""How often in a recall period finished runs are looked through."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How devices work together.

    Attributes:
        periods: When which message is sent.
        recall: For how long events and finished runs are remembered, in microseconds; None: as long
            as the longest pattern lasts.
        key_owner: All events of a key come to one device, so that absence can be known.
        across: "seed" matches patterns across devices that are not sound there; what they find is
            unconfirmed.
        ahead: How far an event's time may be ahead of the clock, in microseconds.
        limit: How many changes are kept for peers that are away.
        most_runs: Above how many known runs the new ones of peers are refused.
    """

    periods: Periods = field(default_factory=Periods)
    recall: int | None = None
    key_owner: bool = False
    across: Literal["seed"] | None = None
    ahead: int = 3_600_000_000
    limit: int = LIMIT
    most_runs: int = MOST_RUNS


@dataclass(frozen=True, slots=True)
class Complete:
    """A match: the complex event, and the device whose event completed it.

    `failed` tells why there is no complex event, if its columns could not be computed.
    """

    id: RunId
    event: Mapping[str, Any]
    at: int
    by: str
    unconfirmed: bool = False
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The note in the change log that the complex event of a run has reached its outputs."""

    id: RunId


_Look = tuple[Matcher | PlainMatcher, See, Callable[[Row], Key], bool]


def _about(entry: Run | Delivered) -> object:
    return ("delivered", entry.id) if isinstance(entry, Delivered) else entry.id


class Device:
    """The patterns of one device among its peers.

    Args:
        patterns: What it watches for.
        name: The device's name.
        incarnation: A name for the time between two starts.
        peers: The names of the other devices.
        sharing: How they work together.
        durable: Whether there is a disk to keep what changes.
        elapsed: The time of a clock that does not jump, in microseconds.

    Raises:
        ImpossiblePattern: A pattern cannot be matched across devices.
    """

    def __init__(
        self,
        patterns: Sequence[EdgePattern],
        name: str,
        incarnation: str,
        peers: Sequence[str] = (),
        sharing: Sharing | None = None,
        *,
        durable: bool = True,
        elapsed: int = 0,
    ) -> None:
        self.name, self.incarnation, self.sharing = name, incarnation, sharing or Sharing()
        if peers:
            for pattern in patterns:
                check_across(pattern, self.sharing)
        self.durable = durable
        #: What of the last events could not be computed; whoever reads it clears it.
        self.failures: list[ConditionFailed] = []
        self.matchers = {
            pattern.name: _matcher(pattern, name, bool(peers), durable) for pattern in patterns
        }
        for matcher in self.matchers.values():
            matcher.moves.failures = self.failures
        self._looks = [_look(matcher, durable) for matcher in self.matchers.values()]
        self._room = Room(self.sharing.most_runs, self.matchers.values())
        self._ahead = self.sharing.ahead
        spans = [pattern.span for pattern in patterns if pattern.span is not None]
        recall = self.sharing.recall
        self.recall: int = max(spans, default=0) if recall is None else recall
        self.span: int = max(spans, default=0)
        self.log: ChangeLog[Run | Delivered] = ChangeLog(peers, _about, limit=self.sharing.limit)
        self.contacts = Contacts(peers, self.log, self.sharing.periods, elapsed)
        self.now = -(1 << 62)
        """The largest time of an event that is known."""
        self._delivered: set[RunId] = set()
        self._theirs: dict[RunId, Complete] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._lives: dict[str, list[str]] = {}
        self._number = 0
        self._forget_at = self.now
        self._new = _New()

    # What happens

    def event(
        self, id: EventId, at: int, row: Mapping[str, Any], *, clock: int | None = None
    ) -> list[Complete]:
        """Take in an event of ours, and return the matches that it completes.

        A pattern for which it cannot be computed does not see it; `failures` has the reason.
        """
        self._pass(at, clock)
        found: list[Complete] = []
        for matcher, see, key_of, remembers in self._looks:
            try:
                seen = see(id, at, row)
            except ConditionFailed as error:
                self.failures.append(error)
                continue
            if seen is None:
                continue
            key = key_of(row)
            if remembers:
                self._new.remembered.append((matcher.pattern.name, key, seen))
            changes = matcher.offer(key, seen)
            if changes or matcher.expired:
                found += self._changed(matcher, changes)
        return found

    def advance(self, watermark: int) -> list[Complete]:
        """Return the matches that are complete since no event before `watermark` will come."""
        return [
            complete
            for matcher in self.matchers.values()
            for complete in self._changed(matcher, matcher.advance(watermark))
        ]

    def receive(
        self, peer: str, say: Say, elapsed: int, *, clock: int | None = None
    ) -> tuple[Ack, list[Complete]]:
        """Merge a peer's message, and return what to answer and what is complete by it.

        As with our own events, one that is far ahead of the clock does not let time pass.

        Raises:
            DeviceRefused: A record in it cannot be; nothing of the message is merged.
        """
        if peer not in self.contacts:
            raise DeviceRefused(f'device "{peer}" is not a peer of {self.name}')
        reader = Reader(self.matchers.get, say.events)
        runs = [reader.run(record) for record in say.runs]
        for run_id in say.delivered:
            reader.known(run_id)
        self._room.check(runs)
        lives = self._lives.setdefault(peer, [])
        teller = peer if _current(lives, say.incarnation) else None
        found = [complete for run in runs for complete in self._merge(run, teller, clock)]
        for run_id in say.delivered:
            self._mark(run_id, teller)
        self.failures.clear()  # the device whose events they are knows them
        self.contacts[peer] = choice.heard(
            self.contacts[peer], elapsed, asks=say.reset, resync=say.kind is Kind.RESYNC
        )
        return Ack(say.number, self.contacts[peer].reset), found

    def delivered(self, id: RunId) -> None:
        """Note that the complex event of a run has reached our outputs."""
        self._mark(id, None)

    def orphans(self, elapsed: int) -> list[Complete]:
        """Return the matches that this device publishes for one that is away.

        Of the devices that are present the first by name does so.
        """
        away = self.contacts.away(elapsed)
        if self.name != min({self.name, *self.contacts} - away):
            return []
        known = {self.name, *self.contacts} - away
        found = [one for one in self._theirs.values() if one.by not in known]
        for one in found:
            del self._theirs[one.id]
        return found

    @property
    def undelivered(self) -> list[Complete]:
        """The matches of this device that have not reached its outputs yet: after a restart."""
        return [
            self._complete(matcher, run)
            for matcher in self.matchers.values()
            for run in matcher
            if run.completed and run.by == self.name and run.id not in self._delivered
        ]

    # What is sent

    def due(self, elapsed: int, *, ready: Container[str] | None = None) -> list[tuple[str, Say]]:
        """Return the messages that are due to peers that are `ready`, and count them as attempted."""
        return [
            (peer, self._say(peer, chosen, elapsed))
            for peer in self.contacts
            if ready is None or peer in ready
            if (chosen := self.contacts.choose(peer, elapsed)) is not None
        ]

    def acknowledged(self, peer: str, ack: Ack, elapsed: int) -> None:
        """Note that a message has reached a peer."""
        number, position = self._positions.get(peer, (-1, 0))
        if ack.number != number:
            return
        self._positions[peer] = (-1, 0)
        self.log.passed(peer, position)
        self.contacts[peer] = choice.succeeded(self.contacts[peer], elapsed, asks=ack.reset)

    def failed(self, peer: str, number: int) -> None:
        """Note that a message was not acknowledged in time."""
        if self._positions.get(peer, (-1, 0))[0] == number:
            self._positions[peer] = (-1, 0)
            self.contacts[peer] = choice.failed(self.contacts[peer])

    def _say(self, peer: str, chosen: choice.Choice, elapsed: int) -> Say:
        entries: Iterable[Run | Delivered] = ()
        if chosen.kind is Kind.RESYNC:
            position, entries = self.log.resync(peer), self._everything()
        else:
            position, entries = self.log.changes(peer)
        self._number += 1
        self._positions[peer] = self._number, position
        self.contacts[peer] = choice.attempted(self.contacts[peer], chosen.kind, elapsed)
        about = {"number": self._number, "position": position, "incarnation": self.incarnation}
        return _message(list(entries), kind=chosen.kind, reset=chosen.reset, **about)

    def _everything(self) -> Iterator[Run | Delivered]:
        for matcher in self.matchers.values():
            yield from matcher
        yield from map(Delivered, self._delivered)

    # The disk

    def records(self) -> Records | None:
        """Return what has changed since the last call, to be written to disk; None for nothing."""
        new, self._new = self._new, _New()
        return new.records(self.now) if new else None

    def snapshot(self) -> Records:
        """Return all that the device knows."""
        everything = _New()
        for matcher in self.matchers.values():
            everything.runs.update((run.id, run) for run in matcher)
            everything.remembered += matcher.remembered()
        everything.delivered += self._delivered
        return everything.records(self.now)

    def restore(self, records: Records) -> None:
        """Know again what a snapshot or a record on disk holds; call it before anything happens."""
        self.now = max(self.now, records.now)
        reader = Reader(self.matchers.get, records.events)
        for pattern, key, place in records.remembered:
            reader.matcher(pattern).remember(key, reader.event(pattern, place))
        self._delivered.update(records.delivered)
        for record in records.runs:
            matcher, run = reader.matcher(record.id.pattern), reader.run(record)
            matcher.restore(run)
            if run.completed and run.by != self.name:
                self._theirs[run.id] = self._complete(matcher, run)
        for run_id in self._delivered & self._theirs.keys():
            del self._theirs[run_id]
        self.failures.clear()

    # Inside

    def _pass(self, at: int, clock: int | None) -> None:
        """Let time pass: it is the largest time of an event that is not far ahead of the clock."""
        if clock is not None and at > clock + self._ahead:
            at = clock + self._ahead
        self.now = max(self.now, at)
        if self.now >= self._forget_at and (self.contacts or self.durable):
            self._forget()

    def _forget(self) -> None:
        """Drop what is over for longer than `recall`."""
        self._forget_at = self.now + self.recall // _FORGET_PARTS + 1
        for matcher in self.matchers.values():
            matcher.forget(self.now - self.recall, self.span)
        known = {run.id for matcher in self.matchers.values() for run in matcher}
        self._delivered &= known
        self._theirs = {one.id: one for one in self._theirs.values() if one.id in known}

    def _merge(self, run: Run, peer: str | None, clock: int | None) -> list[Complete]:
        if run.deadline is not None and run.deadline < self.now - self.recall:
            return []  # it is forgotten here, whatever became of it
        matcher = self.matchers[run.id.pattern]
        assert isinstance(matcher, Matcher), "no other is replicated"
        self._pass(run.link.seen.at, clock)
        changes = matcher.merge(run)
        self._room.taken(len(changes))
        return self._changed(matcher, changes, received=run, peer=peer)

    def _changed(
        self,
        matcher: Matcher | PlainMatcher,
        changes: list[Run],
        received: Run | None = None,
        peer: str | None = None,
    ) -> list[Complete]:
        found = []
        for run in changes:
            if self.durable:
                self._new.runs[run.id] = run
            if self.contacts:
                self.log.append(run, known_to=peer if run is received else None)
            if run.completed and not run.again:
                complete = self._complete(matcher, run)
                found.append(complete)
                if run.by != self.name and run.id not in self._delivered:
                    self._theirs[run.id] = complete
        if matcher.expired:
            late, matcher.expired = matcher.expired, []
            if matcher.pattern.emitted.late:
                found += [self._complete(matcher, run, timed_out=True) for run in late]
        return found

    def _complete(
        self, matcher: Matcher | PlainMatcher, run: Run, *, timed_out: bool = False
    ) -> Complete:
        at = run.deadline if timed_out and run.deadline is not None else run.at
        history, made, failed = run.link.history, matcher.pattern.complex_event, None
        try:
            event = made(run.id.key, history, at, timed_out=timed_out)
        except ConditionFailed as error:
            event, failed = {}, error.message
        unconfirmed = bool(self.contacts) and not (matcher.ordered or self.sharing.key_owner)
        return Complete(run.id, event, at, run.by or self.name, unconfirmed, failed)

    def _mark(self, id: RunId, peer: str | None) -> None:
        self._theirs.pop(id, None)
        if id in self._delivered or not (self.contacts or self.durable):
            return
        self._delivered.add(id)
        self._new.delivered.append(id)
        if self.contacts:
            self.log.append(Delivered(id), known_to=peer)


def _current(lives: list[str], incarnation: str) -> bool:
    """Tell whether a message is of a peer's present life: else it may have forgotten it."""
    if incarnation not in lives:
        lives.append(incarnation)
    return lives[-1] == incarnation


def _look(matcher: Matcher | PlainMatcher, durable: bool) -> _Look:
    """Return what an event needs of a matcher: looked up once, not for each event."""
    remembers = durable and (matcher.ordered or isinstance(matcher, PlainMatcher))
    return matcher, matcher.pattern.seen, matcher.pattern.key, remembers


def _message(entries: Sequence[Run | Delivered], **about: Any) -> Say:
    written = Writer().add(entry for entry in entries if isinstance(entry, Run))
    delivered = [entry.id for entry in entries if isinstance(entry, Delivered)]
    return Say(events=written.events, runs=written.runs, delivered=delivered, **about)


def _matcher(
    pattern: EdgePattern, device: str, replicated: bool, durable: bool
) -> Matcher | PlainMatcher:
    if pattern.automaton.skip.kind != "none":
        return PlainMatcher(pattern, device)
    remembers = durable and pattern.span is not None
    return Matcher(pattern, device, replicated=replicated, remembers=remembers)


@dataclass
class _New:
    """What has changed since the last record for the disk."""

    runs: dict[RunId, Run] = field(default_factory=dict)
    remembered: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)
    delivered: list[RunId] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.runs or self.remembered or self.delivered)

    def records(self, now: int) -> Records:
        writer = Writer().add(self.runs.values())
        for pattern, key, seen in self.remembered:
            writer.remember(pattern, key, seen)
        return Records(writer.events, writer.runs, self.delivered, writer.remembered, now)


def check_across(pattern: EdgePattern, sharing: Sharing) -> None:
    """Refuse a pattern that devices cannot match together.

    Raises:
        ImpossiblePattern: It cannot, and how it could.
    """
    automaton = pattern.automaton
    called = f'pattern "{pattern.name}"'
    if pattern.span is None:
        msg = f"{called} has no time limit, so peers would have to remember its runs for ever"
        raise ImpossiblePattern(msg, hint='say within("1 hour")')
    if automaton.skip.kind != "none" or automaton.singleton or automaton.prefers:
        msg = f"{called} drops runs because of others, which peers cannot do together"
        hint = "leave skip strategies and singleton() out, or watch it on a device without peers"
        raise ImpossiblePattern(msg, hint=hint)
    if not (pattern.sound or sharing.key_owner or sharing.across == "seed"):
        msg = f"{called} is not sound across devices: {'; '.join(pattern.unsound)}"
        hint = (
            "set key_owner: true if all events of a key come to one device, or across: seed to "
            "accept unconfirmed matches"
        )
        raise ImpossiblePattern(msg, hint=hint)
