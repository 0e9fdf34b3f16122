"""What a simulated world is made of, and all that will go wrong in it: plain data, drawn from a seed.

Nothing is drawn while the world runs. So a scenario can be shrunk by leaving parts out, and what is
left still means the same: the third crash does not move because the first one is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from millstream.links.routing import Policy
from millstream.links.window import Limits

CALM = 120.0
"""From here on nothing goes wrong any more."""


@dataclass(frozen=True, slots=True)
class Sends:
    """A producer: `rows` rows, with marks (instructions) at some numbers, and END_OF_STREAM after the last."""

    policy: Policy
    rows: int
    batch: int
    outbox: int
    home: int = 0
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Takes:
    """An inbox: how many rows may wait for its disk, and how long a sync takes."""

    capacity: int
    sync: float


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one message: lost, or late `by` so much, or there `again` so much later."""

    message: int
    by: float | None = None
    again: float | None = None

    def __str__(self) -> str:
        if self.again is not None:
            return f"message {self.message} comes again after {self.again:g}"
        return (
            f"message {self.message} is lost"
            if self.by is None
            else f"message {self.message} is late by {self.by:g}"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """No message gets from one side to the other for a while; only answers are lost if `mute`; None is everybody."""

    at: float
    until: float
    producer: int | None
    inbox: int
    mute: bool = False

    def __str__(self) -> str:
        who = "everybody" if self.producer is None else f"p{self.producer}"
        what = "answers" if self.mute else "messages"
        return f"from {self.at:g} to {self.until:g} no {what} between {who} and i{self.inbox}"


@dataclass(frozen=True, slots=True)
class Slow:
    """A disk takes much longer for a while."""

    at: float
    until: float
    inbox: int
    sync: float

    def __str__(self) -> str:
        return f"from {self.at:g} to {self.until:g} a sync of i{self.inbox} takes {self.sync:g}"


@dataclass(frozen=True, slots=True)
class InboxCrash:
    """An inbox dies with what was not synced, but for the first `kept` part of it; `told`: its peers notice at once.

    With `alive` it is only its disk that refuses: the inbox answers that it takes nothing.
    """

    at: float
    until: float
    inbox: int
    kept: float
    told: bool
    alive: bool

    def __str__(self) -> str:
        what = "the disk refuses" if self.alive else "crashes"
        return f"from {self.at:g} to {self.until:g} i{self.inbox} {what} ({self.kept:.0%} of what waits is kept)"


@dataclass(frozen=True, slots=True)
class ProducerCrash:
    """A producer dies and reads again from its last acknowledged place, or from an earlier part of it."""

    at: float
    until: float
    producer: int
    back: float

    def __str__(self) -> str:
        return f"from {self.at:g} to {self.until:g} p{self.producer} is dead, and reads again from {self.back:.0%}"


Fault = Fate | Cut | Slow | InboxCrash | ProducerCrash


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole world. Same scenario, same run."""

    seed: int
    limits: Limits
    producers: tuple[Sends, ...]
    inboxes: tuple[Takes, ...]
    faults: tuple[Fault, ...]

    @property
    def events(self) -> int:
        return sum(one.rows + 1 for one in self.producers)

    def without_producer(self, gone: int) -> Scenario:
        """Return the world without a producer and without what happens to it."""
        kept = [moved for fault in self.faults if (moved := _moved(fault, gone)) is not None]
        return replace(
            self, producers=self.producers[:gone] + self.producers[gone + 1 :], faults=tuple(kept)
        )

    def lines(self) -> list[str]:
        """Return the world in words."""
        producers = [
            f"p{n} sends {one.rows} rows {one.policy}{f' to i{one.home}' if one.policy is Policy.LOCAL else ''}, "
            f"{one.batch} at a time, outboxes of {one.outbox}, instructions at {[*one.marks, one.rows]}"
            for n, one in enumerate(self.producers)
        ]
        inboxes = [
            f"i{n} holds {one.capacity} rows, a sync takes {one.sync:g}"
            for n, one in enumerate(self.inboxes)
        ]
        return [*producers, *inboxes, *map(str, self.faults)]


def _moved(fault: Fault, gone: int) -> Fault | None:
    number = getattr(fault, "producer", None)
    if number is None or number < gone:
        return fault
    return None if number == gone else replace(fault, producer=number - 1)  # type: ignore[arg-type]


# drawing


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = Random(seed)
    inboxes = tuple(
        Takes(rng.choice((1, 2, 4, 8, 20)), rng.choice((0.5, 1.0, 3.0, 6.0)))
        for _ in range(rng.randint(1, 3))
    )
    producers = tuple(_sends(rng, len(inboxes)) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    limits = Limits(requests=rng.choice((1, 2, 4)), timeout=10.0, pause_s=0.25, longest_pause_s=4.0)
    # Each world has its own few troubles; in one that has them all they hide each other.
    draws = [_fate, _fate, _cut, _slow, _inbox_crash, _producer_crash]
    kinds = rng.sample(draws, rng.randint(1, 3))
    faults = [
        rng.choice(kinds)(rng, producers, len(inboxes)) for _ in range(rng.choice((1, 2, 4, 8)))
    ]
    kept = tuple(sorted((one for one in faults if one is not None), key=_order))
    return Scenario(seed, limits, producers, inboxes, kept)


def _order(fault: Fault) -> tuple[bool, float]:
    return (False, fault.message) if isinstance(fault, Fate) else (True, fault.at)


def _sends(rng: Random, inboxes: int) -> Sends:
    rows = rng.choice((2, 4, 8, 14))
    marks = tuple(sorted(rng.sample(range(rows), rng.choice((0, 0, 1, 2)))))
    policy = rng.choice(list(Policy))
    return Sends(
        policy,
        rows,
        rng.choice((1, 2, 3, 6)),
        rng.choice((1, 3, 6, 12)),
        rng.randrange(inboxes),
        marks,
    )


def _fate(rng: Random, producers: tuple[Sends, ...], inboxes: int) -> Fate:
    message, kind = rng.randrange(24 * len(producers)), rng.randrange(3)
    if kind == 0:
        return Fate(message)
    late = rng.choice((0.5, 2.0, 5.0, 12.0, 30.0))
    return Fate(message, by=late) if kind == 1 else Fate(message, by=0.0, again=late)


def _span(rng: Random, longest: float) -> tuple[float, float]:
    # Most of a world's work is done early, and crashes in the middle of work tell more.
    at = rng.randrange(0, rng.choice((16, 40, 100))) / 2
    return at, min(CALM, at + rng.uniform(1.0, longest))


def _cut(rng: Random, producers: tuple[Sends, ...], inboxes: int) -> Cut:
    at, until = _span(rng, 70.0)
    who = rng.choice((None, rng.randrange(len(producers))))
    return Cut(at, until, who, rng.randrange(inboxes), mute=rng.random() < 0.5)


def _slow(rng: Random, producers: tuple[Sends, ...], inboxes: int) -> Slow:
    return Slow(*_span(rng, 40.0), rng.randrange(inboxes), rng.choice((6.0, 12.0, 25.0)))


def _inbox_crash(rng: Random, producers: tuple[Sends, ...], inboxes: int) -> InboxCrash:
    at, until = _span(rng, 25.0)
    kept = rng.choice((0.0, 0.0, 0.5, 1.0))
    return InboxCrash(
        at, until, rng.randrange(inboxes), kept, told=rng.random() < 0.5, alive=rng.random() < 0.3
    )


def _producer_crash(
    rng: Random, producers: tuple[Sends, ...], inboxes: int
) -> ProducerCrash | None:
    # The choices of a least loaded router are not logged: read again, rows would go to other
    # inboxes than before, and be there twice. Such a producer must not read again under the same
    # sender, so here it does not die.
    mortal = [n for n, one in enumerate(producers) if one.policy is not Policy.LEAST_LOADED]
    if not mortal:
        return None
    return ProducerCrash(*_span(rng, 20.0), rng.choice(mortal), rng.choice((1.0, 1.0, 0.5, 0.0)))
