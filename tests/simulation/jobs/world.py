"""A world of engines, one job and its driver: what is on disk survives, what is in memory does not.

The rules are those of `engine.lifecycle`; processes, inboxes, disks, producers, users and faults
are simulated. Every engine can die between any two steps: after a rule was applied, after the job
was written down, after each order. The driver dies when it likes, with its engine in any case. At
the end all faults stop (an engine that is gone for good stays away), and an operator shuts the job
down, which must come to an end.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.lifecycle import Event, Job, JobState, Order
from millstream.errors import InvalidTransition, JobBusy

PEERS_S = 300.0
LONGEST_S = 20_000.0
MOST_STEPS = 50_000
NAME = "job"


class Violation(Exception):
    """A promise that was not kept."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Crash(Exception):
    """An engine dies here."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be broken, to see that it is noticed."""

    advance: Callable[[Job, Event, float], life.Step] = life.advance
    written_first: bool = True
    owners_asked: bool = True
    orphans_ended: bool = True


OURS = Rules()


@dataclass(slots=True)
class Inbox:
    """A partition: rows taken and its end are on disk."""

    taken: int = 0
    ended: bool = False
    open: bool = False
    paused: bool = False


@dataclass(slots=True, eq=False)
class Driver:
    """The driver process: `node` is its engine in that engine's life `born`."""

    node: Node
    born: int
    alive: bool = True
    draining: bool = False
    flush: bool = False
    done: bool = False
    told: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """An engine."""

    number: int
    inbox: Inbox = field(default_factory=Inbox)
    #: What its store says of the job; None before it is deployed and after it is gone.
    disk: Job | None = None
    files: bool = False
    up: bool = True
    gone: bool = False
    life: int = 0
    job: Job | None = None
    driver: Driver | None = None
    leaving: Driver | None = None
    #: The engines that it has reached since it was started: a driver begins once that is all.
    met: set[int] = field(default_factory=set)
    down_since: float = 0.0
    #: The moment that it has set its alarm to.
    armed: float = 0.0


