"""A world of producers, inboxes and a bad network, in one process, without threads, sockets, disks or time.

    source ── router ──┬── window ══ network ══▶ admission ── journal (synced | not synced)     p0 ... pN, i0 ... iM
              (policy) └── window ◀═ answers ═══ when durable

The rules are the real ones (`millstream.links`: admission, window, routing); what is modelled is
what they stand between. A journal is a list of which only the synced front outlives a crash, as
with ours. A producer is a source whose rows are numbered by place; dead and back, it reads again
from its last acknowledged place or an earlier one under the same sender, with batches cut anew. One
whose router chooses the least loaded inbox never dies here: its choices are not logged, so rows
read again could go to another inbox, and that is not promised. A local producer and its inbox are
one process, and die together.

Checked at every step:

    acknowledged   what a window has forgotten is in the synced part of its inbox's journal
    once           no row is in two places
    room           no more waits for a disk than its inbox can hold
    order          the numbers of a sender rise in every journal, so rows of a key keep their order
    ended          when the last END_OF_STREAM comes, all rows of all senders are there
    spin           who has nothing to do does not ask to be woken at once

and at the end, a bounded time after the last fault:

    jam            all windows are empty, all rows and all ENDs are in the journals
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from millstream.journal.partitioning import grouped
from millstream.links import admission, routing, window
from millstream.links.admission import NOTHING, Ends
from millstream.links.routing import Policy
from millstream.links.window import Answer, Piece, Send, Window
from simulation.links.scenario import CALM, Cut, Fate, InboxCrash, ProducerCrash, Scenario, Slow

_TRAVEL, _CALL = 1.0, 0.125
_KEYS = 5


class Violation(Exception):
    """A promise is broken: which one, and how."""

    def __init__(self, promise: str, fact: str) -> None:
        super().__init__(f"{promise}: {fact}")
        self.promise = promise


# journal and inbox


class Inbox:
    """Takes rows by the real rules of admission, and answers when they are durable."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.plan = world.scenario.inboxes[number]
        self.journal: list[tuple[str, int]] = []
        self.index: dict[tuple[str, int], int] = {}
        self.synced = 0
        self.syncing = False
        self.highest: dict[str, int] = {}
        self.tail: dict[
            str, int
        ] = {}  # how far the journal must be synced for all of a sender's rows
        self.waiting: list[tuple[int, Producer, int, int, int, int]] = []
        self.life = 0
        self.down = self.refusing = False
        self.ends = Ends(frozenset(world.names))

    # taking

    @property
    def free(self) -> int:
        return max(0, self.plan.capacity - (len(self.journal) - self.synced))

    def durable(self, sender: str) -> int:
        """Return the highest number of a sender in the synced part."""
        if self.tail.get(sender, 0) <= self.synced:
            return self.highest.get(sender, NOTHING)
        return max(
            (n for name, n in self.journal[: self.synced] if name == sender), default=NOTHING
        )

    def receive(self, producer: Producer, life: int, order: Send) -> None:
        if self.down:
            self.world.tell(lambda: f"i{self.number} is down and gets nothing")
            return
        if self.refusing:
            self.answer(producer, life, order.request, 0, NOTHING)
            return
        sender, numbers = producer.name, order.piece.numbers
        found = self.world.rules.admit(
            self.highest.get(sender, NOTHING), order.after, numbers, self.free
        )
        for n in numbers[found.repeated : found.repeated + found.fresh]:
            self.append(sender, n)
        self.world.tell(
            lambda: (
                f"i{self.number} takes {found.repeated} repeated and {found.fresh} fresh of {shown(numbers)}"
            )
        )
        self.sync()
        self.reply(producer, life, order, found)

    def reply(self, producer: Producer, life: int, order: Send, found: admission.Admission) -> None:
        taken = found.taken
        last = order.piece.numbers[taken - 1] if taken else NOTHING
        durable = self.durable(producer.name)
        if last <= durable:
            self.answer(producer, life, order.request, taken, durable)
        else:
            self.waiting.append(
                (self.tail[producer.name], producer, life, order.request, taken, last)
            )

    def answer(self, producer: Producer, life: int, request: int, taken: int, highest: int) -> None:
        answer = Answer(request, taken, highest, 0 if self.refusing else self.free)
        self.world.carry(
            producer, self, back=True, what=(producer.receive, (life, self.number, answer))
        )

    def append(self, sender: str, number: int) -> None:
        world, event = self.world, (sender, number)
        producer = world.producers[world.names.index(sender)]
        if number <= self.highest.get(sender, NOTHING):
            raise Violation(
                "order", f"{sender}'s {number} comes to i{self.number} after {self.highest[sender]}"
            )
        if not producer.everywhere(number):
            if event in world.where:
                raise Violation(
                    "once",
                    f"{sender}'s row {number} is in i{world.where[event]} and in i{self.number}",
                )
            world.where[event] = self.number
        self.index[event] = len(self.journal)
        self.journal.append(event)
        self.highest[sender] = number
        self.tail[sender] = len(self.journal)
        if len(self.journal) - self.synced > self.plan.capacity:
            raise Violation("room", f"i{self.number} holds more than {self.plan.capacity} rows")
        if number == producer.plan.rows:
            self.end(sender)

    def end(self, sender: str) -> None:
        self.ends = self.ends.after(sender)
        if not self.ends.complete:
            return
        for producer in self.world.producers:
            missing = [
                n for n in producer.belongs(self.number) if (producer.name, n) not in self.index
            ]
            if missing:
                raise Violation(
                    "ended", f"i{self.number} has ended without {producer.name}'s {shown(missing)}"
                )

    # the disk

    def sync(self) -> None:
        if self.syncing or len(self.journal) == self.synced:
            return
        self.syncing = True
        slow = [
            one.sync
            for one in self.world.slow
            if one.inbox == self.number and one.at <= self.world.now < one.until
        ]
        self.world.after(
            max(slow, default=self.plan.sync), self.has_synced, (self.life, len(self.journal))
        )

    def has_synced(self, life: int, upto: int) -> None:
        if life != self.life:
            return
        self.syncing = False
        self.synced = upto
        self.world.tell(lambda: f"i{self.number} has synced {upto} events")
        due = [one for one in self.waiting if one[0] <= upto]
        self.waiting = [one for one in self.waiting if one[0] > upto]
        for _, producer, producer_life, request, taken, last in due:
            self.answer(
                producer, producer_life, request, taken, max(last, self.durable(producer.name))
            )
        self.sync()

    # dying

    def fail(self, fault: InboxCrash) -> None:
        waiting, self.waiting = self.waiting, []
        self.cut_to(self.synced + int((len(self.journal) - self.synced) * fault.kept))
        self.down, self.refusing = not fault.alive, fault.alive
        self.world.tell(
            lambda: (
                f"i{self.number} {'cannot write' if fault.alive else 'dies'}, {len(self.journal)} events are left"
            )
        )
        if fault.alive:
            for _, producer, life, request, _, _ in waiting:
                self.answer(producer, life, request, 0, self.durable(producer.name))
        else:
            self.world.left_alone(self, told=fault.told)

    def cut_to(self, end: int) -> None:
        for event in self.journal[end:]:
            del self.index[event]
            self.world.where.pop(event, None)
        del self.journal[end:]
        # What was found after a crash is synced before anything else happens.
        self.synced = end
        self.life += 1
        self.syncing = False
        self.highest, self.tail = {}, {}
        self.ends = Ends(self.ends.upstreams)
        for place, (sender, number) in enumerate(self.journal, start=1):
            self.highest[sender], self.tail[sender] = number, place
            if number == self.world.producers[self.world.names.index(sender)].plan.rows:
                self.ends = self.ends.after(sender)

    def rise(self) -> None:
        self.down = self.refusing = False
        self.world.tell(lambda: f"i{self.number} is back")


