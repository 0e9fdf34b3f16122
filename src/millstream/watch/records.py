"""Runs as records and back: what is sent to peers and kept on disk.

A record names the events of its history by their places in a list beside it, so that an event that
many runs took is there once. What a peer sends is checked while it is read: its history must be one
that the automaton allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from math import isnan
from typing import Any, Final

from millstream.errors import ConditionFailed, DeviceRefused, EventRefused
from millstream.patterns.edge import Seen
from millstream.patterns.history import updated
from millstream.watch.complex_event import run_text
from millstream.watch.matcher import DONE, Matcher
from millstream.watch.messages import Happened, RunId, RunRecord
from millstream.watch.plain import PlainMatcher
from millstream.watch.runs import Link, Run

_KEYS: Final = (str, int, bool, bytes, datetime)


class Writer:
    """Collects runs and events, each event once for a pattern."""

    def __init__(self) -> None:
        self.events: list[Happened] = []
        self.runs: list[RunRecord] = []
        self.remembered: list[tuple[str, tuple[Any, ...], int]] = []
        self._places: dict[tuple[str, tuple[str, int]], int] = {}

    def add(self, runs: Iterable[Run]) -> Writer:
        for run in runs:
            history = [
                (block, self._place(run.id.pattern, seen)) for block, seen in run.link.history
            ]
            states = list(run.states)
            record = RunRecord(run.id, run.status, history, states, run.waits, run.by, run.at)
            self.runs.append(record)
        return self

    def remember(self, pattern: str, key: tuple[Any, ...], seen: Seen) -> None:
        self.remembered.append((pattern, key, self._place(pattern, seen)))

    def _place(self, pattern: str, seen: Seen) -> int:
        known = self._places.get((pattern, seen.id))
        if known is None:
            known = self._places[pattern, seen.id] = len(self.events)
            self.events.append(Happened(*seen.id, seen.at, dict(seen.row)))
        return known


class Reader:
    """Makes runs of records again.

    Args:
        matcher_of: Returns the matcher of a pattern, or None.
        events: The list that the records' histories speak of.
    """

    def __init__(
        self, matcher_of: Callable[[str], Matcher | PlainMatcher | None], events: Sequence[Happened]
    ) -> None:
        self._matcher_of, self._events = matcher_of, events
        self._seen: dict[tuple[str, int], Seen] = {}

    def matcher(self, pattern: str) -> Matcher | PlainMatcher:
        """Return the matcher of a pattern.

        Raises:
            DeviceRefused: There is none.
        """
        found = self._matcher_of(pattern)
        if found is None:
            raise DeviceRefused(f'a record is about pattern "{pattern}", which is not watched here')
        return found

    def event(self, pattern: str, place: int) -> Seen:
        """Return the event at a place of the list, as a pattern sees it.

        Raises:
            DeviceRefused: There is no such event, or the pattern takes no interest in it.
        """
        known = self._seen.get((pattern, place))
        if known is None:
            if place >= len(self._events):
                raise DeviceRefused(f"a record names event {place} of {len(self._events)}")
            event = self._events[place]
            try:
                made = self.matcher(pattern).pattern.received(
                    (event.sender, event.number), event.at, event.row
                )
            except (EventRefused, ConditionFailed) as error:
                fact = f"event {event.sender}:{event.number} cannot be read: {error.message}"
                raise DeviceRefused(fact) from None
            if made is None:
                fact = (
                    f'event {event.sender}:{event.number} meets no condition of pattern "{pattern}"'
                )
                raise DeviceRefused(fact)
            known = self._seen[pattern, place] = made
        return known

    def known(self, id: RunId) -> Matcher | PlainMatcher:
        """Return the matcher of a run.

        Raises:
            DeviceRefused: There is none, or the run's key cannot be one of its keys.
        """
        matcher = self.matcher(id.pattern)
        if len(id.key) != len(matcher.pattern.keys) or not all(map(_keyable, id.key)):
            raise DeviceRefused(f'a run of pattern "{id.pattern}" has the key {id.key!r:.100}')
        return matcher

    def run(self, record: RunRecord) -> Run:
        """Return the run of a record.

        Raises:
            DeviceRefused: Its history is not one of the pattern.
        """
        matcher = self.known(record.id)
        taken = [(block, self.event(record.id.pattern, place)) for block, place in record.history]
        if not taken or taken[0][1].id != record.id.first:
            raise DeviceRefused(f"the history of run {run_text(record.id)} does not begin with it")
        late = any(one.order >= other.order for (_, one), (_, other) in pairwise(taken))
        if matcher.ordered and late:
            raise DeviceRefused(f"the history of run {run_text(record.id)} is not in order")
        if isinstance(matcher, Matcher) and matcher.ordered:
            link = _replayed(matcher, record.id, taken)
        else:
            link = _linked(matcher, record, taken)
        run = Run(
            record.id,
            link,
            link.states if matcher.ordered and record.status == 0 else tuple(record.states),
            taken[0][1].at,
            status=record.status,
            waits=record.waits,
            by=record.by,
            at=record.at,
        )
        run.deadline = matcher.moves.deadline(run.states, run.started_at, link.seen.at)
        return run


def _keyable(value: Any) -> bool:
    """Tell whether a value can be one of a key: what `EdgePattern.key` returns."""
    if type(value) is float:
        return not isnan(value)
    return value is None or type(value) in _KEYS


def _replayed(matcher: Matcher, id: RunId, taken: list[tuple[int, Seen]]) -> Link:
    """Return the last link of a history that is taken again, event by event."""
    link: Link | None = None
    for block, seen in taken:
        link = matcher.taken(id.key, link, block, seen)
        if link is None:
            fact = f"the history of run {run_text(id)} is not one of its pattern"
            raise DeviceRefused(fact)
    assert link is not None, "a history has an event"
    forks = id.forks[:-1] if id.forks and id.forks[-1].block == DONE else id.forks
    if link.id != id and link.id != id._replace(forks=forks):
        raise DeviceRefused(f"run {run_text(id)} has the history of run {run_text(link.id)}")
    return link


def _linked(
    matcher: Matcher | PlainMatcher, record: RunRecord, taken: list[tuple[int, Seen]]
) -> Link:
    """Return a history as it is; only where its last event led to is known."""
    link: Link | None = None
    contents = matcher.moves.empty
    known = len(matcher.moves.automaton.states)
    blocks = len(matcher.moves.automaton.blocks)
    if any(state >= known for state in record.states) or any(b >= blocks for b, _ in taken):
        raise DeviceRefused(
            f"run {run_text(record.id)} is in a state that its pattern does not have"
        )
    for block, seen in taken:
        contents = updated(matcher.moves.registers, contents, block, seen.values)
        link = Link(record.id, block, seen, link, tuple(record.states), contents)
    assert link is not None, "a history has an event"
    return link
