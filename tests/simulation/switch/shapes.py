"""What versions compute, in the plainest way: all results of all rows, each with its start and when it is complete.

How far a shape reaches is not said here: it is what the plan of a real flow of that shape says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import NamedTuple

import millstream as ms
from millstream.plan.groups import plan as plan_of
from millstream.switch.changes import Version
from millstream.switch.plan import switch_plan

SECOND = timedelta(seconds=1)


class Row(NamedTuple):
    """An event."""

    time: int
    key: str
    id: int


class Result(NamedTuple):
    """What a version publishes; `complete` is the floor from which nothing can change it, None if that is at once."""

    start: int
    key: str
    content: tuple[object, ...]
    complete: int | None


@dataclass(frozen=True, slots=True)
class Shape:
    """A version: what it computes, over which lengths, and a filter: it leaves out rows whose id divides by `skip`."""

    kind: str
    size: int = 0
    every: int = 0
    skip: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.size}/{self.every}, without every {self.skip}th"
            if self.size
            else self.kind
        )

    def results(self, rows: Sequence[Row]) -> list[Result]:
        """Return all results of these rows."""
        kept = sorted(row for row in rows if not self.skip or row.id % self.skip)
        return list(COMPUTE[self.kind](self, kept))


def by_key(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.key].append(row)
    return found


def plain(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    for row in rows:
        yield Result(row.time, row.key, (row.id,), None)


def windows_of(time: int, size: int, every: int) -> range:
    """Return the starts of the windows that a moment lies in."""
    last = time // every * every
    return range(last, time - size, -every)


def windows(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    held: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in rows:
        for start in windows_of(row.time, shape.size, shape.every):
            held[start, row.key].append(row.id)
    for (start, key), ids in held.items():
        yield Result(start, key, (start, tuple(ids)), start + shape.size)


def windows_then_rows(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    """A window whose start was lost in a query behind it: its time, the last moment before its end, takes its place."""
    for one in windows(shape, rows):
        assert one.complete is not None
        yield one._replace(start=one.complete - 1)


def windows_of_windows(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    """Sliding windows, then tumbling ones of twice their step over their ends."""
    outer = 2 * shape.every
    held: dict[tuple[int, str], list[object]] = defaultdict(list)
    for inner in windows(shape, rows):
        assert inner.complete is not None
        held[(inner.complete - 1) // outer * outer, inner.key].append(inner.content)
    for (start, key), parts in held.items():
        yield Result(start, key, (start, tuple(sorted(parts, key=repr))), start + outer)


def sessions(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    for key, mine in by_key(rows).items():
        part: list[Row] = []
        for row in mine:
            if part and row.time >= part[-1].time + shape.every:
                yield session(shape, key, part)
                part = []
            part.append(row)
        if part:
            yield session(shape, key, part)


def session(shape: Shape, key: str, part: list[Row]) -> Result:
    ids = tuple(row.id for row in part)
    return Result(part[0].time, key, (part[0].time, ids), part[-1].time + shape.every)


def pairs(shape: Shape, rows: Sequence[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Even rows with odd ones of their key that lie near; an even one alone if there is none."""
    for mine in by_key(rows).values():
        for left in (row for row in mine if row.id % 2 == 0):
            near = [row for row in mine if row.id % 2 and abs(row.time - left.time) <= shape.size]
            yield from ((left, right) for right in near or [None])


def pair(shape: Shape, left: Row | None, right: Row | None) -> Result:
    """Return a pair, or a row without a partner; it starts with the earlier of its rows."""
    rows = [row for row in (left, right) if row is not None]
    start, content = min(row.time for row in rows), tuple(row and row.id for row in (left, right))
    return Result(start, rows[0].key, content, None if len(rows) == 2 else start + shape.size + 1)


