"""The automaton: states, edges and the step of one key, a function of its runs and an event.

A *run* is in a state and has a history. An event is tried on the edges of its state: each edge
whose tests agree with the event makes a run of its own, with the event added to the history (a
*taking* edge) or not (a *waiting* one). So a run with no such edge halts, and one with two forks.
An edge may *complete* a match. The edges from `start` begin a run.

    a --next--> b --followed_by--> c
    start: a → 0      state 0: b → 1      state 1: c → complete, not c → 1

Nothing here reads a clock: the time is the event's, or the watermark's that `advance` is given.
Both times and lengths are whole microseconds. A run that is not complete when its time is up (its
first event + `within`, or its last event + the span of what it waits for) ends; in a *pending*
state it then matches, since what must not come has not come.

After a match, `skip` decides which runs are dropped. A match waits until all runs that began before
it are gone, so that matches come in the order of their first events. Of matches with the same first
event the one that ends first goes first, then the one with most events, then the one whose events
are earliest. An automaton that *prefers* (SQL) keeps its runs in the order of preference instead,
and of those that begin together only the most preferred match counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.errors import ConditionFailed
from millstream.patterns import history
from millstream.patterns.conditions import Test
from millstream.patterns.history import Register, Value
from millstream.patterns.pattern import NO_SKIP, Skip

#: The target of an edge after which nothing is waited for.
END = -1
#: A watermark that says that no event will come any more: runs end, and matches that waited for
#: them come out.
FOREVER = 200_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Edge:
    """A way on: the tests that must hold and those that must not, and what then happens.

    Attributes:
        need: Numbers of tests that the event meets.
        forbid: Numbers of tests that it does not.
        take: The block that takes the event; None waits.
        target: The state after it; END if the run ends here.
        completes: Whether a match is complete.
        before: How long after the run's last event this may be at most.
    """

    need: tuple[int, ...]
    forbid: tuple[int, ...]
    take: int | None
    target: int
    completes: bool = False
    before: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Where a run can be.

    Attributes:
        name: The blocks that it waits for, for people.
        edges: The ways on, the preferred ones first.
        pending: Whether a run here matches when its time is up.
        patience: How long after its last event a run here can still go on.
        unfinished: Whether a pending run here also waits for more, and so runs out of time, too.
    """

    name: str
    edges: tuple[Edge, ...]
    pending: bool = False
    patience: int | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Automaton:
    """A pattern, ready to be matched."""

    name: str
    blocks: tuple[str, ...]
    names: tuple[tuple[str, frozenset[int]], ...]
    tests: tuple[Test, ...]
    values: tuple[str, ...]
    registers: tuple[Register, ...]
    start: tuple[Edge, ...]
    states: tuple[State, ...]
    within: int | None = None
    skip: Skip = NO_SKIP
    singleton: bool = False
    prefers: bool = False
    inclusive: bool = False
    keys: tuple[str, ...] | None = None
    hidden: frozenset[int] = frozenset()
    lags: tuple[tuple[int, int, int], ...] = ()
    numbered: bool = False
    #: Runs that 0.1.0 kept have other states.
    renumbered: bool = False
    #: Whether a match may be empty, and whether one is looked for after the other: in a batch.
    empty: bool = False
    #: Whether it is so only at the first row of a partition.
    empty_at_first: bool = False
    searched: bool = False
    warnings: tuple[str, ...] = ()

    def blocks_of(self, name: str) -> frozenset[int]:
        """Return the numbers of the blocks that a name stands for."""
        return next(found for known, found in self.names if known == name.lower())

    @property
    def holds(self) -> bool:
        """Whether a match may wait for earlier runs: until the end of all events, if need be."""
        return self.prefers or self.skip.kind != "none"

    @property
    def quiet(self) -> bool:
        """Whether an event that meets no test changes nothing, so that it need not be looked at."""
        # What was before a row is looked at also where the row before meets nothing.
        if self.lags or any(not edge.need for edge in self.start):
            return False
        return all(self._still(number, state) for number, state in enumerate(self.states))

    def _still(self, number: int, state: State) -> bool:
        ways = [edge for edge in state.edges if not edge.need]
        return (
            len(ways) == 1
            and ways[0].take is None
            and ways[0].target == number
            and not ways[0].completes
        )


