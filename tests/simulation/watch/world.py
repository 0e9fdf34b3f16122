"""A world of two or three devices that watch for one pattern, and a network that does its worst.

The rules are those of `watch.device`; sensors, network, disks and crashes are simulated. Sensors
send each event until it is acknowledged, to whatever device is up, sometimes to two. Messages are
lost, late, repeated and out of order; devices are cut off from each other; they crash between any
two steps, and come back with their disk or with an empty one. At the end all faults stop.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.device import Complete, Device, Sharing
from millstream.watch.matcher import Matcher
from millstream.watch.messages import COMPLETED, Ack, Records, RunId, Say
from millstream.watch.runs import Run

SECOND = 1_000_000
NAMES = "ABC"
TICK_S = 2.0
_encode = msgspec.msgpack.encode


def _block(letter: str) -> Callable[[Any], bool]:
    return lambda row: letter in row["kind"]


def exact() -> dict[str, Pattern]:
    """Return a pattern of each kind that is exact across devices."""
    a, b, c, d = (_block(letter) for letter in "abcd")
    begin = Pattern("p").begin("a", a)
    group = Pattern().begin("b", b).followed_by("c", c)
    found = {
        "sequence": begin.followed_by("b", b).followed_by("c", c).followed_by("d", d),
        "any": begin.followed_by_any("b", b).followed_by("c", c),
        "loop": begin.followed_by("b", b).one_or_more().followed_by("c", c),
        "optional": begin.followed_by("b", b).optional().followed_by("c", c),
        "open end": begin.followed_by("b", b).one_or_more(),
        "times": Pattern("p").begin("a", a).times(2).followed_by("c", c),
        "combinations": begin.followed_by("b", b).times(2).combinations().followed_by("c", c),
        "group": begin.followed_by("g", group).one_or_more().followed_by("d", d),
    }
    return {name: pattern.within("40 seconds") for name, pattern in found.items()}


def others() -> dict[str, Pattern]:
    """Return patterns of which devices agree in the end, but do not find what one would find."""
    a, b, c, d = (_block(letter) for letter in "abcd")
    begin = Pattern("p").begin("a", a)
    either = Pattern.either(Pattern().begin("b", b), Pattern().begin("c", c).followed_by("d", d))
    found = {
        "alternatives": begin.followed_by("o", either).followed_by("e", a),
        "registers": begin.followed_by("b", "v > a.v").followed_by("c", "v = a.v"),
        "block within": begin.followed_by("b", b, within="5 seconds").followed_by("c", c),
        "next": begin.next("b", b).followed_by("c", c),
        "negation": begin.not_followed_by("x", d).followed_by("c", c),
        "greedy": begin.followed_by("b", b).one_or_more().greedy().followed_by("c", c),
    }
    return {name: pattern.within("40 seconds") for name, pattern in found.items()}


def _edge(found: dict[str, Pattern]) -> dict[str, EdgePattern]:
    return {
        name: EdgePattern.of(pattern, schema=None, time="at", key=())
        for name, pattern in found.items()
    }


EXACT = _edge(exact())
PATTERNS = EXACT | _edge(others())


class Violation(Exception):
    """A promise that was not kept."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


@dataclass(eq=False)
class Node:
    """A device and its disk."""

    name: str
    device: Device | None = None
    disk: list[bytes] = field(default_factory=list)
    life: int = 0
    completed: list[RunId] = field(default_factory=list)