# source, router, windows


class Producer:
    """Reads its source, routes by the real rules, and has a real window for every inbox."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.name = world, number, f"p{number}"
        self.plan = world.scenario.producers[number]
        self.life = 0
        self.down = False
        self.begin(0)

    def begin(self, position: int) -> None:
        inboxes = len(self.world.scenario.inboxes)
        self.position = position
        self.windows = [Window() for _ in range(inboxes)]
        self.offered: list[list[int]] = [[] for _ in range(inboxes)]
        self.checked = [0] * inboxes
        self.timer: float | None = None

    def everywhere(self, number: int) -> bool:
        """Whether the event is an instruction."""
        return number == self.plan.rows or number in self.plan.marks

    def belongs(self, inbox: int) -> list[int]:
        """Return the numbers of the events that must come to an inbox."""
        if self.plan.policy is Policy.LEAST_LOADED:
            return self.offered[inbox]
        rows = range(self.plan.rows + 1)
        return [n for n in rows if self.everywhere(n) or self.place(n) == inbox]

    def place(self, number: int) -> int:
        match self.plan.policy:
            case Policy.LOCAL:
                return self.plan.home
            case Policy.IN_TURN:
                return number % len(self.windows)
        return (number * 7 + number // 3) % _KEYS % len(self.windows)

    @property
    def done(self) -> bool:
        return (
            not self.down
            and self.position > self.plan.rows
            and not any(one.pieces for one in self.windows)
        )

    # reading

    def read(self) -> None:
        plan = self.plan
        while self.position <= plan.rows:
            if self.everywhere(self.position):
                taken = self.instruct(self.position)
            else:
                stop = next(n for n in range(self.position, plan.rows + 1) if self.everywhere(n))
                taken = self.route(self.position, min(plan.batch, stop - self.position))
            if taken == 0:
                return
            self.position += taken

    def room(self, inbox: int) -> int:
        return self.plan.outbox - self.windows[inbox].rows

    def instruct(self, number: int) -> int:
        if any(self.room(n) < 1 for n in range(len(self.windows))):
            return 0
        for n in range(len(self.windows)):
            self.offer(n, range(number, number + 1))
        return 1

    def route(self, first: int, count: int) -> int:
        rooms = [self.room(n) for n in range(len(self.windows))]
        numbers = range(first, first + count)
        if self.plan.policy in (Policy.LEAST_LOADED, Policy.LOCAL) or len(rooms) == 1:
            chosen = (
                self.plan.home if self.plan.policy is Policy.LOCAL else routing.least_loaded(rooms)
            )
            count = min(count, rooms[chosen])
            if count > 0:
                self.offer(chosen, numbers[:count])
            return max(count, 0)
        places = self.places(numbers)
        count = routing.admitted(places, rooms)
        for chosen, rows in grouped(places[:count]):
            self.offer(chosen, tuple(numbers[n] for n in rows.tolist()))
        return count

    def places(self, numbers: range) -> routing.Places:
        if self.plan.policy is Policy.IN_TURN:
            return self.world.rules.in_turn(np.array(numbers), len(self.windows))
        return np.array([self.place(n) for n in numbers])

    def offer(self, inbox: int, numbers: Sequence[int]) -> None:
        self.offered[inbox].extend(numbers)
        self.windows[inbox] = window.offer(self.windows[inbox], Piece(numbers, numbers))

    # sending

    def step(self) -> None:
        """Do what is due."""
        self.read()
        rules, now, limits = self.world.rules, self.world.now, self.world.scenario.limits
        wake: float | None = None
        for n, one in enumerate(self.windows):
            if not one.pieces and not one.flights:
                continue
            self.windows[n], overdue = rules.expired(one, now, limits)
            if overdue:
                self.overdue(n)
            self.windows[n], orders = rules.send(self.windows[n], now, limits)
            for order in orders:
                self.transmit(n, order)
            at = window.wake_at(self.windows[n])
            if at is not None and at <= now:
                raise Violation(
                    "spin",
                    f"{self.name} wants to be woken at {at:g} for i{n}, and has nothing to do",
                )
            if at is not None and (wake is None or at < wake):
                wake = at
        self.wake(wake)

    def wake(self, at: float | None) -> None:
        if at is not None and (self.timer is None or at < self.timer):
            self.timer = at
            self.world.at(at, self.woken, (self.life, at))

    def woken(self, life: int, at: float) -> None:
        if life == self.life and at == self.timer:
            self.timer = None
            self.step()

    def overdue(self, inbox: int) -> None:
        """An answer has not come."""
        self.world.tell(lambda: f"{self.name} gives up waiting for i{inbox}")

    def transmit(self, inbox: int, order: Send) -> None:
        self.world.tell(
            lambda: (
                f"{self.name} sends i{inbox} {shown(order.piece.numbers)} after {order.after}, request {order.request}"
            )
        )
        target = self.world.inboxes[inbox]
        self.world.carry(self, target, back=False, what=(target.receive, (self, self.life, order)))

    def receive(self, life: int, inbox: int, answer: Answer) -> None:
        if life != self.life or self.down:
            return
        self.world.tell(
            lambda: (
                f"{self.name} hears of request {answer.request} from i{inbox}: {answer.taken} taken, "
                f"durable to {answer.highest}, {answer.free} free"
            )
        )
        self.windows[inbox] = self.world.rules.answered(
            self.windows[inbox], answer, self.world.now, self.world.scenario.limits
        )
        self.check(inbox)
        self.step()

    def lost(self, life: int, inbox: int) -> None:
        """The link to an inbox is gone."""
        if life == self.life and not self.down:
            self.windows[inbox] = window.lost(
                self.windows[inbox], self.world.now, self.world.scenario.limits
            )
            self.step()

    def check(self, inbox: int) -> None:
        """What the window has forgotten must be synced."""
        one, offered, there = self.windows[inbox], self.offered[inbox], self.world.inboxes[inbox]
        kept = one.pieces[0].numbers[0] if one.pieces else self.plan.rows + 1
        upto = bisect_right(offered, kept - 1)
        for n in offered[self.checked[inbox] : upto]:
            if there.index.get((self.name, n), there.synced) >= there.synced:
                raise Violation(
                    "acknowledged",
                    f"{self.name}'s {n} is acknowledged by i{inbox} and not durable there",
                )
        self.checked[inbox] = max(self.checked[inbox], upto)

    # dying

    def die(self, back: float) -> None:
        if self.down:
            return
        first = [one.pieces[0].numbers[0] for one in self.windows if one.pieces]
        self.begin(int(min(first, default=self.position) * back))
        self.life += 1
        self.down = True
        self.world.tell(lambda: f"{self.name} dies and will read again from {self.position}")

    def rise(self) -> None:
        if self.down:
            self.down = False
            self.world.tell(lambda: f"{self.name} is back")
            self.step()


# the world


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that a world runs by: ours, or with one of them broken to see that it is noticed."""

    admit: Callable[..., admission.Admission] = admission.admit
    send: Callable[..., tuple[Window, list[Send]]] = window.send
    answered: Callable[..., Window] = window.answered
    expired: Callable[..., tuple[Window, bool]] = window.expired
    in_turn: Callable[..., routing.Places] = routing.in_turn
    inbox: type[Inbox] = Inbox
    producer: type[Producer] = Producer


