"""Engines that share jobs by leases, over a storage that loses answers, from one seed.

Each engine looks in intervals of its own, and each of its jobs has a driver, which claims the job,
decides and publishes. Engines pause, alone or with their drivers, for longer than any lease, and
drivers hang, some for ever; engines crash and come back, or do not, which those on the same host
notice at once; intervals are too short or too long, as if a clock had jumped; drivers die. After a
while the faults end, and some engines live: then every job has to run again within some of their
looks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.engine.leases import observer as observing
from millstream.engine.leases.observer import Local, Observer, Step
from millstream.engine.leases.rules import INTERVALS, TURN, EngineView
from millstream.errors import LogDamaged, StorageAway, TakenOver
from millstream.joblog import protocol
from millstream.joblog.entries import Claim, Decided, Holder, Release, Renewal, decode
from millstream.joblog.protocol import Log, Request
from simulation.job_log.world import Broken, Publish, Stored

#: How many ticks an engine's interval, and a driver's, has if no clock jumps.
INTERVAL = 24
FAULTY, CALM = 700, 700
#: How long a driver sleeps that hangs for ever.
HANGS = 10**5
#: For how many looks a driver may start.
PATIENCE = 6
KEY = "sink"


@dataclass(frozen=True)
class Sleep:
    """Nothing for some ticks."""

    ticks: int


@dataclass(frozen=True)
class Beat:
    """An engine shows that it lives."""


@dataclass(frozen=True)
class Engines:
    """Who is there, each with its beat."""


@dataclass(frozen=True)
class On:
    """A request to the log of a job."""

    job: str
    request: Request | Publish


Act = Sleep | Beat | Engines | On
Life = Generator[Act, Any, None]


class Book(Stored):
    """The log of a job, which also knows who has it, and who has looked since it was written."""

    def __init__(self, drawn: random.Random, losing: float) -> None:
        super().__init__(drawn, losing)
        self.engine: str | None = None
        self.released = True
        self.looks: Counter[str] = Counter()
        self.moves = self.published_at = self.claims = 0
        self.now = self.written_at = 0
        #: When each engine has crashed last.
        self.crashed_at: dict[str, int] = {}
        self.down: set[str] = set()

    def take_down(self, number: int, content: bytes) -> None:
        super().take_down(number, content)
        entry = decode(content)
        if isinstance(entry, Claim):
            self.claims += 1
            claimer = entry.holder.engine
            if claimer != self.engine and not self.released:
                self.moves += 1
                # What a crashed engine has sent may arrive later: it is no sign of life.
                crashed = self.crashed_at.get(self.engine or "", -1) >= self.written_at
                crashed = crashed or self.engine in self.down
                if self.looks[claimer] < INTERVALS and not crashed:
                    raise Broken(f"{claimer} takes a job after {self.looks[claimer]} looks")
            self.engine, self.released = claimer, False
        elif isinstance(entry, Release):
            self.released = True
        self.looks.clear()
        self.written_at = self.now

    def publish(self, act: Publish) -> None:
        super().publish(act)
        if act.generation == self.generation:
            self.published_at = self.now


@dataclass
class Driver:
    """A driver of a job: it lives as long as `life` is not None."""

    life: Life | None
    asleep: int = 0
    request: Act | None = None


@dataclass
class Here:
    """A job on an engine."""

    held: Log | None
    driver: Driver | None = None
    start_at: int = 0


@dataclass
class Engine:
    """An engine: crashed while `life` is None."""

    id: str
    cores: int
    host: int = 0
    life: Life | None = None
    asleep: int = 0
    request: Act | None = None
    beat: int = 0
    looks: int = 0
    draining: bool = False
    dead: bool = False
    observer: Observer = field(default_factory=lambda: Observer(""))
    jobs: dict[str, Here] = field(default_factory=dict)


class World:
    """What is stored, and who is there."""

    def __init__(self, seed: int, *, calm: bool = False, engines: int | None = None) -> None:
        self.random = drawn = random.Random(seed)
        self.calm = calm
        losing = 0.0 if calm else drawn.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        self.jumps = 0.0 if calm else drawn.choice((0.0, 0.0, 0.05, 0.2))
        self.pauses = 0.0 if calm else drawn.choice((0.0, 0.002, 0.006))
        self.crashes = 0.0 if calm else drawn.choice((0.0, 0.001, 0.004))
        self.deaths = drawn.choice((0.0, 0.002, 0.01))
        self.hangs = 0.0 if calm else drawn.choice((0.0, 0.002, 0.006))
        self.losing = losing
        self.time = 0
        self.books = {f"job{n}": Book(drawn, losing) for n in range(drawn.randint(1, 6))}
        # In a calm world everybody knows everybody when the jobs are deployed.
        early = INTERVAL * 2 if calm else 0
        self.deployed_at = {name: early or drawn.randrange(INTERVAL * 4) for name in self.books}
        self.present: dict[str, tuple[EngineView, int]] = {}
        count = engines or drawn.randint(2, 4)
        self.engines = [Engine(f"engine{n}", 2, drawn.randrange(2)) for n in range(count)]
        for engine in self.engines:
            self.start(engine)
        self.seen: Counter[str] = Counter()

    # engines

    def start(self, engine: Engine) -> None:
        engine.jobs, engine.observer = {}, Observer(engine.id, patience=PATIENCE)
        engine.life, engine.asleep = self.live(engine), self.random.randrange(INTERVAL)
        for book in self.books.values():
            book.down.discard(engine.id)
        engine.request = next(engine.life)

    def live(self, engine: Engine) -> Life:
        while True:
            try:
                yield from self.look(engine)
                for name, step in sorted(self.steps(engine).items()):
                    yield from self.act(engine, name, step)
            except StorageAway:
                self.seen["a look failed"] += 1
            self.restart_drivers(engine)
            yield Sleep(self.interval())

    def interval(self) -> int:
        if self.random.random() < self.jumps:
            return self.random.choice((1, INTERVAL * 3))
        return self.random.randint(INTERVAL - 4, INTERVAL + 4)

    def look(self, engine: Engine) -> Life:
        engine.beat += 1
        yield Beat()
        found = yield Engines()
        logs: dict[str, Log] = {}
        deployed = [name for name, at in self.deployed_at.items() if at <= self.time]
        for name in deployed:
            known = engine.observer.logs.get(name, Log())
            try:
                logs[name] = yield from on(name, protocol.glance(known))
            except StorageAway:
                continue
            self.books[name].looks[engine.id] += 1
        seen = [(replace(view, gone=self.gone(view.id, engine)), beat) for view, beat in found]
        engine.observer.see_engines(seen)
        engine.observer.see_jobs(deployed, logs)
        engine.looks += 1

    def gone(self, name: str, observer: Engine) -> bool:
        """Tell whether an observer knows that an engine has crashed, and is not back."""
        one = next(one for one in self.engines if one.id == name)
        return one.life is None and one.host == observer.host

    def steps(self, engine: Engine) -> dict[str, Step]:
        here = {
            name: Local(
                one.driver is not None and one.driver.life is not None,
                None if one.held is None else one.held.state.generation,
            )
            for name, one in engine.jobs.items()
        }
        return engine.observer.steps(here)

    def act(self, engine: Engine, name: str, step: Step) -> Life:
        self.seen[step.name] += 1
        if step is Step.LOSE:
            engine.jobs.pop(name)  # its driver is gone before anything else happens
            return
        if step is Step.RESTART:
            if engine.jobs[name].driver is not None:
                self.died(engine.jobs[name])
            return
        try:
            if step is Step.RENEW:
                held = engine.jobs[name].held
                if held is None:  # the driver has died since
                    return
                entry = Renewal(generation=held.state.generation)
                engine.jobs[name].held = yield from on(name, protocol.append(held, entry))
                return
            seen = engine.observer.logs[name]
            claim = Claim(token=self.token(), holder=Holder("host", 1, 0, engine.id))
            allowed = taking(seen) if step is Step.TAKE else holding(seen)
            log = yield from on(name, protocol.claim(claim, allowed))
            log = yield from on(name, protocol.sum_up(log))
        except (TakenOver, StorageAway):
            if name in engine.jobs:
                engine.jobs[name].held = None
            return
        here = engine.jobs.setdefault(name, Here(None))
        here.held = log

    def restart_drivers(self, engine: Engine) -> None:
        for name, here in engine.jobs.items():
            gone = here.driver is None or here.driver.life is None
            if gone and here.held is not None and self.time >= here.start_at:
                life = self.drive(name, engine.id, here.held.state.generation)
                here.driver = Driver(life, self.random.randrange(INTERVAL), next(life))

    # drivers

    def drive(self, name: str, engine: str, generation: int) -> Life:
        claim = Claim(token=self.token(), holder=Holder("host", 2, 0, engine))
        log = yield from on(name, protocol.claim(claim, driving(generation)))
        log = yield from on(name, protocol.sum_up(log))
        if (known := log.state.decided.get(KEY)) is not None:
            yield On(name, Publish(KEY, known, log.state.generation))
        renewed = self.time
        while True:
            if self.random.random() < 0.4:
                known = log.state.decided.get(KEY)
                wanted = Decided(0 if known is None else known.epoch + 1, self.token())
                log = yield from on(name, protocol.decide(log, KEY, wanted))
                yield On(name, Publish(KEY, log.state.decided[KEY], log.state.generation))
                renewed = self.time
            if self.time - renewed >= INTERVAL // 2:
                entry = Renewal(generation=log.state.generation)
                log = yield from on(name, protocol.append(log, entry))
                renewed = self.time
            if protocol.due(log):
                log = yield from on(name, protocol.sum_up(log))
            yield Sleep(self.random.randint(1, INTERVAL // 3))

    def token(self) -> str:
        return f"{self.random.getrandbits(48):x}"

    # the storage

    def answer(self, engine: Engine, act: Act) -> object:
        match act:
            case On(name, Publish() as publish):
                self.books[name].publish(publish)
                return None
            case On(name, request):
                return self.books[name].answer(request)  # type: ignore[arg-type]
        if self.random.random() < self.losing:
            raise StorageAway("no answer")
        if isinstance(act, Beat):
            view = EngineView(engine.id, engine.cores, engine.draining)
            self.present[engine.id] = view, engine.beat
            return None
        return list(self.present.values())

    # time

    def tick(self, *, faulty: bool) -> None:
        self.time += 1
        for book in self.books.values():
            book.now = self.time
            if book.late and self.random.random() < (0.1 if faulty else 1.0):
                book.put(book.late.pop(self.random.randrange(len(book.late))))
        for engine in self.random.sample(self.engines, len(self.engines)):
            if engine.life is None:
                if faulty and not engine.dead and self.random.random() < 0.02:
                    self.start(engine)
                continue
            if faulty:
                self.disturb(engine)
            if engine.life is not None:
                self.step(engine, engine)
                for here in list(engine.jobs.values()):
                    if here.driver is not None and here.driver.life is not None:
                        self.step(engine, here.driver, here)

    def disturb(self, engine: Engine) -> None:
        chance = self.random.random()
        if chance < self.crashes:
            self.crash(engine)
        elif chance < self.crashes + self.pauses:
            long = self.random.randrange(INTERVAL * 12)
            engine.asleep += long
            if self.random.random() < 0.7:  # the whole machine
                for here in engine.jobs.values():
                    if here.driver is not None:
                        here.driver.asleep += long
        for here in engine.jobs.values():
            if self.random.random() < self.deaths / 4 and here.driver is not None:
                self.died(here)
            elif self.random.random() < self.hangs and here.driver is not None:
                here.driver.asleep += self.random.choice((INTERVAL * 5, HANGS))
                self.seen["driver hangs"] += 1

    def crash(self, engine: Engine) -> None:
        self.seen["crash"] += 1
        engine.life, engine.jobs = None, {}
        for book in self.books.values():
            book.crashed_at[engine.id] = self.time
            book.down.add(engine.id)

    def died(self, here: Here) -> None:
        assert here.driver is not None
        here.driver.life, here.held = None, None
        here.start_at = self.time + self.random.choice((1, INTERVAL, INTERVAL * 6))
        self.seen["driver died"] += 1

    def step(self, engine: Engine, who: Engine | Driver, here: Here | None = None) -> None:
        if who.asleep:
            who.asleep -= 1
            return
        act, life = who.request, who.life
        assert act is not None
        assert life is not None
        try:
            if isinstance(act, Sleep):
                who.asleep = act.ticks
                who.request = life.send(None)
                return
            try:
                answer = self.answer(engine, act)
            except StorageAway as error:
                who.request = life.throw(error)
            else:
                who.request = life.send(answer)
        except (TakenOver, StorageAway) as error:
            assert here is not None, "an engine goes on"
            self.seen[f"driver: {type(error).__name__}"] += 1
            self.died(here)
        except LogDamaged as error:
            raise Broken(str(error)) from error

    # promises

    def run(self) -> None:
        for _ in range(FAULTY):
            self.tick(faulty=True)
        self.calm_down()
        began, looks = self.time, {one.id: one.looks for one in self.living}
        while not all(self.lives(name, began) for name in self.books):
            self.tick(faulty=False)
            done = min(one.looks - looks[one.id] for one in self.living)
            # A pause before a driver's restart is no fault of the leases.
            if done > INTERVALS + TURN * len(self.engines) + PATIENCE + 12:
                away = sorted(name for name in self.books if not self.lives(name, began))
                raise Broken(f"{away} do not run after {done} looks")
        self.check_places()

    @property
    def living(self) -> list[Engine]:
        return [one for one in self.engines if one.life is not None and not one.dead]

    def calm_down(self) -> None:
        """End the faults; at least one engine lives, others are dead or asleep for ever."""
        self.losing = self.jumps = 0.0
        for book in self.books.values():
            book.losing = 0.0
        for n, engine in enumerate(self.random.sample(self.engines, len(self.engines))):
            fate = self.random.random()
            engine.asleep = min(engine.asleep, INTERVAL)
            for here in engine.jobs.values():
                if here.driver is not None and here.driver.asleep < HANGS:
                    here.driver.asleep = min(here.driver.asleep, INTERVAL)
            if engine.life is None and (n == 0 or fate < 0.5):
                self.start(engine)
            elif n and not self.calm and fate < 0.5:
                self.crash(engine)
                engine.dead = True
            elif n and not self.calm and fate < 0.7:
                engine.asleep, engine.dead = 10**6, True
                for here in engine.jobs.values():
                    if here.driver is not None:
                        here.driver.asleep = 10**6

    def lives(self, name: str, since: int) -> bool:
        book = self.books[name]
        holder = next((one for one in self.living if one.id == book.engine), None)
        return holder is not None and name in holder.jobs and book.published_at > since

    def check_places(self) -> None:
        """Check that after another look each job is on its holder's engine alone."""
        looks = {one.id: one.looks for one in self.living}
        while any(one.looks < looks[one.id] + 2 for one in self.living):
            self.tick(faulty=False)
        for engine in self.living:
            for name in engine.jobs:
                if self.books[name].engine != engine.id:
                    raise Broken(f"{name} is still on {engine.id}")

    def balance(self) -> int:
        """Return how many more jobs one engine has than another."""
        held = Counter(book.engine for book in self.books.values())
        counts = [held[one.id] for one in self.engines]
        return max(counts) - min(counts)


def on(job: str, rule: Generator[Request, Any, Any]) -> Generator[Act, Any, Any]:
    """Carry out a rule of the log on that of a job."""
    answer: Any = None
    error: StorageAway | None = None
    try:
        while True:
            request = rule.throw(error) if error is not None else rule.send(answer)
            error = None
            try:
                answer = yield On(job, request)
            except StorageAway as lost:
                error = lost
    except StopIteration as end:
        return end.value


Allowed = Callable[[Log], bool]


def taking(seen: Log) -> Allowed:
    return lambda log: observing.unchanged(seen, log)


def holding(seen: Log) -> Allowed:
    return lambda log: observing.same_holder(seen, log)


def driving(generation: int) -> Allowed:
    return lambda log: protocol.of_generation(log, generation)


def violation(seed: int) -> str | None:
    """Return which promise a seed breaks."""
    try:
        World(seed).run()
    except Broken as error:
        return str(error)
    return None
