"""Drivers of one job, and a storage that loses answers and carries out puts late, from one seed.

A driver claims the job, then decides and publishes epochs, sums up now and then, and sleeps: for a
moment, or for longer than anybody waits. It may crash between any two requests. Clocks are not
modelled except as what they are to the rules: nothing. Drivers claim when they like, as if every
lease had run out.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from millstream.errors import LogDamaged, StorageAway, TakenOver
from millstream.joblog import protocol
from millstream.joblog.entries import Claim, Decided, Decision, Holder, decode
from millstream.joblog.protocol import Log, Numbers, Put, Read, Remove, Request

STEPS = 300
KEYS = ("one", "two")


@dataclass(frozen=True)
class Publish:
    """A driver publishes what was decided: the world takes it down."""

    key: str
    decided: Decided
    generation: int


class Broken(AssertionError):
    """A promise is broken."""


@dataclass
class Stored:
    """The log of a job: what is stored, what was ever stored, and what was published."""

    random: random.Random
    losing: float
    slots: dict[int, bytes] = field(default_factory=dict)
    #: The first content of every slot: what the log says, whatever was freed since.
    history: dict[int, bytes] = field(default_factory=dict)
    late: list[Put] = field(default_factory=list)
    decisions: dict[tuple[str, int], str] = field(default_factory=dict)
    generation: int = -1
    published: dict[tuple[str, int], str] = field(default_factory=dict)
    freed: int = 0
    lost: int = 0
    void: int = 0

    # what the storage does

    def put(self, put: Put, *, answered: bool = False) -> bool:
        if put.number in self.slots:
            return False
        if put.number in self.history:
            # A slot that was freed: nobody reads what lies there now, and no driver may build on it.
            self.void += 1
            if answered and not isinstance(decode(put.content), Claim):
                raise Broken(f"an entry in slot {put.number}, which was freed")
        else:
            self.take_down(put.number, put.content)
        self.slots[put.number] = put.content
        return True

    def answer(self, request: Request) -> object:
        if self.random.random() < self.losing:
            self.lost += 1
            fate = self.random.random()
            if isinstance(request, Put) and fate < 0.6:
                self.put(request)
            elif isinstance(request, Put) and fate < 0.8:
                self.late.append(request)
            raise StorageAway("no answer")
        match request:
            case Put():
                return self.put(request, answered=True)
            case Read(number):
                return self.slots.get(number)
            case Numbers():
                return list(self.slots)
            case Remove(number):
                self.freed += self.slots.pop(number, None) is not None
                return None

    def publish(self, act: Publish) -> None:
        known = self.published.setdefault((act.key, act.decided.epoch), act.decided.content)
        if known != act.decided.content:
            raise Broken(f"epoch {act.decided.epoch} of {act.key} is published twice")
        if self.decisions.get((act.key, act.decided.epoch)) != act.decided.content:
            raise Broken(f"epoch {act.decided.epoch} of {act.key} is published undecided")

    # promises

    def take_down(self, number: int, content: bytes) -> None:
        """Check an entry against all before it."""
        if number != len(self.history):
            raise Broken(f"slot {number} after {len(self.history) - 1}")
        self.history[number] = content
        entry = decode(content)
        if isinstance(entry, Claim):
            self.generation = number
        elif entry.generation != self.generation:
            raise Broken(f"slot {number}: generation {entry.generation} after {self.generation}")
        elif isinstance(entry, Decision):
            key, epoch = entry.key, entry.decided.epoch
            if (key, epoch) in self.decisions or (epoch and (key, epoch - 1) not in self.decisions):
                raise Broken(f"slot {number}: epoch {epoch} again, or too soon")
            self.decisions[key, epoch] = entry.decided.content


class World(Stored):
    """Drivers of one job, and its log."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(seed)
        super().__init__(drawn, drawn.choice((0.0, 0.05, 0.2, 0.5)))
        self.takeovers = self.claimed = 0
        self.drivers = [self.driver() for _ in range(self.random.randint(2, 4))]

    # what drivers do

    def driver(self) -> Driver:
        return Driver(self, self.life())

    def life(self) -> Generator[Request | Publish, Any, None]:
        holder = Holder("host", self.random.randrange(10_000), self.random.randrange(10**6))
        log: Log = yield from protocol.claim(Claim(token=self.token(), holder=holder))
        self.claimed += 1
        for key in KEYS:  # what was decided may not have been published
            if key in log.state.decided:
                yield Publish(key, log.state.decided[key], log.state.generation)
        while True:
            if self.random.random() < 0.3:
                log = yield from protocol.sum_up(log)
                continue
            key = self.random.choice(KEYS)
            known = log.state.decided.get(key)
            wanted = Decided(0 if known is None else known.epoch + 1, self.token())
            try:
                log = yield from protocol.decide(log, key, wanted)
            except StorageAway:
                continue  # the batch is run again, and has another content
            yield Publish(key, log.state.decided[key], log.state.generation)

    def token(self) -> str:
        return f"{self.random.getrandbits(48):x}"

    # time

    def run(self) -> None:
        for _ in range(STEPS):
            chance = self.random.random()
            if self.late and chance < 0.1:
                self.put(self.late.pop(self.random.randrange(len(self.late))))
            elif chance < 0.115:
                self.drivers[self.random.randrange(len(self.drivers))] = self.driver()  # a crash
            else:
                driver = self.random.choice(self.drivers)
                if driver.awake():
                    driver.step()


class Driver:
    """A process: one request at a time, asleep in between as often as not."""

    def __init__(self, world: World, life: Generator[Request | Publish, Any, None]) -> None:
        self._world = world
        self._life = life
        self._asleep = 0
        self._request: Request | Publish | None = next(life)

    def awake(self) -> bool:
        if self._asleep:
            self._asleep -= 1
            return False
        chance = self._world.random.random()
        if chance < 0.02:
            self._asleep = self._world.random.randrange(200)  # longer than anybody waits
            return False
        return True

    def step(self) -> None:
        world, request = self._world, self._request
        try:
            if isinstance(request, Publish):
                world.publish(request)
                self._request = self._life.send(None)
                return
            assert request is not None
            try:
                answer = world.answer(request)
            except StorageAway as error:
                if world.random.random() < 0.5:
                    self._asleep = world.random.randrange(100)  # until it asks again
                self._request = self._life.throw(error)
            else:
                self._request = self._life.send(answer)
        except TakenOver:
            world.takeovers += 1
            self._again()
        except StorageAway:
            self._again()
        except LogDamaged as error:
            raise Broken(str(error)) from error

    def _again(self) -> None:
        self._life = self._world.life()
        self._request = next(self._life)


def violation(seed: int) -> str | None:
    """Return which promise a seed breaks."""
    try:
        World(seed).run()
    except Broken as error:
        return str(error)
    return None