OURS = Rules()


@dataclass
class World:
    """Everybody, the messages on their way, and the time."""

    scenario: Scenario
    rules: Rules = OURS
    story: list[str] | None = None
    now: float = 0.0
    steps: int = 0
    messages: int = 0
    where: dict[tuple[str, int], int] = field(default_factory=dict)
    _events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )
    _count: int = 0

    def __post_init__(self) -> None:
        faults = self.scenario.faults
        self.names = [f"p{n}" for n in range(len(self.scenario.producers))]
        self.fates = {one.message: one for one in faults if isinstance(one, Fate)}
        self.cuts = [one for one in faults if isinstance(one, Cut)]
        self.slow = [one for one in faults if isinstance(one, Slow)]
        self.inboxes = [self.rules.inbox(self, n) for n in range(len(self.scenario.inboxes))]
        self.producers = [self.rules.producer(self, n) for n in range(len(self.scenario.producers))]
        for producer in self.producers:
            self.at(0.0, producer.step, ())
        for fault in faults:
            self.arrange(fault)

    def tell(self, line: Callable[[], str]) -> None:
        """Add a line to the story, if there is one: words cost more than what they tell."""
        if self.story is not None:
            self.story.append(f"{self.now:8.2f}  {line()}")

    def at(self, moment: float, do: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._count += 1
        heappush(self._events, (moment, self._count, do, arguments))

    def after(self, delay: float, do: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.at(self.now + delay, do, arguments)

    # faults

    def arrange(self, fault: Any) -> None:
        if isinstance(fault, InboxCrash):
            self.at(fault.at, self.inbox_fails, (fault,))
        elif isinstance(fault, ProducerCrash):
            self.at(fault.at, self.producer_dies, (fault.producer, fault.until, fault.back))

    def inbox_fails(self, fault: InboxCrash) -> None:
        inbox = self.inboxes[fault.inbox]
        if inbox.down or inbox.refusing:
            return
        inbox.fail(fault)
        self.at(fault.until, inbox.rise, ())
        if not fault.alive:
            for producer in self.local(inbox):
                self.die(producer, fault.until, 1.0)

    def producer_dies(self, number: int, until: float, back: float) -> None:
        producer = self.producers[number]
        if producer.plan.policy is Policy.LOCAL:
            # It is one process with its inbox.
            self.inbox_fails(
                InboxCrash(self.now, until, producer.plan.home, 0.0, told=True, alive=False)
            )
        self.die(producer, until, back)

    def die(self, producer: Producer, until: float, back: float) -> None:
        if not producer.down:
            producer.die(back)
            self.at(until, producer.rise, ())

    def local(self, inbox: Inbox) -> list[Producer]:
        return [
            one
            for one in self.producers
            if one.plan.policy is Policy.LOCAL and one.plan.home == inbox.number
        ]

    def left_alone(self, inbox: Inbox, *, told: bool) -> None:
        for producer in self.producers if told else ():
            self.after(_TRAVEL, producer.lost, (producer.life, inbox.number))

    # the network

    def carry(
        self, producer: Producer, inbox: Inbox, *, back: bool, what: tuple[Any, tuple[Any, ...]]
    ) -> None:
        if producer.plan.policy is Policy.LOCAL and producer.plan.home == inbox.number:
            self.after(_CALL, *what)
            return
        number = self.messages
        self.messages += 1
        if self.cuts and any(self.parted(cut, producer, inbox, back=back) for cut in self.cuts):
            self.tell(lambda: f"message {number} does not get through")
            return
        fate = self.fates.get(number)
        if fate is None:
            self.after(_TRAVEL, *what)
            return
        self.tell(lambda: str(fate))
        if fate.by is not None:
            self.after(_TRAVEL + fate.by, *what)
        if fate.again is not None:
            self.after(_TRAVEL + fate.again, *what)

    def parted(self, cut: Cut, producer: Producer, inbox: Inbox, *, back: bool) -> bool:
        here = cut.inbox == inbox.number and cut.producer in (None, producer.number)
        return here and cut.at <= self.now < cut.until and (back or not cut.mute)

    # running

    def run(self) -> None:
        """Run until nothing happens any more.

        Raises:
            Violation: A promise was broken.
        """
        events = self._events
        longest = CALM + 100.0 + 30.0 * self.scenario.events * len(self.inboxes)
        most = 4000 + 400 * self.scenario.events
        try:
            while events:
                self.now, _, do, arguments = heappop(events)
                self.steps += 1
                if self.now > longest or self.steps > most:
                    raise Violation("jam", f"after {self.steps} steps it is still not done")
                do(*arguments)
            self.check_end()
        except AssertionError as exc:
            raise Violation("assertion", str(exc)) from exc

    def check_end(self) -> None:
        for producer in self.producers:
            if not producer.done:
                left = [
                    shown([n for piece in one.pieces for n in piece.numbers])
                    for one in producer.windows
                ]
                raise Violation(
                    "jam",
                    f"{producer.name} has read up to {producer.position} and holds {left} for ever",
                )
        for producer in self.producers:
            for inbox in self.inboxes:
                self.check_arrived(producer, inbox)
            rows = [n for n in range(producer.plan.rows) if not producer.everywhere(n)]
            if nowhere := [n for n in rows if (producer.name, n) not in self.where]:
                raise Violation("jam", f"{producer.name}'s {shown(nowhere)} never came anywhere")
        for inbox in self.inboxes:
            if not inbox.ends.complete:
                raise Violation(
                    "ended",
                    f"i{inbox.number} still waits for the end of {sorted(inbox.ends.missing)}",
                )

    def check_arrived(self, producer: Producer, inbox: Inbox) -> None:
        places = ((n, inbox.index.get((producer.name, n))) for n in producer.belongs(inbox.number))
        missing = [n for n, place in places if place is None or place >= inbox.synced]
        if missing:
            raise Violation(
                "jam", f"{producer.name}'s {shown(missing)} never came to i{inbox.number}"
            )


def shown(numbers: Sequence[int]) -> str:
    """Return numbers in a few characters."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers)) or "nothing"


def violation(scenario: Scenario, rules: Rules = OURS) -> Violation | None:
    """Run a scenario, and return the promise that it breaks."""
    try:
        World(scenario, rules).run()
    except Violation as found:
        return found
    return None


def story(scenario: Scenario, rules: Rules = OURS) -> list[str]:
    """Run a scenario and return what happens in it, a line for each event."""
    world = World(scenario, rules, story=[])
    assert world.story is not None
    try:
        world.run()
        world.tell(lambda: f"all is done, in {world.steps} steps")
    except Violation as found:
        promise = str(found)
        world.tell(lambda: f"BROKEN {promise}")
    return [*scenario.lines(), *world.story]
