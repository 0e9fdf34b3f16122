"""What a simulated job goes through, and all that goes wrong: plain data, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from millstream.switch.cut import WHOLE
from simulation.switch.shapes import Row, Shape

KEYS = tuple(f"k{number}" for number in range(5))


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is appended to a partition: a row, or the floor of an IDLE record."""

    at: int
    partition: int
    row: Row | None = None
    floor: int | None = None

    def __str__(self) -> str:
        what = (
            f"IDLE {self.floor}"
            if self.row is None
            else f"row {self.row.id} of {self.row.key} at {self.row.time}"
        )
        return f"from {self.at} on partition {self.partition} gets {what}"


@dataclass(frozen=True, slots=True)
class Wish:
    """A user wants a version of a shape, with a share of the keys at first; or another share; or an end."""

    at: int
    kind: str
    shape: Shape | None = None
    share: int = WHOLE
    limit: int = 400

    def __str__(self) -> str:
        return f"from {self.at} on somebody wants: {self.kind} {self.shape or ''} {self.share / WHOLE:.0%}"


@dataclass(frozen=True, slots=True)
class Crash:
    """The driver dies at a step."""

    at: int

    def __str__(self) -> str:
        return f"at step {self.at} the driver dies"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A version (by the number of its switch) takes long to start, does not start, is slow, or turns out to be unhealthy."""

    number: int
    kind: str
    by: int = 0

    def __str__(self) -> str:
        return f"the version of switch {self.number}: {self.kind} {self.by or ''}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole life, with batches of at most so many rows of each partition; it ends, if wishes are open, at a step. Same scenario, same run."""

    seed: int
    window: int
    lateness: int
    partitions: int
    first: Shape
    arrivals: tuple[Arrival, ...]
    wishes: tuple[Wish, ...] = ()
    faults: tuple[Crash | Trouble, ...] = ()
    most: int = 100
    ends: int = 500

    def lines(self) -> list[str]:
        """Return the scenario in words."""
        head = f"{self.partitions} partitions, lateness {self.lateness}, windows of {self.window}, at first {self.first}"
        return [head, *map(str, self.arrivals), *map(str, self.wishes), *map(str, self.faults)]

    def without(self, part: str, number: int) -> Scenario:
        """Return the scenario without one of its arrivals, wishes or faults."""
        kept = list(getattr(self, part))
        del kept[number]
        return replace(self, **{part: tuple(kept)})


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = Random(seed)
    window = rng.choice((4, 6, 10))
    partitions = rng.choice((1, 2, 2, 3))
    lateness = rng.choice((0, 3, 8))
    arrivals = _arrivals(rng, partitions, lateness)
    first = _shape(rng, window)
    same = rng.random() < 0.4
    wishes = tuple(_wishes(rng, window, first if same else None))
    faults: list[Crash | Trouble] = [
        Crash(rng.randrange(10, 400)) for _ in range(rng.choice((0, 0, 1, 2, 4)))
    ]
    for number in range(1, 4):
        if rng.random() < 0.3:
            kind = rng.choice(
                (
                    "starts after",
                    "does not start",
                    "hangs",
                    "is slow",
                    "is unhealthy after",
                    "is unhealthy after",
                )
            )
            faults.append(Trouble(number, kind, rng.choice((20, 60, 100))))
    ordered = sorted(faults, key=lambda fault: getattr(fault, "at", 0))
    return Scenario(
        seed,
        window,
        lateness,
        partitions,
        first,
        arrivals,
        wishes,
        tuple(ordered),
        rng.choice((1, 2, 100)),
    )


def _arrivals(rng: Random, partitions: int, lateness: int) -> tuple[Arrival, ...]:
    found: list[Arrival] = []
    now, at = 1, 0
    silent = rng.choice((None, None, partitions - 1)) if partitions > 1 else None
    for number in range(rng.choice((8, 20, 40, 60))):
        now += rng.choice((0, 1, 1, 2, 3, 7))
        at += rng.choice((0, 3, 6, 15))
        partition = rng.randrange(partitions)
        if partition == silent or rng.random() < 0.1:
            found.append(Arrival(at, partition, floor=max(1, now - lateness)))
            continue
        behind = rng.choice((0, 0, 0, 1, lateness // 2, lateness, lateness, lateness, lateness + 1))
        found.append(Arrival(at, partition, Row(max(1, now - behind), rng.choice(KEYS), number)))
    return tuple(found)


def _shape(rng: Random, window: int) -> Shape:
    skip = rng.choice((0, 3, 4))
    kind = rng.choice(
        (
            "rows",
            "tumbling",
            "sliding",
            "window rows",
            "windows of windows",
            "sessions",
            "join",
            "outer join",
            "full join",
            "joined rows",
            "windows of pairs",
            "match",
        )
    )
    match kind:
        case "tumbling":
            size = rng.choice((window, 2 * window, 3, 4))
            return Shape(kind, size, size, skip)
        case "sliding" | "window rows" | "windows of windows":
            every = rng.choice((2, 4, window))
            return Shape(kind, every * rng.choice((2, 3)), every, skip)
        case "sessions":
            return Shape(kind, 0, rng.choice((2, 4)), skip)
        case "rows":
            return Shape(kind, skip=skip)
        case "windows of pairs":
            return Shape(kind, rng.choice((3, 7)), rng.choice((window, 3)), skip)
    return Shape(kind, rng.choice((3, 7)), 0, skip)


def _wishes(rng: Random, window: int, same: Shape | None) -> list[Wish]:
    found: list[Wish] = []
    at = 0
    for _ in range(rng.choice((1, 1, 2, 3))):
        at += rng.randrange(0, 100)
        shape = same or _shape(rng, window)
        kind = rng.choice(("switch", "switch", "switch", "share", "shadow"))
        share = rng.choice((1000, 5000)) if kind == "share" else WHOLE
        limit = rng.choice((80, 400))
        found.append(Wish(at, kind, shape, share, limit))
        if kind == "share":
            steps = rng.choice(((WHOLE,), (7000, WHOLE), (0,), (7000, 0), ()))
            for share in steps:
                at += rng.randrange(30, 120)
                found.append(Wish(at, "raise", share=share, limit=limit))
        if kind == "shadow":
            found.append(Wish(at + 60, "abort"))
        if rng.random() < 0.15:
            found.append(Wish(at + rng.randrange(1, 60), "abort"))
    return sorted(found, key=lambda wish: wish.at)