def join(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    yield from (pair(shape, left, right) for left, right in pairs(shape, rows) if right)


def outer_join(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    yield from (pair(shape, left, right) for left, right in pairs(shape, rows))


def full_join(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    yield from outer_join(shape, rows)
    met = {right.id for _, right in pairs(shape, rows) if right}
    yield from (pair(shape, None, row) for row in rows if row.id % 2 and row.id not in met)


def joined_rows(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    """A left outer join whose start was lost: the left row's time takes its place."""
    for (left, _), one in zip(pairs(shape, rows), outer_join(shape, rows), strict=True):
        yield one._replace(start=left.time)


def windows_of_pairs(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    """Tumbling windows over the left rows of an inner join."""
    held: dict[tuple[int, str], list[object]] = defaultdict(list)
    for left, right in pairs(shape, rows):
        if right:
            held[left.time // shape.every * shape.every, left.key].append((left.id, right.id))
    for (start, key), ids in held.items():
        # A pair that is out lies at most the bound behind the watermark.
        done = start + shape.every + shape.size
        yield Result(start, key, (start, tuple(sorted(ids, key=repr))), done)


def matches(shape: Shape, rows: Sequence[Row]) -> Iterator[Result]:
    """An even row followed by an odd one of its key within a time, no skip."""
    for mine in by_key(rows).values():
        for first in (row for row in mine if row.id % 2 == 0):
            for last in mine:
                if last.id % 2 and first.time < last.time <= first.time + shape.size:
                    yield Result(first.time, first.key, (first.id, last.id), last.time + 1)


COMPUTE: dict[str, Callable[[Shape, Sequence[Row]], Iterator[Result]]] = {
    "rows": plain,
    "tumbling": windows,
    "sliding": windows,
    "window rows": windows_then_rows,
    "windows of windows": windows_of_windows,
    "sessions": sessions,
    "join": join,
    "outer join": outer_join,
    "full join": full_join,
    "joined rows": joined_rows,
    "windows of pairs": windows_of_pairs,
    "match": matches,
}


# how far they reach


class Reach(NamedTuple):
    """What the plan of a switch from one shape to another says, in seconds."""

    step: int
    horizon: int
    look_back: int


def reach(old: Shape, new: Shape, window: int) -> Reach:
    """Return the step of the cut, the old version's horizon and the new one's look-back."""
    return _reach(replace(old, skip=0), replace(new, skip=0), window)


@cache
def _reach(old: Shape, new: Shape, window: int) -> Reach:
    plan = switch_plan(_version(old, window, 1), _version(new, window, 2))
    assert not plan.obstacles
    (unit,) = plan.units
    assert unit.horizon is not None
    assert unit.look_back is not None
    return Reach(plan.step // SECOND, unit.horizon // SECOND, unit.look_back // SECOND)


@cache
def _version(shape: Shape, window: int, number: int) -> Version:
    flow = ms.Flow("f", window=window * SECOND)
    rows = flow.source("rows", ms.inbox("k string, id long, at timestamp"), time="at", key="k")
    # The number makes any two versions differ, also those of one shape.
    some = rows.sql("some", f"SELECT * FROM rows WHERE id <> {number}")
    _stages(shape, some).sink("out", ms.console())
    return Version.of(plan_of(flow))


def _stages(shape: Shape, some: ms.Stream) -> ms.Stream:
    size, every = shape.size * SECOND, shape.every * SECOND
    match shape.kind:
        case "tumbling" | "sliding":
            return some.window("w", every=every, size=size, n="count(*)")
        case "window rows":
            return some.window("w", every=every, size=size, n="count(*)").sql(
                "s", "SELECT * FROM w WHERE n > 0"
            )
        case "windows of windows":
            inner = some.window("w", every=every, size=size, n="count(*)")
            return inner.window("o", every=2 * every, by="k", n="sum(n)")
        case "sessions":
            return some.window("w", gap=every, longest=size, n="count(*)")
        case "match":
            pattern = ms.Pattern().begin("a", "id % 2 = 0").followed_by("b", "id % 2 = 1")
            return some.match("m", pattern.within(size), emit="k, a.id as first, b.id as last")
        case "rows":
            return some
    right = some.sql("r", "SELECT k, at, id AS other FROM some WHERE id % 2 = 1")
    how = {"outer join": "left", "joined rows": "left", "full join": "full"}.get(shape.kind)
    found = some.join("j", right, on="k", within=size, how=how or "inner")
    if shape.kind == "windows of pairs":
        return found.window("w", every=every, n="count(*)")
    return found.sql("s", "SELECT * FROM j") if shape.kind == "joined rows" else found