@dataclass(frozen=True, slots=True)
class Event:
    """An event as the automaton sees it.

    Attributes:
        number: Its place in the order of all events.
        at: Its time in microseconds.
        met: Bit i is set if the event's part of test i holds.
        values: The values that registers and histories need.
        row: The whole event, for Python predicates and outputs.
    """

    number: int
    at: int
    met: int
    values: tuple[Value, ...] = ()
    row: Any = None


class Link(NamedTuple):
    """The last event of a history, and the rest of it; forks share the rest."""

    block: int
    event: Event
    before: Link | None


@dataclass(frozen=True, slots=True)
class Run:
    """A partial match: where it is and what it has taken."""

    state: int
    taken: Link
    length: int
    start: int
    started_at: int
    contents: tuple[Value, ...] = ()

    @property
    def last_at(self) -> int:
        return self.taken.event.at

    @property
    def history(self) -> tuple[tuple[int, Event], ...]:
        """The (block, event) pairs in order."""
        return tuple(reversed(list(_links(self.taken))))


@dataclass(frozen=True, slots=True)
class Match:
    """A finished run, or one that ran out of time; `at` is when that became known."""

    history: tuple[tuple[int, Event], ...]
    at: int
    ended: int
    timed_out: bool = False

    @property
    def start(self) -> int:
        return self.history[0][1].number

    @property
    def order(self) -> tuple[Any, ...]:
        """The order of matches that are complete together."""
        taken = tuple((event.number, block) for block, event in self.history)
        return self.start, self.at, self.ended, -len(taken), taken


@dataclass(frozen=True, slots=True)
class Key:
    """The state of a key: its runs, and matches that wait for runs that began earlier."""

    runs: tuple[Run, ...] = ()
    held: tuple[Match, ...] = ()

    @property
    def idle(self) -> bool:
        return not self.runs and not self.held


@dataclass
class _Result:
    """What a step collects."""

    matches: list[Match] = field(default_factory=list)
    timed_out: list[Match] = field(default_factory=list)


def step(automaton: Automaton, key: Key, event: Event) -> tuple[Key, list[Match], list[Match]]:
    """Return the key after an event, the matches, and the runs whose time is up before it."""
    result = _Result()
    key = _expire(automaton, key, event.at, result)
    runs: list[Run] = []
    complete: list[Match] = []
    queue: list[Run | Match] = []
    for run in key.runs:
        _follow(automaton, run, event, queue)
    if not (automaton.singleton and any(isinstance(item, Run) for item in queue)):
        _follow(automaton, None, event, queue)
    if automaton.prefers:
        return _prefer(automaton, [*queue, *key.held], event.at, result)
    for item in queue:
        (runs if isinstance(item, Run) else complete).append(item)  # type: ignore[arg-type]
    key = _settle(automaton, runs, [*key.held, *_distinct(complete)], event.at, result)
    return key, result.matches, result.timed_out


def advance(automaton: Automaton, key: Key, watermark: int) -> tuple[Key, list[Match], list[Match]]:
    """Return what becomes of a key when no event up to `watermark` will come any more."""
    result = _Result()
    key = _expire(automaton, key, watermark, result)
    if watermark >= FOREVER:
        if automaton.prefers:
            key, _, _ = _prefer(automaton, key.held, watermark, result)
        else:
            key = _settle(automaton, [], list(key.held), watermark, result)
    return key, result.matches, result.timed_out


def deadline(automaton: Automaton, run: Run) -> int | None:
    """Return when the time of a run is up: at that moment and later it takes nothing more."""
    limits = []
    if automaton.within is not None:
        limits.append(run.started_at + automaton.within)
    patience = automaton.states[run.state].patience
    if patience is not None:
        limits.append(run.last_at + patience)
    return min(limits, default=None)


