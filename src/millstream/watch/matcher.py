"""The runs of one pattern at the edge: in plain Python, one event at a time.

    offer(event)    an event of ours
    merge(run)      a state of a run that a peer has
    advance(time)   no event before that time will come any more

Each returns the runs that changed. An *ordered* matcher, for patterns that are sound across
devices, does not depend on the order in which events and peers' runs come: it remembers events, and
the runs are what one device would have found that sees all of them in the order of their times. An
event that comes late is tried at the place of each history where it belongs. The other kind takes
events as they come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, pairwise
from math import isnan
from typing import Any, Final

from millstream.patterns.edge import EdgePattern, Seen
from millstream.patterns.history import Register, read, updated
from millstream.watch.messages import COMPLETED, HALTED, Fork, RunId
from millstream.watch.moves import START, Moves, States, Step
from millstream.watch.runs import Key, Link, Order, Run, better

DONE: Final = -1
"""The block of a fork that is a complete match, while the run that it comes from goes on."""
_EARLIEST: Final[Order] = (-(1 << 63), ("", -1))


class KeyRuns:
    """The runs of one key, grouped by their states; and the events that are remembered."""

    __slots__ = (
        "deadlines",
        "done",
        "groups",
        "indexes",
        "live",
        "newest",
        "registers",
        "remembered",
    )

    def __init__(self, registers: Sequence[Register]) -> None:
        self.registers = registers
        self.live: dict[RunId, Run] = {}
        self.done: dict[RunId, Run] = {}
        self.groups: dict[States, dict[RunId, Run]] = {}
        self.indexes: dict[tuple[States, int], dict[Any, dict[RunId, Run]]] = {}
        self.remembered: list[Seen] = []
        self.deadlines: list[tuple[int, int, Run]] = []
        self.newest: Order = _EARLIEST

    def known(self, id: RunId) -> Run | None:
        return self.live.get(id) or self.done.get(id)

    @property
    def idle(self) -> bool:
        return not self.live and not self.done and not self.remembered

    def add(self, run: Run) -> None:
        """Add a live run."""
        self.live[run.id] = run
        self.groups.setdefault(run.states, {})[run.id] = run
        for (states, register), index in self.indexes.items():
            if states == run.states:
                index.setdefault(self._content(run, register), {})[run.id] = run

    def remove(self, run: Run) -> None:
        """Remove a live run."""
        del self.live[run.id]
        group = self.groups[run.states]
        del group[run.id]
        if not group:
            del self.groups[run.states]
        for (states, register), index in list(self.indexes.items()):
            if states == run.states:
                content = self._content(run, register)
                del index[content][run.id]
                if not index[content]:
                    del index[content]
                if not group:
                    del self.indexes[states, register]

    def equal(self, states: States, register: int, value: Any) -> Iterable[Run]:
        """Return the runs in some states of which a register is equal to a value."""
        index = self.indexes.get((states, register))
        if index is None:
            index = self.indexes[states, register] = {}
            for run in self.groups[states].values():
                index.setdefault(self._content(run, register), {})[run.id] = run
        return index.get(_hashed(value), {}).values()

    def _content(self, run: Run, register: int) -> Any:
        return _hashed(read(self.registers[register], run.link.contents[register]))


class Matcher:
    """The runs of a pattern, by key.

    Args:
        pattern: The pattern.
        device: The name of this device: what its events complete is said to be by it.
        replicated: Whether peers are to know of its runs.
        remembers: Whether finished runs are remembered, so that none comes back.
    """

    def __init__(
        self,
        pattern: EdgePattern,
        device: str = "",
        *,
        replicated: bool = False,
        remembers: bool = False,
    ) -> None:
        self.pattern, self.device = pattern, device
        self.remembers = replicated or remembers
        self.ordered = replicated and pattern.sound
        self.moves = Moves(pattern.automaton, ordered=self.ordered)
        self.keys: dict[Key, KeyRuns] = {}
        self.expired: list[Run] = []
        self._singleton = pattern.automaton.singleton
        self._serial = count()

    @property
    def live(self) -> int:
        """How many runs are live."""
        return sum(len(runs.live) for runs in self.keys.values())

    @property
    def held(self) -> int:
        """How many runs are known, finished or not."""
        return sum(len(runs.live) + len(runs.done) for runs in self.keys.values())

    def knows(self, id: RunId) -> bool:
        """Tell whether a run is known, finished or not."""
        runs = self.keys.get(id.key)
        return runs is not None and runs.known(id) is not None

    def __iter__(self) -> Iterator[Run]:
        for runs in self.keys.values():
            yield from runs.live.values()
            yield from runs.done.values()

    # Events

    def offer(self, key: Key, seen: Seen) -> list[Run]:
        """Return the runs that one of our own events changed."""
        runs = self.keys.get(key) or self._runs(key)
        if self.ordered:
            return self._offer_ordered(key, runs, seen)
        changes: list[Run] = []
        if runs.deadlines and runs.deadlines[0][0] <= seen.at:
            self._expire(runs, seen.at, changes)
        concerned = self._concerned(runs, seen)
        if concerned:
            moved = [(run, self.moves.step(run.states, run.link, seen)) for run in concerned]
            for run, step in moved:
                self._move(runs, run, step, seen, changes)
        if not (self._singleton and runs.live):
            step = self.moves.step(START, None, seen)
            if step.takes:
                for begun in self._begun(key, step, seen):
                    self._store(runs, begun, changes)
        return changes

    def advance(self, watermark: int) -> list[Run]:
        """Return what changes when no event before `watermark` will come any more."""
        changes: list[Run] = []
        if self.ordered:
            return changes
        for key, runs in list(self.keys.items()):
            if runs.deadlines and runs.deadlines[0][0] <= watermark:
                self._expire(runs, watermark, changes)
            if runs.idle:
                del self.keys[key]
        return changes

    def merge(self, run: Run) -> list[Run]:
        """Return the runs that change because of what a peer knows of one."""
        runs = self._runs(run.id.key)
        if not self.ordered:
            changes: list[Run] = []
            self._store(runs, run, changes)
            return changes
        links = run.link.links
        for link in links:
            _remember(runs, link.seen)
        absorbed = _Absorbing(self, runs)
        absorbed.add([run])
        # What we saw between two events of its history may belong there.
        for link, after in pairwise(links):
            first = bisect_right(runs.remembered, link.order, key=_order)
            last = bisect_left(runs.remembered, after.order, key=_order)
            for seen in runs.remembered[first:last]:
                absorbed.add(self._after(link, seen, run.started_at))
        return list(absorbed.changes.values())

    def taken(self, key: Key, link: Link | None, block: int, seen: Seen) -> Link | None:
        """Return the link of an event that a block takes after another, or None if it cannot."""
        if link is None:
            found = self._begun(key, self.moves.step(START, None, seen), seen)
        else:
            found = self._after(link, seen, link.first.seen.at)
        return next((one.link for one in found if one.link.block == block), None)

    def restore(self, run: Run) -> None:
        """Know a run again after a restart; nothing is derived from it."""
        runs = self._runs(run.id.key)
        self._store(runs, run, [])

    def remembered(self) -> list[tuple[str, Key, Seen]]:
        """Return the events that are remembered, each with the pattern and the key."""
        name = self.pattern.name
        return [(name, key, seen) for key, runs in self.keys.items() for seen in runs.remembered]

    def remember(self, key: Key, seen: Seen) -> None:
        """Keep an event for runs that are learned of later, without offering it to any."""
        _remember(self._runs(key), seen)

    def forget(self, before: int, recall: int) -> None:
        """Drop finished and expired runs, and events, that nothing can concern any more.

        Args:
            before: A time; a run is dropped whose deadline was before it.
            recall: How long before that events are dropped.
        """
        for key, runs in list(self.keys.items()):
            for run in [run for run in runs.live.values() if _over(run, before)]:
                runs.remove(run)
            runs.done = {run.id: run for run in runs.done.values() if not _over(run, before)}
            keep = bisect_left(runs.remembered, before - recall, key=lambda seen: seen.at)
            del runs.remembered[:keep]
            if runs.idle:
                del self.keys[key]

    # Runs in order

    def _offer_ordered(self, key: Key, runs: KeyRuns, seen: Seen) -> list[Run]:
        if not _remember(runs, seen):
            return []
        absorbed = _Absorbing(self, runs)
        if seen.order > runs.newest:
            places = [(run.link, run.started_at) for run in self._concerned(runs, seen)]
        else:
            everything = [*runs.live.values(), *runs.done.values()]
            places = list(_places(everything, seen.order))
        for link, started_at in places:
            absorbed.add(self._after(link, seen, started_at))
        step = self.moves.step(START, None, seen)
        absorbed.add(self._begun(key, step, seen))
        return list(absorbed.changes.values())

    def _after(self, link: Link, seen: Seen, started_at: int) -> list[Run]:
        """Return what runs an event makes of one whose last event is `link`'s."""
        limit = self.moves.deadline(link.states, started_at, link.seen.at)
        if not link.states or (limit is not None and seen.at >= limit):
            return []
        return self._children(link, self.moves.step(link.states, link, seen), seen, started_at)

    # Inside

    def _runs(self, key: Key) -> KeyRuns:
        runs = self.keys.get(key)
        if runs is None:
            runs = self.keys[key] = KeyRuns(self.moves.registers)
        return runs

    def _concerned(self, runs: KeyRuns, seen: Seen) -> list[Run]:
        """Return the runs that an event may change."""
        found: list[Run] = []
        plans, met = self.moves.plans, seen.met
        for states, group in runs.groups.items():
            plan = plans.get((states, met)) or self.moves.plan(states, met)
            if not plan.idle:
                found += group.values()
            elif plan.equal is not None:
                for value, register in plan.equal:
                    found += runs.equal(states, register, seen.values[value])
                if len(plan.equal) > 1:
                    found = list({id(run): run for run in found}.values())
            elif plan.step is None:
                found += group.values()
        return found

    def _begun(self, key: Key, step: Step, seen: Seen) -> list[Run]:
        found: list[Run] = []
        for place, taking in enumerate(step.takes):
            forks = () if place == 0 else (Fork(None, taking.block, 0),)
            run_id = RunId(self.pattern.name, key, seen.id, forks)
            contents = updated(self.moves.registers, self.moves.empty, taking.block, seen.values)
            link = Link(run_id, taking.block, seen, None, taking.states, contents)
            found += self._ends(link, taking.completes, seen.at)
        return found

    def _children(self, link: Link, step: Step, seen: Seen, started_at: int) -> list[Run]:
        """Return the runs that an event makes of one; without the one that waits on."""
        found: list[Run] = []
        kept = bool(step.waits) and not self.ordered
        for taking in step.takes:
            own, again = self.moves.place(link.states, taking.block)
            run_id = link.id
            if own and not kept:
                kept = True
            else:
                event = seen.id if own or again else None
                run_id = _forked(run_id, Fork(event, taking.block, link.depth))
            contents = updated(self.moves.registers, link.contents, taking.block, seen.values)
            child = Link(run_id, taking.block, seen, link, taking.states, contents)
            found += self._ends(child, taking.completes, started_at)
        if step.done:
            run_id = link.id
            if step.waits or step.takes:
                run_id = _forked(run_id, Fork(None, DONE, link.depth))
            found.append(self._complete(run_id, link, started_at, seen.at))
        return found

    def _ends(self, link: Link, completes: bool, started_at: int) -> list[Run]:
        """Return the run that has just taken an event, the match that this completes, or both."""
        if not link.states:
            return [self._complete(link.id, link, started_at, link.seen.at)]
        run = Run(link.id, link, link.states, started_at)
        run.deadline = self.moves.deadline(run.states, started_at, link.seen.at)
        if not completes:
            return [run]
        done = _forked(link.id, Fork(None, DONE, link.depth))
        return [run, self._complete(done, link, started_at, link.seen.at)]

    def _complete(self, id: RunId, link: Link, started_at: int, at: int) -> Run:
        run = Run(id, link, (), started_at, status=COMPLETED, by=self.device, at=at)
        run.deadline = self.moves.deadline((), started_at, link.seen.at)
        return run

    def _move(self, runs: KeyRuns, run: Run, step: Step, seen: Seen, changes: list[Run]) -> None:
        """Let an event change a run that takes events as they come."""
        children = self._children(run.link, step, seen, run.started_at)
        if not step.waits:
            runs.remove(run)
            if all(child.id != run.id for child in children):
                halted = Run(
                    run.id, run.link, (), run.started_at, status=HALTED, by=self.device, at=seen.at
                )
                halted.deadline = run.deadline
                self._finish(runs, halted)
                changes.append(halted)
        elif step.waits != run.states:
            runs.remove(run)
            waiting = Run(run.id, run.link, step.waits, run.started_at, waits=run.waits + 1)
            waiting.deadline = self.moves.deadline(step.waits, run.started_at, run.link.seen.at)
            self._add(runs, waiting)
            changes.append(waiting)
        for child in children:
            self._store(runs, child, changes)

    def _store(self, runs: KeyRuns, run: Run, changes: list[Run]) -> bool:
        """Keep a state of a run if it is better than what is known; tell whether it is."""
        known = runs.known(run.id)
        if known is not None:
            if better(known, run) is known:
                return False
            run.again = known.completed
            if known.live:
                runs.remove(known)
        if run.live:
            self._add(runs, run)
        else:
            self._finish(runs, run)
        runs.newest = max(runs.newest, run.link.order)
        changes.append(run)
        return True

    def _finish(self, runs: KeyRuns, run: Run) -> None:
        if self.remembers:
            runs.done[run.id] = run

    def _add(self, runs: KeyRuns, run: Run) -> None:
        runs.add(run)
        if run.deadline is not None and not self.ordered:
            heappush(runs.deadlines, (run.deadline, next(self._serial), run))

    def _expire(self, runs: KeyRuns, now: int, changes: list[Run]) -> None:
        """End the runs whose time is up; one that only waited for that is a match."""
        while runs.deadlines and runs.deadlines[0][0] <= now:
            moment, _, run = heappop(runs.deadlines)
            if runs.live.get(run.id) is not run:
                continue
            runs.remove(run)
            if self.moves.pending(run.states):
                self._store(runs, self._complete(run.id, run.link, run.started_at, moment), changes)
            else:
                self.expired.append(run)


