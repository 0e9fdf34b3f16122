"""Runs: what a device knows of a partial match, and which of two states of one run wins.

    completed > halted > live
    of two live ones: more events > the earlier history > more moves while waiting

That is one order of all states of a run, by what they are and not by who sent them. The better of
two is therefore a join: however often, late and in whatever order messages come, devices that have
the same messages know the same. A finished run is never live again.
"""

from __future__ import annotations

from typing import Any

from millstream.patterns.edge import Seen
from millstream.watch.messages import COMPLETED, LIVE, RunId, Status

Key = tuple[Any, ...]
"""The values that keep runs apart."""
Order = tuple[int, tuple[str, int]]
"""The order of events: by time, then by id."""


class Link:
    """The last event of a history and the rest of it; runs that fork share the rest.

    `states` are the automaton's right after the event was taken, `contents` its registers', and
    `id` is the run that took it.
    """

    __slots__ = ("before", "block", "contents", "depth", "id", "order", "seen", "states")

    def __init__(
        self,
        id: RunId,
        block: int,
        seen: Seen,
        before: Link | None,
        states: tuple[int, ...],
        contents: tuple[Any, ...],
    ) -> None:
        self.id, self.block, self.seen, self.before = id, block, seen, before
        self.states, self.contents = states, contents
        self.depth: int = 1 if before is None else before.depth + 1
        self.order: Order = seen.order

    @property
    def first(self) -> Link:
        link = self
        while link.before is not None:
            link = link.before
        return link

    @property
    def history(self) -> tuple[tuple[int, Seen], ...]:
        """The (block, event) pairs in order."""
        return tuple((link.block, link.seen) for link in self.links)

    @property
    def links(self) -> list[Link]:
        """All links, the first event's first."""
        found: list[Link] = []
        link: Link | None = self
        while link is not None:
            found.append(link)
            link = link.before
        return found[::-1]


class Run:
    """A state of a run: what it has taken, where it waits, and whether it is finished.

    Of a completed run `by` is the device whose event completed it, and `again` tells that it was
    complete before, with another history.
    """

    __slots__ = (
        "again",
        "at",
        "by",
        "deadline",
        "id",
        "link",
        "started_at",
        "states",
        "status",
        "waits",
    )

    def __init__(
        self,
        id: RunId,
        link: Link,
        states: tuple[int, ...],
        started_at: int,
        *,
        status: Status = LIVE,
        waits: int = 0,
        by: str = "",
        at: int = 0,
    ) -> None:
        self.id, self.link, self.states, self.started_at = id, link, states, started_at
        self.status, self.waits, self.by, self.at = status, waits, by, at
        self.deadline: int | None = None
        self.again = False

    @property
    def live(self) -> bool:
        return self.status == LIVE

    @property
    def completed(self) -> bool:
        return self.status == COMPLETED

    def __repr__(self) -> str:
        events = ", ".join(f"{block}:{seen.id}" for block, seen in self.link.history)
        return f"<run {self.id.text()} {('live', 'halted', 'completed')[self.status]} {events}>"


def better(known: Run, other: Run) -> Run:
    """Return which of two states of one run stays; `known` if they are equal."""
    if known.status != other.status:
        return known if known.status > other.status else other
    if known.link.depth != other.link.depth:
        return known if known.link.depth > other.link.depth else other
    if known.link is not other.link:
        ours, theirs = _places(known.link), _places(other.link)
        if ours != theirs:
            return known if ours < theirs else other
    return other if other.waits > known.waits else known


def _places(link: Link) -> list[tuple[Order, int]]:
    return [(one.order, one.block) for one in link.links]