def _expire(automaton: Automaton, key: Key, now: int, result: _Result) -> Key:
    """End the runs whose time is up, in the order of their deadlines: each may release a match."""
    if automaton.within is None and all(state.patience is None for state in automaton.states):
        return key
    while True:
        due = [
            (limit, run)
            for run in key.runs
            if (limit := deadline(automaton, run)) is not None and limit <= now
        ]
        if not due:
            return key
        moment = min(limit for limit, _ in due)
        ended = [run for limit, run in due if limit == moment]
        rest = [run for run in key.runs if all(run is not one for one in ended)]
        complete: list[Match] = []
        for run in ended:
            state = automaton.states[run.state]
            match = Match(run.history, moment, run.taken.event.number)
            complete += [match] if state.pending else []
            if not state.pending or state.unfinished:
                result.timed_out.append(replace(match, timed_out=True))
        if automaton.prefers:
            key, _, _ = _prefer(automaton, [*rest, *key.held], moment, result)
        else:
            key = _settle(automaton, rest, [*key.held, *_distinct(complete)], moment, result)


def _follow(automaton: Automaton, run: Run | None, event: Event, queue: list[Run | Match]) -> None:
    """Add what `run` (None: no run yet) becomes by an event."""
    holds = Holding(automaton, run, event)
    for edge in automaton.start if run is None else automaton.states[run.state].edges:
        if not holds.edge(edge):
            continue
        if edge.take is None:
            assert run is not None, "no run starts by waiting"
            after = replace(run, state=edge.target)
        else:
            after = taking(automaton, run, edge, event)
        if edge.target != END:
            queue.append(after)
        if edge.completes:
            queue.append(Match(after.history, event.at, event.number))


def taking(automaton: Automaton, run: Run | None, edge: Edge, event: Event) -> Run:
    """Return what a run (None: no run yet) is after an edge took an event."""
    assert edge.take is not None
    before = contents_of(automaton, run)
    contents = history.updated(automaton.registers, before, edge.take, event.values)
    if run is None:
        return Run(edge.target, Link(edge.take, event, None), 1, event.number, event.at, contents)
    link = Link(edge.take, event, run.taken)
    return Run(edge.target, link, run.length + 1, run.start, run.started_at, contents)


def contents_of(automaton: Automaton, run: Run | None) -> tuple[Value, ...]:
    return (
        tuple(register.empty for register in automaton.registers) if run is None else run.contents
    )


class Holding:
    """Tells which tests hold for an event and a run, each evaluated once."""

    def __init__(self, automaton: Automaton, run: Run | None, event: Event) -> None:
        self.automaton, self.run, self.event = automaton, run, event
        self._known: dict[tuple[int, int | None], bool] = {}

    def edge(self, edge: Edge) -> bool:
        if (
            edge.before is not None
            and self.run is not None
            and self.event.at - self.run.last_at >= edge.before
        ):
            return False
        block = edge.take if self.automaton.inclusive else None
        return all(self.test(one, block) for one in edge.need) and not any(
            self.test(one, block) for one in edge.forbid
        )

    def test(self, number: int, taking: int | None) -> bool:
        """Tell whether a test holds; in SQL the event counts as taken by its block already."""
        if not self.event.met >> number & 1:
            return False
        test = self.automaton.tests[number]
        if test.plain:
            return True
        if (number, taking) not in self._known:
            self._known[number, taking] = self._evaluate(test, taking)
        return self._known[number, taking]

    def _evaluate(self, test: Test, taking: int | None) -> bool:
        automaton = self.automaton
        contents = contents_of(automaton, self.run)
        if taking is not None:
            contents = history.updated(automaton.registers, contents, taking, self.event.values)
        if test.history is not None and self._told(test, test.history, contents) is not True:
            return False
        return not test.functions or self._ask(test.functions)

    def _told(self, test: Test, node: history.Node, contents: tuple[Value, ...]) -> Value:
        try:
            return history.evaluate(node, self.event.values, contents, self.automaton.registers)
        except (ArithmeticError, ValueError, TypeError) as error:
            msg = f'the condition "{test.label}" could not be computed: {error}'
            hint = "use try_divide(), try_cast() or try_element_at() there"
            raise ConditionFailed(msg, hint=hint) from error

    def _ask(self, functions: Sequence[Callable[..., bool]]) -> bool:
        past: dict[str, list[Any]] = {}
        for block, event in () if self.run is None else self.run.history:
            past.setdefault(self.automaton.blocks[block], []).append(event.row)
        return any(function(self.event.row, past) for function in functions)