class World:
    """One seed, one story."""

    def __init__(self, seed: int, rules: Rules = OURS, *, told: bool = False) -> None:
        self.chance = Random(seed)
        self.rules = rules
        self.now = 0.0
        self.story: list[str] | None = [] if told else None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.nodes = [Node(n) for n in range(self.chance.choice((1, 1, 2, 3)))]
        self.processed = [0] * len(self.nodes)
        self.drivers: list[Driver] = []
        self.calm_at = self.chance.choice((30.0, 200.0, 900.0))
        self.deadly = self.chance.choice((0.0, 0.02, 0.3))
        self.brittle = self.chance.choice((0.0, 0.01, 0.05))
        self.fails = self.chance.random() < 0.1
        self.deaths = 0
        self.ready_at: float | None = None
        self.not_before = 0.0
        self.acked = 0
        self.forced = False
        #: Whether the only engine has stored the job; if it dies before, its user deploys it again.
        self.deployed = len(self.nodes) > 1
        self.seen: set[str] = set()

    # telling, waiting

    def say(self, text: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.now:9.2f}  {text}")

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._order), what))

    @property
    def calm(self) -> bool:
        return self.now >= self.calm_at

    def run(self) -> None:
        """Run to the end.

        Raises:
            Violation: A promise was not kept.
        """
        for node in reversed(self.nodes):
            self.deploy(node)
        self.after(0.1, self.produce)
        if len(self.nodes) > 1:
            self.after(20.0, self.watch_peers)
        for _ in range(self.chance.randrange(5)):
            self.after(self.chance.uniform(0, self.calm_at), self.user)
        for _ in range(self.chance.randrange(4)):
            self.after(self.chance.uniform(0, self.calm_at), self.fault)
        operator = Operator(self)
        self.after(self.calm_at + 1.0, operator.step)
        for steps in itertools.count():
            if not self._queue or operator.done:
                break
            if steps > MOST_STEPS:
                raise Violation("jam", "the world runs for ever")
            self.now, _, what = heapq.heappop(self._queue)
            if self.now > LONGEST_S:
                raise Violation(
                    "jam",
                    f"the job is not shut down: {[n.job and n.job.state for n in self.nodes]}",
                )
            what()
            self.check()
        if not operator.done:
            raise Violation("jam", "nobody has anything to do, and the job is not shut down")
        self.check_end()

    # the engine: as its runner does it

    def deploy(self, node: Node) -> None:
        """Prepare the job on an engine of several and begin it; on the only one that is one step."""
        if len(self.nodes) == 1:
            self.guarded(node, lambda: self.deploy_alone(node))
            return
        node.files, node.job = True, Job(NAME, since=self.now)
        node.disk = node.job
        self.guarded(node, lambda: self.apply(node, life.Deployed(driver=node.number == 0)))

    def deploy_alone(self, node: Node) -> None:
        job = Job(NAME, since=self.now)
        after, orders = self.rules.advance(job, life.Deployed(), self.now)
        self.perhaps_crash()
        node.files = self.deployed = True
        self.become(node, job, after, orders, life.Deployed())

    def guarded(self, node: Node, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self.kill(node)

    def perhaps_crash(self) -> None:
        if self.brittle and not self.calm and self.chance.random() < self.brittle:
            raise Crash

    def apply(self, node: Node, event: Event) -> None:
        assert node.job is not None
        before = node.job
        after, orders = self.rules.advance(before, event, self.now)
        self.perhaps_crash()
        self.become(node, before, after, orders, event)

    def become(
        self, node: Node, before: Job, after: Job, orders: list[Order], event: Event
    ) -> None:
        """Store the job, then carry out the orders."""
        if self.rules.written_first:
            node.disk = after
        node.job = after
        self.noted(node, before, after, event)
        self.perhaps_crash()
        for order in orders:
            self.do(node, order)
            self.perhaps_crash()
        if not self.rules.written_first and node.files:
            node.disk = after
        self.timers(node)

    def noted(self, node: Node, before: Job, after: Job, event: Event) -> None:
        if before != after:
            self.say(f"node {node.number}: {event} makes it {after.state}")
        self.seen.add(f"{type(event).__name__} in {before.state}")
        if isinstance(event, life.DriverDied) and event.waiting:
            self.not_before = self.now + life.WAITING_S
        elif isinstance(event, life.DriverDied) and before.state in life.ALIVE:
            self.count_death(before, after, event)
        resumed = isinstance(event, life.ResumeAsked) and before != after
        if node.number == 0 and (isinstance(event, life.EngineStarted) or resumed):
            forgiven = resumed or self.ran_well()
            self.not_before, self.ready_at, self.deaths = 0.0, None, 0 if forgiven else self.deaths
        if isinstance(event, life.UndeployAsked) and not event.force and before.state in life.ALIVE:
            raise Violation("lost", f"a job that is {before.state} is undeployed without force")
        if before.state is JobState.DRAINING and after.state in (
            JobState.STARTING,
            JobState.RUNNING,
            JobState.RESTARTING,
        ):
            raise Violation(
                "forgotten", f"{type(event).__name__} makes a job that drains {after.state}"
            )
        if (
            before.state is JobState.DRAINING
            and before.flush
            and after.state is JobState.DRAINED
            and not after.missed
        ):
            raise Violation("forgotten", "a job that was to end can be resumed")
        if (
            after.state is JobState.DRAINED
            and before.state is JobState.DRAINING
            and node.number == 0
        ):
            self.deaths = 0
            self.check_processed()

    def ran_well(self) -> bool:
        return self.ready_at is not None and self.now - self.ready_at >= life.GOOD_RUNNING_S

    def count_death(self, before: Job, after: Job, event: life.DriverDied) -> None:
        forgiven = self.ran_well() or event.committed not in (None, before.committed)
        self.deaths, self.ready_at = (1 if forgiven else self.deaths + 1), None
        if (self.deaths >= life.MOST_DEATHS or event.hopeless) != (after.state is JobState.FAILED):
            raise Violation("giving up", f"after {self.deaths} deaths the job is {after.state}")
        self.not_before = self.now + min(60.0, 2.0 ** (self.deaths - 1))

    def timers(self, node: Node) -> None:
        job, born = node.job, node.life
        if job is None:
            return
        if (
            job.paused_until is not None
            and job.paused_until > self.now
            and node.armed != job.paused_until
        ):
            node.armed = job.paused_until
            self.at(job.paused_until, lambda: self.event(node, born, life.PauseOver()))
        if not job.driver and job.state is JobState.DRAINING:
            missed = life.PeerMissed("the engine with the driver")
            due = job.since + PEERS_S
            self.at(max(due, self.now), lambda: self.overdue(node, born, due, missed))

    def overdue(self, node: Node, born: int, due: float, event: Event) -> None:
        if (
            node.job is not None
            and node.job.state is JobState.DRAINING
            and node.job.since + PEERS_S <= due
        ):
            self.event(node, born, event)

    def event(self, node: Node, born: int, event: Event) -> None:
        """Deliver something to the engine that it was meant for, if that is still alive."""
        if node.up and node.life == born and node.job is not None:
            self.guarded(node, lambda: self.apply(node, event))

    def ask(self, node: Node, event: Event) -> bool:
        """Ask an engine for something; return whether it did not refuse. One that is down says nothing."""
        if not node.up or node.job is None:
            return False
        try:
            self.apply(node, event)
        except Crash:
            self.kill(node)
            return False
        except (InvalidTransition, JobBusy) as error:
            self.say(f"node {node.number} refuses: {error}")
            return False
        return True

    # orders

    def do(self, node: Node, order: Order) -> None:
        match order:
            case life.StartDriver(after_s):
                if after_s == 0:
                    self.start_driver(node)
            case life.StopDriver():
                self.stop_driver(node)
            case life.KillDriver():
                self.end(node.driver)
                self.end(node.leaving)
                node.driver = node.leaving = None
            case life.DrainDriver(flush):
                if node.driver is not None:
                    node.driver.draining, node.driver.flush = True, flush
            case life.RemoveFiles(purge):
                self.remove(node, purge=purge)
            case _:
                self.do_intake(node.inbox, order)

    def do_intake(self, inbox: Inbox, order: Order) -> None:
        match order:
            case life.OpenInboxes():
                inbox.open = True
            case life.CloseInboxes():
                inbox.open = False
            case life.PauseIntake():
                inbox.paused = True
            case life.OpenIntake():
                inbox.paused = False
            case life.EndIntake():
                inbox.ended = True

    def remove(self, node: Node, *, purge: bool) -> None:
        node.files, node.disk, node.job = False, None, None
        if purge:
            node.inbox = Inbox(open=node.inbox.open)

    def start_driver(self, node: Node) -> None:
        if node.driver is not None:
            return
        self.end(node.leaving)
        node.leaving = None
        if any(driver.alive for driver in self.drivers):
            raise Violation("one driver", "a second one is started")
        if self.now < self.not_before - 1e-6:
            raise Violation(
                "pauses", f"a driver is started {self.not_before - self.now:.1f} s too early"
            )
        if not self.all_met(node):
            self.say("another engine was not reached yet")
            self.apply(node, life.DriverDied("another engine was not reached", waiting=True))
            return
        node.driver = Driver(node, node.life)
        self.drivers = [node.driver]
        self.after(self.chance.uniform(0.5, 10.0), self.drives(node.driver))

    def all_met(self, node: Node) -> bool:
        node.met |= {other.number for other in self.nodes if other.up}
        return len(node.met) == len(self.nodes)

    def stop_driver(self, node: Node) -> None:
        if node.driver is None:
            return
        self.end(node.leaving)
        node.leaving, node.driver = node.driver, None
        leaving = node.leaving
        self.after(self.chance.uniform(0.0, 5.0), lambda: self.end(leaving))

    def end(self, driver: Driver | None) -> None:
        if driver is not None:
            driver.alive = False

    # the driver

    def drives(self, driver: Driver) -> Callable[[], None]:
        return lambda: self.drive(driver)

    def drive(self, driver: Driver) -> None:
        if not driver.alive or driver.done:
            return
        if not self.calm and self.chance.random() < self.deadly:
            self.die(driver, hopeless=self.fails and self.chance.random() < 0.2)
            return
        if not driver.told:
            driver.told = True
            self.tell(driver, life.DriverReady())
        self.process(driver)
        last = self.last_word(driver)
        if last is not None:
            driver.done = True
            self.tell(driver, last)
        self.after(self.chance.uniform(0.2, 3.0), self.drives(driver))

    def process(self, driver: Driver) -> None:
        for partition, node in enumerate(self.nodes):
            if node.up or partition == 0:
                left = node.inbox.taken - self.processed[partition]
                self.processed[partition] += self.chance.randint(0, left) if left > 0 else 0

    def last_word(self, driver: Driver) -> Event | None:
        job = driver.node.job
        if job is None:
            return None
        missing = [n for n in self.nodes if not n.up]
        there = [n for n in self.nodes if n.up]
        read = all(self.processed[n.number] == n.inbox.taken for n in there)
        if read and not missing and all(n.inbox.ended for n in there):
            return life.Finished()
        return (
            life.Drained()
            if driver.draining and not driver.flush and read and not missing
            else None
        )

    def watch_peers(self) -> None:
        """The engine with the driver notices that another one does not answer while the job drains."""
        main = self.nodes[0]
        if main.up and main.job is not None and main.job.state is JobState.DRAINING:
            for node in self.nodes:
                if not node.up and self.now - node.down_since >= PEERS_S:
                    self.event(main, main.life, life.PeerMissed(f"node {node.number}"))
        self.after(20.0, self.watch_peers)

    def tell(self, driver: Driver, event: Event) -> None:
        """Report to the engine, which may be busy, dead, or have another driver by then."""
        node = driver.node

        def heard() -> None:
            if self.rules.owners_asked and node.driver is not driver:
                return
            if (
                isinstance(event, life.DriverReady)
                and node.job is not None
                and node.job.state in life.ALIVE
            ):
                self.ready_at = self.now
            self.event(node, driver.born, event)

        self.after(self.chance.choice((0.0, 0.0, 0.5, 4.0)), heard)

    def die(self, driver: Driver, *, hopeless: bool = False) -> None:
        driver.alive = False
        node = driver.node
        self.say("the driver dies")

        def noticed() -> None:
            if self.rules.owners_asked and node.driver is not driver:
                return
            if node.driver is driver and node.up and node.life == driver.born:
                node.driver = None
            reported = sum(self.processed) if driver.told else None
            died = life.DriverDied("it died", hopeless, committed=reported)
            self.event(node, driver.born, died)

        self.after(self.chance.uniform(0.0, 0.5), noticed)

    # faults

    def fault(self) -> None:
        node = self.chance.choice(self.nodes)
        kind = self.chance.choice(("engine", "engine", "driver", "close", "gone"))
        if kind == "driver":
            for driver in self.drivers:
                if driver.alive:
                    self.die(driver)
        elif kind == "close" and node.up and node.job is not None:
            self.say(f"node {node.number} is closed")
            self.ask(node, life.EngineStopping())
            born = node.life
            self.after(
                self.chance.uniform(0.0, 10.0),
                lambda: self.kill(node) if node.life == born else None,
            )
        elif kind == "gone" and node.number > 0:
            self.kill(node, for_good=True)
        else:
            self.kill(node)

    def kill(self, node: Node, *, for_good: bool = False) -> None:
        """End an engine's process: its memory is lost, and its driver ends with it, at the latest when it is back."""
        if not node.up:
            return
        self.say(f"node {node.number} dies{' for good' if for_good else ''}")
        node.up, node.job, node.down_since = False, None, self.now
        node.life += 1
        node.met.clear()
        node.armed = 0.0
        node.gone = for_good
        node.inbox.open = node.inbox.paused = False
        orphans = [node.driver, node.leaving]
        node.driver = node.leaving = None
        self.after(
            self.chance.uniform(0.0, 2.0), lambda: [self.end(orphan) for orphan in orphans] and None
        )
        if not for_good:
            self.after(self.chance.uniform(0.0, 40.0), lambda: self.restart(node))

    def restart(self, node: Node) -> None:
        if node.up or node.gone:
            return
        self.say(f"node {node.number} is back")
        node.up, node.job = True, node.disk
        if self.rules.orphans_ended and node.number == 0:
            for driver in self.drivers:
                self.end(driver)
        if node.job is not None:
            self.guarded(node, lambda: self.apply(node, life.EngineStarted()))
        elif not self.deployed:
            self.deploy(node)

    # users and producers

    def user(self) -> None:
        """Somebody asks for something, everywhere or, if the command is cut short, somewhere."""
        weights = (6, 2, 5, 3, 1)
        what = self.chance.choices(("drain", "flush", "resume", "undeploy", "force"), weights)[0]
        self.say(f"a user says {what}")
        event: Event = {
            "drain": life.DrainAsked(),
            "flush": life.DrainAsked(flush=True),
            "resume": life.ResumeAsked(),
            "undeploy": life.UndeployAsked(purge=True),
            "force": life.UndeployAsked(force=True, purge=True),
        }[what]
        if what == "force":
            self.forced = True
        order = list(reversed(self.nodes)) if "drain" in what or what == "flush" else self.nodes
        if what == "undeploy" and not all(
            n.up and n.job and n.job.state in life.SETTLED for n in self.nodes
        ):
            order = self.nodes[:1]  # the driver's engine refuses, and that is that
        for node in order:
            if not self.ask(node, event) or self.chance.random() < 0.05:
                return

    def produce(self) -> None:
        if self.now > self.calm_at:
            return
        node = self.chance.choice(self.nodes)
        inbox = node.inbox
        if node.up and inbox.open and not inbox.paused and not inbox.ended:
            if node.job is not None and not node.job.intake:
                raise Violation("intake", f"a job that is {node.job.state} takes events")
            inbox.taken += 1
            self.acked += 1
        self.after(self.chance.uniform(0.5, self.calm_at / 8), self.produce)

    # promises

    def check(self) -> None:
        for partition, node in enumerate(self.nodes):
            if self.processed[partition] > node.inbox.taken and node.files:
                raise Violation(
                    "lost",
                    f"{node.inbox.taken} rows are left of {self.processed[partition]} processed",
                )
            job = node.job
            if job is not None and job.state is JobState.DEPLOYED and len(self.nodes) == 1:
                raise Violation("half deployed", "a job of one engine waits to be begun")
            if (
                job is not None
                and node.up
                and job.state is not JobState.DEPLOYED
                and not node.inbox.open
            ):
                raise Violation("intake", f"the inboxes of a job that is {job.state} are closed")
            if job is not None and job.state is JobState.FINISHED and node.number == 0:
                self.check_finished(job)

    def check_finished(self, job: Job) -> None:
        for partition, node in enumerate(self.nodes):
            if node.files and (
                not node.inbox.ended or self.processed[partition] != node.inbox.taken
            ):
                raise Violation(
                    "finished", f"partition {partition} has not ended or is not processed"
                )

    def check_processed(self) -> None:
        for partition, node in enumerate(self.nodes):
            # One that took no part in the drain is not finished with; whoever asked was told so.
            took_part = node.job is not None and not node.job.intake
            if took_part and self.processed[partition] != node.inbox.taken:
                raise Violation("drained", f"partition {partition} has rows that are not processed")

    def check_end(self) -> None:
        for node in self.nodes:
            if node.gone:
                continue
            if node.driver is not None or node.inbox.open or node.files or node.disk is not None:
                raise Violation("left behind", f"node {node.number} still has something of the job")
        if any(driver.alive for driver in self.drivers if driver is not self.nodes[0].leaving):
            raise Violation("left behind", "a driver")


class Operator:
    """Shuts the job down when all is calm: drains it with flush, tells all engines, undeploys it; patiently."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.done = False

    def step(self) -> None:
        world = self.world
        there = [node for node in world.nodes if node.up and node.job is not None]
        if world.deployed and not there and all(node.up or node.gone for node in world.nodes):
            self.done = True
            return
        world.after(2.0, self.step)
        if any(not node.up and not node.gone for node in world.nodes):
            return
        self.shut(there)

    def shut(self, there: list[Node]) -> None:
        main = self.world.nodes[0].job
        if main is None:
            self.undeploy(there)
            return
        self.begin(there)
        match main.state:
            case JobState.FINISHED:
                self.settled(there, life.Finished())
            case JobState.FAILED if main.missed and any(node.gone for node in self.world.nodes):
                self.given_up(there)
            case JobState.DRAINED | JobState.FAILED:
                self.all(there, life.ResumeAsked())
            case JobState.DRAINING if main.flush:
                self.end_others(there)
            case JobState.DRAINING:
                self.be_patient(main)
            case _:
                self.all(there, life.DrainAsked(flush=True))

    def begin(self, there: list[Node]) -> None:
        for node in there:
            if node.job is not None and node.job.state is JobState.DEPLOYED:
                self.world.ask(node, life.Deployed(driver=node.number == 0))

    def all(self, there: list[Node], event: Event) -> None:
        # The followers first: what reads them must find them as the job is.
        for node in reversed(there):
            self.world.ask(node, event)

    def be_patient(self, main: Job) -> None:
        if self.world.now - max(main.since, self.world.calm_at) > PEERS_S + 100.0:
            raise Violation("jam", "a drain does not come to its end")

    def end_others(self, there: list[Node]) -> None:
        for node in there[1:]:
            if not node.inbox.ended:
                self.world.ask(node, life.ResumeAsked())
                self.world.ask(node, life.DrainAsked(flush=True))

    def settled(self, there: list[Node], event: Event) -> None:
        for node in there:
            if node.number > 0 and node.job is not None and node.job.state not in life.SETTLED:
                self.world.ask(node, life.DrainAsked(flush=True))
                self.world.ask(node, event)
        self.undeploy(there)

    def given_up(self, there: list[Node]) -> None:
        """The job says which engine it misses: the rest is let go of, by force where somebody still waits for it."""
        for node in there:
            self.world.ask(node, life.UndeployAsked(force=node.number > 0, purge=True))

    def undeploy(self, there: list[Node]) -> None:
        for node in there:
            self.world.ask(node, life.UndeployAsked(force=node.number > 0, purge=True))


def violation(seed: int, rules: Rules = OURS) -> Violation | None:
    """Run a seed, and return the promise that it breaks, if any."""
    try:
        World(seed, rules).run()
    except Violation as found:
        return found
    return None


def story(seed: int, rules: Rules = OURS) -> list[str]:
    """Return what happens in a seed, a line for each event."""
    world = World(seed, rules, told=True)
    assert world.story is not None
    try:
        world.run()
    except Violation as found:
        world.say(f"BROKEN {found}")
    return world.story