class _Absorbing:
    """Takes in states of runs, and what remembered events make of each, until nothing changes."""

    def __init__(self, matcher: Matcher, runs: KeyRuns) -> None:
        self.matcher, self.runs = matcher, runs
        self.changes: dict[RunId, Run] = {}

    def add(self, found: Iterable[Run]) -> None:
        waiting = list(found)
        while waiting:
            run, branches = self._grown(waiting.pop())
            changes: list[Run] = []
            if self.matcher._store(self.runs, run, changes):
                before = self.changes.get(run.id)
                run.again &= before is None or before.again
                self.changes[run.id] = run
                waiting += branches

    def _grown(self, run: Run) -> tuple[Run, list[Run]]:
        """Return a run with the remembered events that it takes, and the runs that fork from it."""
        branches: list[Run] = []
        while run.live:
            moved = self._moved(run, branches)
            if moved is None:
                break
            run = moved
        return run, branches

    def _moved(self, run: Run, branches: list[Run]) -> Run | None:
        remembered = self.runs.remembered
        first = bisect_right(remembered, run.link.order, key=_order)
        for place in range(first, len(remembered)):
            seen = remembered[place]
            if run.deadline is not None and seen.at >= run.deadline:
                return None
            children = self.matcher._after(run.link, seen, run.started_at)
            branches += [child for child in children if child.id != run.id]
            moved = next((child for child in children if child.id == run.id), None)
            if moved is not None:
                return moved
        return None


def _remember(runs: KeyRuns, seen: Seen) -> bool:
    """Keep an event in its place; tell whether it is new."""
    place = bisect_left(runs.remembered, seen.order, key=_order)
    if place < len(runs.remembered) and runs.remembered[place].order == seen.order:
        return False
    if place == len(runs.remembered):
        runs.remembered.append(seen)
    else:
        insort(runs.remembered, seen, key=_order)
    return True


def _places(runs: Iterable[Run], order: Order) -> Iterator[tuple[Link, int]]:
    """Yield for each history the last link before an event: where it is tried; each link once."""
    known: set[int] = set()
    for run in runs:
        link: Link | None = run.link
        while link is not None and link.order > order:
            link = link.before
        if link is not None and id(link) not in known:
            known.add(id(link))
            yield link, run.started_at


def _forked(run_id: RunId, fork: Fork) -> RunId:
    return run_id._replace(forks=(*run_id.forks, fork))


def _order(seen: Seen) -> Order:
    return seen.order


def _over(run: Run, before: int) -> bool:
    return run.deadline is not None and run.deadline < before


def _hashed(value: Any) -> Any:
    """Return what equal values have in common: NaN is equal to itself."""
    return "nan" if isinstance(value, float) and isnan(value) else value