def _settle(
    automaton: Automaton, runs: list[Run], complete: list[Match], now: int, result: _Result
) -> Key:
    """Release the matches that need not wait, and drop the runs that they skip."""
    if automaton.skip.kind == "none":
        result.matches += sorted(complete, key=lambda match: match.order)
        return Key(tuple(runs))
    held = sorted(complete, key=lambda match: match.order)
    while held and all(held[0].start <= run.start for run in runs):
        match = _known(held.pop(0), now)
        result.matches.append(match)
        limit = skipped(automaton, match)
        runs = [run for run in runs if run.start >= limit]
        held = [other for other in held if other.start >= limit]
    return Key(tuple(runs), tuple(held))


def _known(match: Match, now: int) -> Match:
    """Return a match with the moment at which it is certain.

    A match that only the end of all events settles keeps its own.
    """
    return replace(match, at=now) if now < FOREVER else match


def skipped(automaton: Automaton, match: Match) -> int:
    """Return the number of the first event at which other runs may have begun."""
    match automaton.skip.kind:
        case "none":
            return 0
        case "next":
            return match.start + 1
        case "past_last":
            return match.history[-1][1].number + 1
    assert automaton.skip.block is not None
    blocks = automaton.blocks_of(automaton.skip.block)
    events = [event.number for block, event in match.history if block in blocks]
    found = min(events, default=0) if automaton.skip.kind == "to_first" else max(events, default=0)
    if automaton.skip.or_fail and (not events or found == match.start):
        msg = f'a match cannot skip to block "{automaton.skip.block}"'
        hint = "it has no event of the block, or begins with it: leave or_fail out"
        raise ConditionFailed(msg, hint=hint)
    if not events:
        return match.start + 1 if automaton.prefers else 0
    return max(found, match.start + 1) if automaton.prefers else found


def _prefer(
    automaton: Automaton, queue: Sequence[Run | Match], now: int, result: _Result
) -> tuple[Key, list[Match], list[Match]]:
    """Keep the runs preferred to a match of the same start; release a match that is first."""
    items = list(_still_wanted(queue))
    while items and isinstance(match := items[0], Match):
        result.matches.append(_known(match, now))
        limit = skipped(automaton, match)
        # A match drops what began with it even if it skips nothing: it was preferred.
        items = [item for item in items if item.start >= limit and item.start != match.start]
    runs = tuple(item for item in items if isinstance(item, Run))
    held = tuple(item for item in items if isinstance(item, Match))
    return Key(runs, held), result.matches, result.timed_out


def _still_wanted(queue: Sequence[Run | Match]) -> Iterator[Run | Match]:
    """Yield runs and matches by their start, without those after a match of the same start.

    Runs stand before the matches that are held, which they are preferred to: what is not has been
    dropped. Of runs that began together, are in the same state and remember the same, only the
    first can ever be chosen.
    """
    decided: set[int] = set()
    known: set[tuple[object, ...]] = set()
    for item in sorted(queue, key=_start):
        if item.start in decided:
            continue
        if isinstance(item, Run):
            same = (item.start, item.state, item.contents)
            if same in known:
                continue
            known.add(same)
        yield item
        if isinstance(item, Match):
            decided.add(item.start)


def _start(item: Run | Match) -> int:
    return item.start


def _distinct(matches: list[Match]) -> list[Match]:
    """Return each match once: a loop in a loop may find it in several ways."""
    if len(matches) < 2:
        return matches
    return list({match.order: match for match in matches}.values())


def _links(link: Link | None) -> Iterator[tuple[int, Event]]:
    while link is not None:
        yield link.block, link.event
        link = link.before