class World:
    """One seed's story."""

    faults_s = 100.0
    """When all faults stop."""
    settled_s = 300.0
    """When devices must agree."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0
        self.lines: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._tie = itertools.count()
        self.kind = self.random.choice(list(PATTERNS))
        self.pattern = PATTERNS[self.kind]
        self.nodes = {name: Node(name) for name in NAMES[: self.random.choice([2, 3])]}
        recall, limit = 3_600 * SECOND, self.random.choice([2, 100])
        self.sharing = Sharing(recall=recall, limit=limit, across="seed")
        self.events: list[tuple[tuple[str, int], int, dict[str, Any]]] = []
        self.published: list[RunId] = []
        self.loss = self.random.choice([0.0, 0.05, 0.3])
        self.repeat = self.random.choice([0.0, 0.2])
        self.slow = self.random.choice([0.1, 2.0, 20.0])
        self.crashes = self.random.choice([0, 0, 2, 5])
        self.empty = self.random.random() < 0.25
        self.cuts: set[frozenset[str]] = set()
        self.emptied = False

    @property
    def calm(self) -> bool:
        return self.now >= self.faults_s * SECOND

    def say(self, text: str) -> None:
        self.lines.append(f"{self.now / SECOND:8.2f} {text}")

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        moment = self.now + round(seconds * SECOND)
        heapq.heappush(self._queue, (moment, next(self._tie), what))

    def run(self) -> None:
        for node in self.nodes.values():
            self.start(node)
            self.tick(node)
        self._plan()
        while self._queue and self._queue[0][0] < self.settled_s * SECOND:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.check()

    def _plan(self) -> None:
        for number in range(self.random.choice([8, 20, 40])):
            at = self.random.uniform(0, self.faults_s)
            letters = "".join(self.random.sample("abcd", self.random.choice([1, 1, 2])))
            row = {"kind": letters, "v": self.random.randrange(3)}
            event = ("sensor", number), round(at * SECOND), row
            self.events.append(event)
            self.after(at, lambda event=event: self.sense(event))
        for _ in range(self.crashes):
            self.after(self.random.uniform(0, self.faults_s), self.crash)
        for _ in range(self.random.choice([0, 1, 3])):
            self.after(self.random.uniform(0, self.faults_s), self.cut)

    # Faults

    def crash(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.device is None:
            return
        lost = self.empty and self.random.random() < 0.5
        self.say(f"{node.name} crashes{' and loses its disk' if lost else ''}")
        if lost:
            node.disk.clear()
            node.completed.clear()
            self.emptied = True
        self.down(node, self.random.choice([0.5, 10.0, 100.0]))

    def cut(self) -> None:
        pair = frozenset(self.random.sample(list(self.nodes), 2))
        self.cuts.add(pair)
        self.say(f"{' and '.join(sorted(pair))} are cut off from each other")
        self.after(self.random.choice([5.0, 50.0, 100.0]), lambda: self.cuts.discard(pair))

    # Devices

    def start(self, node: Node) -> None:
        peers = [name for name in self.nodes if name != node.name]
        name = f"{node.name}{node.life}"
        device = Device([self.pattern], node.name, name, peers, self.sharing, elapsed=self.now)
        for record in node.disk:
            device.restore(msgspec.msgpack.decode(record, type=Records))
        if self.random.random() < 0.5:
            node.disk = [_encode(device.snapshot())]
        node.device = device
        self.say(f"{node.name} starts with {len(node.disk)} records")
        self.publish(node, device.undelivered)

    def sync(self, node: Node) -> None:
        assert node.device is not None
        records = node.device.records()
        if records is not None:
            node.disk.append(_encode(records))
        if len(node.disk) > 50:
            node.disk = [_encode(node.device.snapshot())]

    def sense(self, event: tuple[tuple[str, int], int, dict[str, Any]]) -> None:
        """A sensor sends an event, until some device has acknowledged it."""
        up = [node for node in self.nodes.values() if node.device is not None]
        if not up:
            self.after(1.0, lambda: self.sense(event))
            return
        for node in self.random.sample(up, min(len(up), self.random.choice([1, 1, 1, 2]))):
            assert node.device is not None
            self.say(f"{node.name} sees {event[0][1]} {event[2]['kind']} of {event[1] / SECOND}")
            found = node.device.event(*event)
            if not self.calm and self.crashes and self.random.random() < 0.02:
                self.say(f"{node.name} crashes before it has written that")
                self.down(node, 1.0)
                self.after(2.0, lambda: self.sense(event))
                continue
            self.done(node, found)

    def done(self, node: Node, found: list[Complete]) -> None:
        self.sync(node)
        self.note(node, found)
        if found and not self.calm and self.crashes and self.random.random() < 0.1:
            self.say(f"{node.name} crashes before it has published that")
            self.down(node, 1.0)
            return
        self.publish(node, [one for one in found if one.by == node.name])
        self.send(node)

    def down(self, node: Node, seconds: float) -> None:
        node.device, node.life = None, node.life + 1
        self.after(seconds, lambda: self.start(node))

    def note(self, node: Node, found: list[Complete]) -> None:
        for one in found:
            self.say(f"{node.name} completes {one.id.text()}")
            if one.id in node.completed:
                raise Violation("once", f"{node.name} completes {one.id.text()} again")
            node.completed.append(one.id)

    def publish(self, node: Node, found: list[Complete]) -> None:
        assert node.device is not None
        for one in found:
            self.say(f"{node.name} publishes {one.id.text()}")
            self.published.append(one.id)
            node.device.delivered(one.id)
        self.sync(node)

    def tick(self, node: Node) -> None:
        if node.device is not None:
            self.publish(node, node.device.orphans(self.now))
            self.send(node)
        self.after(TICK_S, lambda: self.tick(node))

    # The network

    def send(self, node: Node) -> None:
        assert node.device is not None
        for peer, say in node.device.due(self.now):
            self.sync(node)
            data, life = _encode(say), node.life
            kind, runs = str(say.kind).upper(), len(say.runs)
            reset = " with RESET" if say.reset else ""
            self.say(f"{node.name} sends {peer} {kind} {say.number} of {runs} runs{reset}")
            self.carry(node.name, peer, lambda p=peer, d=data, n=life: self.arrive(node, n, p, d))
            self.after(3.0, lambda p=peer, s=say, n=life: self.late(node, n, p, s.number))

    def carry(self, one: str, other: str, what: Callable[[], None]) -> None:
        if frozenset((one, other)) in self.cuts or (
            not self.calm and self.random.random() < self.loss
        ):
            return
        repeats = 1 + (not self.calm and self.random.random() < self.repeat)
        for _ in range(repeats):
            slow = 0.05 if self.calm else self.random.uniform(0.01, self.slow)
            self.after(slow, what)

    def arrive(self, sender: Node, life: int, name: str, data: bytes) -> None:
        node = self.nodes[name]
        if node.device is None:
            return
        ack, found = node.device.receive(
            sender.name, msgspec.msgpack.decode(data, type=Say), self.now
        )
        self.done(node, found)
        if node.device is None:
            return
        answer = _encode(ack)
        self.carry(name, sender.name, lambda: self.answered(sender, life, name, answer))

    def answered(self, sender: Node, life: int, peer: str, data: bytes) -> None:
        if sender.device is None or sender.life != life:
            return
        sender.device.acknowledged(peer, msgspec.msgpack.decode(data, type=Ack), self.now)
        self.send(sender)

    def late(self, sender: Node, life: int, peer: str, number: int) -> None:
        if sender.device is None or sender.life != life:
            return
        sender.device.failed(peer, number)

    # Promises

    def check(self) -> None:
        devices = [node.device for node in self.nodes.values() if node.device is not None]
        for device in devices:
            device.advance(self.now)
        known = [states(device) for device in devices]
        if any(one != known[0] for one in known):
            raise Violation("agree", differing(known))
        if self.emptied or self.kind not in EXACT:
            return
        want, got = self.alone(), known[0]
        completed = {one for one, (status, _) in got.items() if status == COMPLETED}
        if completed != set(want):
            missing, extra = set(want) - completed, completed - set(want)
            raise Violation("exact", f"missing {texts(missing)}, extra {texts(extra)}")
        if set(self.published) != completed:
            raise Violation("published", texts(completed ^ set(self.published)))

    def alone(self) -> dict[RunId, Run]:
        """Return the matches of one device that sees all events in the order of their times."""
        matcher = Matcher(self.pattern, "A", replicated=True)
        for event_id, at, row in sorted(self.events, key=lambda event: (event[1], event[0])):
            seen = self.pattern.seen(event_id, at, row)
            if seen is not None:
                matcher.offer(self.pattern.key(row), seen)
        return {run.id: run for run in matcher if run.completed}


def states(device: Device) -> dict[RunId, tuple[int, list[tuple[int, Any]]]]:
    """Return what a device knows of each run."""
    return {
        run.id: (run.status, [(block, seen.id) for block, seen in run.link.history])
        for matcher in device.matchers.values()
        for run in matcher
    }


def differing(known: list[dict[RunId, Any]]) -> str:
    ids = {run_id for one in known for run_id in one}
    return "; ".join(
        f"{run_id.text()}: {[one.get(run_id) for one in known]}"
        for run_id in sorted(ids, key=str)
        if any(one.get(run_id) != known[0].get(run_id) for one in known)
    )


def texts(ids: set[RunId]) -> list[str]:
    return sorted(run_id.text() for run_id in ids)


def violation(seed: int) -> Violation | None:
    """Return the promise that a seed breaks, if any."""
    try:
        World(seed).run()
    except Violation as broken:
        return broken
    return None


def story(seed: int) -> list[str]:
    """Return what happens in a seed, a line for each event."""
    world = World(seed)
    try:
        world.run()
    except Violation as broken:
        world.lines.append(f"broken: {broken}")
    return [f"pattern: {world.kind}, {len(world.nodes)} devices", *world.lines]
