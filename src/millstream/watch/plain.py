"""A matcher for patterns whose runs depend on each other, by a skip strategy.

A match drops other runs there, so all runs of a key are moved on together, by the automaton. It
finds the same and is slower; devices cannot do it together. On disk it keeps the events that its
runs have seen, and goes through them again after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from millstream.errors import ConditionFailed
from millstream.patterns import automaton as plain
from millstream.patterns.edge import EdgePattern, Seen
from millstream.watch.messages import COMPLETED, Fork, RunId
from millstream.watch.moves import Moves
from millstream.watch.runs import Key, Link, Run


class PlainMatcher:
    """The runs of a pattern, by key."""

    ordered = False

    def __init__(self, pattern: EdgePattern, device: str = "") -> None:
        self.pattern, self.device = pattern, device
        self.moves = Moves(pattern.automaton, ordered=False)
        self.keys: dict[Key, plain.Key] = {}
        self.done: dict[RunId, Run] = {}
        self.expired: list[Run] = []
        self._events: dict[Key, dict[int, Seen]] = {}
        self._numbers = count()

    @property
    def live(self) -> int:
        """How many runs are live."""
        return sum(len(key.runs) for key in self.keys.values())

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self.done.values()))

    def offer(self, key: Key, seen: Seen) -> list[Run]:
        """Return the matches that an event completes."""
        event = plain.Event(next(self._numbers), seen.at, seen.met, seen.values, seen.row)
        self._events.setdefault(key, {})[event.number] = seen
        before = self.keys.get(key, plain.Key())
        try:
            return self._kept(key, *plain.step(self.pattern.automaton, before, event))
        except ConditionFailed as error:
            self.moves.failures.append(error)
            return []

    def advance(self, watermark: int) -> list[Run]:
        """Return what is complete when no event before `watermark` will come any more."""
        return [
            run
            for key, before in list(self.keys.items())
            for run in self._kept(key, *plain.advance(self.pattern.automaton, before, watermark))
        ]

    def remember(self, key: Key, seen: Seen) -> None:
        """Go through an event again after a restart."""
        self.offer(key, seen)

    def remembered(self) -> list[tuple[str, Key, Seen]]:
        """Return the events that the runs have seen, each with the pattern and the key."""
        name = self.pattern.name
        return [
            (name, key, seen) for key, events in self._events.items() for seen in events.values()
        ]

    def restore(self, run: Run) -> None:
        """Know a match again after a restart."""
        self.done[run.id] = run

    def forget(self, before: int, _recall: int) -> None:
        """Drop the matches of runs that were over before a time."""
        self.done = {
            run.id: run
            for run in self.done.values()
            if run.deadline is None or run.deadline >= before
        }

    def _kept(
        self, key: Key, after: plain.Key, found: list[plain.Match], late: list[plain.Match]
    ) -> list[Run]:
        events = self._events.get(key, {})
        self.expired += [self._run(key, match, events) for match in late]
        matches = [self._run(key, match, events) for match in found]
        self.done.update((run.id, run) for run in matches)
        starts = [run.start for run in after.runs] + [match.start for match in after.held]
        if starts:
            self.keys[key] = after
            self._events[key] = {n: seen for n, seen in events.items() if n >= min(starts)}
        else:
            self.keys.pop(key, None)
            self._events.pop(key, None)
        return matches

    def _run(self, key: Key, match: plain.Match, events: dict[int, Seen]) -> Run:
        taken = [(block, events[event.number]) for block, event in match.history]
        forks = tuple(Fork(seen.id, block, n) for n, (block, seen) in enumerate(taken) if n)
        run_id = RunId(self.pattern.name, key, taken[0][1].id, forks)
        link: Link | None = None
        for block, seen in taken:
            link = Link(run_id, block, seen, link, (), ())
        assert link is not None, "a match has an event"
        run = Run(run_id, link, (), taken[0][1].at, status=COMPLETED, by=self.device, at=match.at)
        run.deadline = self.moves.deadline((), run.started_at, link.seen.at)
        return run
