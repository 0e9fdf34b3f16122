"""The versions of a running flow: one, or two while one takes the place of the other.

This carries out what the machine (`switch/machine.py`) says, on running queries: it holds, asks,
cuts, closes and retires, and tells the machine what it notices. The machine's record is durable
before anything follows from it (`book.py`), so a driver that dies goes on where the record says.
Sources are told by files (`control.py`), which hold for the next batch.

    switch()   compare, analyse, refuse             nothing is touched
    poll()     one instruction after the other      the queries of the next version start one at a time
    open()     after a stop, whatever the reason    by the record, before any query starts
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace as changed

from millstream.clock import MICROSECOND, Clock, micros, moment_of
from millstream.errors import MillstreamError, RunError, SwitchRefused
from millstream.flow.flow import Flow
from millstream.journal import journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.checkpoint import Checkpoint, Logged
from millstream.spark.io.control import Orders, Question
from millstream.spark.io.sink_order import SinkOrder
from millstream.spark.io.targets import JournalTarget
from millstream.spark.run.locations import homes_of, next_homes, shadow_homes
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.version import (
    Aside,
    FlowVersion,
    RunContext,
    forget_readers,
    found_nothing,
    remove_unless,
)
from millstream.spark.switching import reprocess as again
from millstream.spark.switching.reading import ahead, views
from millstream.spark.switching.shadow import Shadow
from millstream.spark.switching.shadow import remove as remove_shadow
from millstream.spark.switching.shapes import reshaped
from millstream.spark.switching.switch_log import SwitchLog
from millstream.switch import cut as cuts
from millstream.switch import events as e
from millstream.switch import instructions as i
from millstream.switch import machine
from millstream.switch.comparison import Comparison
from millstream.switch.machine import Entry
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.record import Homes, Phase
from millstream.switch.shadow import shadowed
from millstream.switch.units import Unit

#: How long a switch may take until its cut.
LIMIT: Final = timedelta(minutes=5)
#: The watermark of some groups stays this much below the floor: see `source.watermark_ms`.
SLACK_US: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PAST_THE_CUT: Final = (Phase.SHARING, Phase.OVERLAPPING, Phase.RETIRING)


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """A switch that is under way; `left` is how many seconds of events the old version still has to read, if that is known."""

    phase: Phase
    old: str
    new: str
    cut: datetime | None
    left: float | None
    history: tuple[Entry, ...]
    #: The part of the keys whose results are the new version's from the cut on, and the part that is wanted.
    share: float = 0.0
    wanted: float = 1.0


class Voter(NamedTuple):
    """A partition that is asked how far it has got."""

    name: str
    query: GroupQuery
    journal: str
    partition: int


Failure = Callable[[GroupQuery], MillstreamError | None]
Load = Callable[[str], Flow]


class Versions:
    """The version that runs, and the one that takes its place."""

    def __init__(
        self,
        ground: RunContext,
        flow: Flow,
        version: str,
        *,
        load: Load | None,
        failure: Failure,
        clock: Clock,
    ) -> None:
        self._ground = ground
        self._load = load
        self._failure = failure
        self._clock = clock
        self._given = (version, flow)
        self._book = SwitchLog(ground.folder / "switch")
        self.current = FlowVersion(ground, version, flow)
        self.next: FlowVersion | None = None
        self._state = machine.begun(version)
        self._plan: SwitchPlan | None = None
        self._todo: deque[i.Instruction | Entry] = deque()
        self._starting: Iterator[None] | None = None
        self._shadow: Shadow | None = None
        self._shadow_folder = ground.folder / "shadow"
        self._lasting: timedelta | None = None
        self._until_us: int | None = None
        self._broken: str | None = None
        #: What the last shadow has found.
        self.compared: Comparison | None = None

    # what others see

    @property
    def under_way(self) -> bool:
        """Whether one version is taking the place of another."""
        return self._state.phase is not Phase.RUNNING or bool(self._todo)

    @property
    def shadowing(self) -> bool:
        """Whether a version runs in the shadow of the current one."""
        return self._state.phase is Phase.SHADOWING

    @property
    def released(self) -> FlowVersion | None:
        """The next version, once it runs for good."""
        return self.next if self._is_cut else None

    @property
    def queries(self) -> dict[str, GroupQuery]:
        """The queries that count: those of the current version, and those of the next one from the cut on."""
        found = dict(self.current.queries)
        if self.released is not None:
            found |= {
                query.checkpoint.folder.name: query for query in self.released.queries.values()
            }
        return found

    @property
    def everything(self) -> list[GroupQuery]:
        """All queries, also those that are held."""
        every = [
            *self.current.queries.values(),
            *(self.next.queries.values() if self.next is not None else ()),
        ]
        # While a version leaves, those that it kept are both versions'.
        return list({id(query): query for query in every}.values())

    @property
    def flows(self) -> list[FlowVersion]:
        """The versions whose journals and sources count."""
        return [self.current] if self.released is None else [self.current, self.released]

    def whose(self, query: GroupQuery) -> str:
        """Return how to say whose query it is: with its version, while there are two."""
        flow = f'flow "{self.current.flow.name}"'
        if self.next is None:
            return flow
        newer = any(query is one for one in self.next.queries.values())
        return f'version "{(self.next if newer else self.current).name}" of {flow}'

    def history(self) -> tuple[Entry, ...]:
        """Return every step of all switches, oldest first."""
        return self._book.history()

    def status(self) -> SwitchStatus | None:
        """Return how far a switch is; None if there is none."""
        if not self.under_way or self._state.next is None:
            return None
        mine = tuple(entry for entry in self._book.history() if entry.number == self._state.number)
        cut = moment_of(self._cut_us) if self._is_cut else None
        share, wanted = self._state.share / cuts.WHOLE, self._state.wanted / cuts.WHOLE
        old, new = self._state.current, self._state.next
        return SwitchStatus(self._state.phase, old, new, cut, self._left(), mine, share, wanted)

    # what users ask for

    def compare(
        self,
        flow: Flow,
        version: str,
        consent: Collection[str],
        mode: e.Mode = "switch",
        since: datetime | None = None,
    ) -> tuple[FlowVersion, SwitchPlan]:
        """Return a version that might come next, and what a switch to it would do."""
        new = FlowVersion(self._ground, version, flow)
        new.check_binaries()
        plan = switch_plan(
            self.current.meanings, new.meanings, consent=consent, mode=mode, since=since
        )
        more = (*reshaped(self.current, new, plan), *again.unready(self.current, new, plan))
        return new, replace(plan, obstacles=(*plan.obstacles, *more))

    def switch(
        self,
        flow: Flow,
        version: str,
        consent: Collection[str],
        limit: timedelta,
        since: datetime | None = None,
        share: int = cuts.WHOLE,
    ) -> None:
        """Begin to put a version in the place of the current one, or to give it a share of the keys.

        Raises:
            SwitchImpossible: What the two versions are does not allow it.
            SwitchRefused: One is under way, or the name is taken, or there is nothing left to
                switch.
            FlowError: The new version has a mistake that only Spark can see.
        """
        self._check_name(version)
        machine.advance(self._state, e.SwitchRequested(version, (), 1, 0), self._now())
        mode: e.Mode = "switch" if share == cuts.WHOLE else "share"
        new, plan = self.compare(flow, version, consent, mode, since=since)
        plan.check()
        self._check_alive(plan)
        units = tuple(unit.name for unit in plan.units)
        homes = {
            self.current.name: homes_of(self.current),
            version: next_homes(self.current, new, plan),
        }
        new.homes = homes[version]
        asked = e.SwitchRequested(
            version,
            units,
            plan.step // MICROSECOND,
            limit // MICROSECOND,
            mode,
            share,
            homes=homes,
            since_us=None if plan.since is None else micros(plan.since),
            consent=tuple(consent),
        )
        step = machine.advance(self._state, asked, self._now())
        self._plan, self.next = plan, new
        self._take(step)
        self._pair()

    def share(self, share: int, limit: timedelta) -> None:
        """Give another share of the keys to the next version; nothing returns to the current one.

        Raises:
            SwitchRefused: No keys are shared out, or it is the share that the version has.
        """
        voters = (
            frozenset(voter.name for voter in self._voters())
            if self.released is not None
            else frozenset()
        )
        self._hear(e.ShareRequested(share, voters, limit // MICROSECOND))

    def shadow(
        self,
        flow: Flow,
        version: str,
        consent: Collection[str],
        lasting: timedelta | None,
        limit: timedelta,
    ) -> None:
        """Begin to run a version in the shadow of the current one.

        Raises:
            SwitchImpossible: What the two versions are does not allow it.
            SwitchRefused: A switch is under way, there is nothing to compare, or it has ended.
            FlowError: The new version has a mistake that only Spark can see.
        """
        self._check_name(version)
        machine.advance(self._state, e.SwitchRequested(version, (), 1, 0), self._now())
        new, plan = self.compare(flow, version, consent, "shadow")
        plan.check()
        self._check_alive(plan)
        if not plan.units:
            raise SwitchRefused(
                "the new version means the same as the running one",
                hint="there is nothing to compare",
            )
        found = shadowed(self.current.meanings, new.meanings, plan.units)
        shadow = Shadow(self._shadow_folder, self.current, new, plan, found)
        new.aside = Aside(shadow.groups, shadow.letters)
        new.homes = shadow_homes(self.current, new, found.groups)
        homes = {self.current.name: homes_of(self.current), version: new.homes}
        units = tuple(unit.name for unit in found.units)
        asked = e.SwitchRequested(
            version, units, found.step_us, limit // MICROSECOND, "shadow", homes=homes
        )
        step = machine.advance(self._state, asked, self._now())
        self._plan, self.next = replace(plan, units=found.units), new
        self._shadow, self._lasting, self.compared, self._broken = shadow, lasting, None, None
        self._take(step)
        self._pair()

    def comparison(self) -> Comparison | None:
        """Return how a version in the shadow compares, or the last one did; None if there was none."""
        return self.compared if self._shadow is None else self._shadow.comparison()

    def give_up(self) -> None:
        """Take back a switch that is not cut yet, or end a shadow.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        self._hear(e.AbortRequested())

    def _check_name(self, version: str) -> None:
        if not _NAME.fullmatch(version):
            raise SwitchRefused(
                f'a version cannot be called "{version}"',
                hint="use letters, digits, dots, dashes and underscores",
            )
        owners = self._state.owners
        known = {
            self._state.current,
            owners.first,
            *(n for one in owners.stretches for n in (one.first, one.second)),
        }
        if version in known:
            raise SwitchRefused(
                f'a version "{version}" has run already',
                hint="every version that ever runs has a name of its own",
            )

    def _check_alive(self, plan: SwitchPlan) -> None:
        for name in [name for unit in plan.units for name in unit.groups]:
            if name in self.current.queries and self.current.queries[name].finished:
                raise SwitchRefused(
                    f'group "{name}" has ended', hint="what has ended is started anew, not switched"
                )

    # coming up

    def open(self) -> None:
        """Set up what the record says: queries are made, their orders given, and nothing runs yet.

        Raises:
            FlowError: The flow has a mistake that only Spark can see.
            GroupChanged: A group means something else than when its checkpoint was made.
            RunError: The current version is not the one that was given, and cannot be loaded.
        """
        record = self._book.read()
        step = machine.Step(self._state) if record is None else machine.recover(record, self._now())
        self._state = step.state
        self._find_versions(self._state.phase if record is None else record.phase)
        for version in self.flows:
            version.check_binaries()
        if self.next is not None:
            self._plan = self._planned_before(self.next)
        for version in self.flows:
            checkpoints = version.checkpoints(self._own(version))
            # A start that is refused changes nothing: journals are made, or widened, after all
            # groups are accepted.
            version.make_journals()
            for name, checkpoint in checkpoints.items():
                self._settle(version.make(name, checkpoint))
        self._register()
        self._pair()
        self._take(step)
        self._work()

    def _planned_before(self, new: FlowVersion) -> SwitchPlan:
        """Return the plan of a switch that was begun before a stop."""
        since = None if self._state.since_us is None else moment_of(self._state.since_us)
        return switch_plan(
            self.current.meanings, new.meanings, consent=self._state.consent, since=since
        )

    def _find_versions(self, phase: Phase) -> None:
        """Load the versions that there were in a phase: what is to be done may lead to another one at once."""
        state = self._state
        runs = state.staying if phase is Phase.RETIRING else state.current
        self.current = self._found(runs)
        if phase in (Phase.SHARING, Phase.OVERLAPPING):
            assert state.next is not None
            self.next = self._found(state.next)

    def _found(self, name: str) -> FlowVersion:
        given, flow = self._given
        if name != given and self._load is None:
            raise RunError(
                f'version "{name}" of flow "{flow.name}" is the one that runs, and "{given}" was given',
                hint="start the version that runs, and switch it",
            )
        found = flow if name == given or self._load is None else self._load(name)
        return FlowVersion(self._ground, name, found, self._state.homes.get(name, Homes()))

    def _own(self, version: FlowVersion) -> list[str]:
        """Return the groups whose queries a version makes: the next one does not make those that it keeps."""
        names = [group.name for group in version.plan.groups]
        handed = self._handed_over
        if version is self.current:
            return [name for name in names if name not in handed]
        homes = self.current.homes.groups
        return [
            name
            for name in names
            if version.homes.groups.get(name) != homes.get(name, "") or name in handed
        ]

    @property
    def _handed_over(self) -> set[str]:
        """The groups with which the next version has gone on where the current one had stopped."""
        if self.next is None or not self._is_cut:
            return set()
        meanings = self.next.meanings.meanings
        mine = {name for name in self._moved if name in meanings}
        return {
            name
            for name in mine
            if Checkpoint.belongs(self.next.group_folder(name), meanings[name])
        }

    def _settle(self, query: GroupQuery) -> None:
        """Take back what was asked of a query before a stop."""
        orders = query.control.orders()
        if orders.held or orders.question is not None:
            query.control.order(changed(orders, held=False, question=None))

    def _register(self) -> None:
        known = set().union(*(version.readers for version in self.flows))
        for version in self.flows:
            version.register()
        journals = {
            version.journal(name) for version in self.flows for name in version.plan.journals
        }
        forget_readers(sorted(journals), self.current.flow.name, known)

    def start_all(self) -> None:
        """Start all queries, one after the other."""
        for query in self.everything:
            _start(query)

    # going on

    def poll(self) -> None:
        """Do what is to be done, and notice what has happened."""
        if not self.under_way:
            return
        self._work()
        for event in list(self._noticed()):
            self._hear(event)
        self._work()

    def _hear(self, event: e.Event) -> None:
        self._take(machine.advance(self._state, event, self._now()))

    def _take(self, step: machine.Step) -> None:
        """Note what is to be done: what is said of a step is written after what decides it."""
        self._state = step.state
        if step.state.phase is Phase.ABORTING:
            self._starting = None
        first = 1 if step.instructions and isinstance(step.instructions[0], i.Write) else 0
        self._todo += [*step.instructions[:first], *step.entries, *step.instructions[first:]]

    def _work(self) -> None:
        while self._todo and self._starting is None:
            self._do(self._todo.popleft())

    def _do(self, instruction: i.Instruction | Entry) -> None:
        point = _point(instruction)
        passing(f"before-{point}")
        match instruction:
            case Entry():
                self._book.note(instruction)
            case i.Write(record):
                self._book.write(record)
            case i.StartHeld(_):
                self._starting = self._start_held()
            case i.RunShadow(_):
                self._run_shadow()
            case i.AskWindows() | i.AskConfirm() | i.LetGo():
                self._ask(_question(instruction))
            case i.FindFirst(number, cut_us):
                self._hear(e.FirstFound(number, self._first(cut_us)))
            case _:
                self._follow(instruction)
        passing(point)

    def _follow(self, instruction: i.Instruction) -> None:
        """Do what follows from a cut, or from giving up."""
        match instruction:
            case i.Release(version):
                self._release(version)
            case i.Withdraw(_, since_us):
                self._withdraw(since_us)
            case i.MakeReady(version):
                self._release(version, held=True)
            case i.Close(_, unit):
                self._close(next(one for one in self._units if one.name == unit))
            case i.Retire(version):
                self._retire(version)
            case i.Remove(version):
                self._remove(version)
            case _:
                raise RunError(f"{type(instruction).__name__} is not carried out on Spark yet")

    # until the cut

    def _start_held(self) -> Iterator[None]:
        """Start the queries of the next version, one in each poll; each runs an empty batch, so that all is warm at the cut."""
        new = self.next
        assert new is not None
        new.make_journals()
        passing("switch-journals")
        new.register()
        passing("switch-registered")
        if self._plan is not None and self._plan.since is not None:
            # From here on nothing is removed that it needs.
            replace(
                self._plan, obstacles=tuple(again.trimmed(self.current, new, self._plan))
            ).check()
        for name, checkpoint in new.checkpoints(self._own(new)).items():
            query = new.make(name, checkpoint)
            query.paired = True
            if self._shadow is not None:
                self._shadow.record("new", query)
            query.control.order(Orders(held=True, owns=None if name in self._inner else ()))
            passing("switch-ordered")
            _start(query)
            passing("switch-started")
            yield

    def _warm(self) -> bool:
        assert self.next is not None
        return all(
            query.checkpoint.last("commits") is not None for query in self.next.queries.values()
        )

    def _ask(self, question: Question | None) -> None:
        who = set() if question is None else {query.checkpoint.folder.name for query in self._asked}
        for query in self.everything:
            asked = question if query.checkpoint.folder.name in who else None
            orders = query.control.orders()
            if orders.question != asked:
                query.control.order(changed(orders, question=asked))
                passing("switch-asked")

    @property
    def _asked(self) -> list[GroupQuery]:
        """The queries that have a say in where the cut is: those of the next version too if it has a share already."""
        found = [
            query for name, query in self.current.queries.items() if name in self._asked_groups
        ]
        return found if self.released is None else [*found, *self.released.queries.values()]

    @property
    def _asked_groups(self) -> set[str]:
        """The groups of the current version that have a say."""
        mine = self._parted & self.current.queries.keys()
        read = {name for group in mine for name in self.current.queries[group].sink.inputs}
        assert self.next is not None
        wanted = {
            name for group in self._own(self.next) for name in self.next.plan.group(group).inputs
        } - read
        # What only new groups read is cut above what others have read of it.
        others = {name: query for name, query in self.current.queries.items() if not query.finished}
        return mine | {name for name, query in others.items() if wanted & query.sink.inputs.keys()}

    def _voters(self) -> Iterator[Voter]:
        for query in self._asked:
            for journal, source in query.sink.inputs.items():
                for partition in range(
                    journal_at(source.path).cached_reader().description.partitions
                ):
                    yield Voter(
                        f"{query.checkpoint.folder.name}/{journal}/{partition}",
                        query,
                        journal,
                        partition,
                    )

    def _first(self, cut_us: int) -> e.First:
        """Return where the queries of the next version begin; journals of its own are read whole."""
        assert self.next is not None
        found: e.First = {}
        if self._is_cut:
            return found  # it runs already, and goes on where it is
        for unit in self._units:
            back = None if unit.look_back is None else unit.look_back // MICROSECOND
            for group in unit.groups:
                query = self.next.queries.get(group)
                if query is not None:
                    moments = {
                        name: cuts.EARLIEST
                        if name in unit.private
                        else cuts.reads_from(cut_us, back)
                        for name in query.sink.inputs
                    }
                    found[group] = {
                        name: cuts.first_positions(views(query, name), at)
                        for name, at in moments.items()
                    }
        return found

    # in the shadow

    def _run_shadow(self) -> None:
        """Let the next version run on what comes in; nobody else hears of it."""
        assert self.next is not None
        try:
            self._begin_shadow()
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            self._broken = str(error)
            self._hear(e.Failed(self.next.name, self._broken))

    def _begin_shadow(self) -> None:
        assert self.next is not None
        assert self._shadow is not None
        since = self._shadow.begin()
        first = self._first(since)
        for name, query in self.next.queries.items():
            owns = None if name in self._inner else ((since, None, 0, cuts.WHOLE),)
            query.control.order(Orders(first=first.get(name, {}), owns=owns))
            passing("switch-ordered")
        self._until_us = (
            None if self._lasting is None else self._now() + self._lasting // MICROSECOND
        )

    def _shadowed(self) -> Iterator[e.Event]:
        """Compare what has come, and notice when that is enough."""
        assert self._shadow is not None
        assert self.next is not None
        self._broken = next(
            (failure.why for failure in self._failed()), None
        ) or self._compared_more(self._shadow)
        if self._broken is not None:
            yield e.Failed(self.next.name, self._broken)
        elif self._shadow.complete:
            yield e.AbortRequested("all that comes in has been compared")
        elif self._until_us is not None and self._now() >= self._until_us:
            yield e.AbortRequested("its time is over")

    def _compared_more(self, shadow: Shadow) -> str | None:
        """Compare what has come; return what is wrong, if anything is."""
        try:
            shadow.poll()
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            return str(error)
        return shadow.trouble

    def _end_shadow(self) -> None:
        """Keep what was found, and nothing else."""
        if self._shadow is not None:
            self._broken = self._broken or self._shadow.finish()
            self.compared = changed(self._shadow.comparison(), broken=self._broken)
            self._shadow.end()
            self._shadow = None
        remove_shadow(self._shadow_folder)

    # from the cut on

    def _release(self, name: str, *, held: bool = False) -> None:
        """Let the queries of a version run by the record, or be `held` with what it says."""
        version = self._version(name)
        if version is None:
            return
        self._take_turns()
        for query in version.queries.values():
            before = query.control.orders()
            orders = changed(before, held=held, question=None)
            if query.group.name in self._moved and version is self.current and self._is_cut:
                orders = changed(orders, question=self._standstill)
            if query.group.name in self._parted and self._is_cut:
                first = self._state.firsts.get(name, {}).get(query.group.name, {})
                orders = changed(orders, first=first or before.first)
            if query.group.name in self._parted - self._inner and self._is_cut:
                stretch = self._state.owners.stretches[-1]
                orders = changed(orders, owns=cuts.owned_after(before.owns, stretch, name))
                self._expect(query, self._began_us if name == self._state.next else None)
            if orders != before:
                query.control.order(orders)
                passing("switch-ordered")

    def _withdraw(self, since_us: int) -> None:
        """Stop the current version's part for good, and take back what it has put out since a moment."""
        for name in sorted(self._parted & self.current.queries.keys()):
            query = self.current.queries.pop(name)
            self._stop(query)
            query.sink.shut()
        passing("switch-shut")
        assert self._plan is not None
        again.withdraw(self.current, self._plan, since_us)

    def _take_turns(self) -> None:
        """Let both versions of a group that writes to sinks publish in order."""
        after = {} if self.next is None or not self._is_cut else self.next.queries
        for name in self._parted:
            old, new = self.current.queries.get(name), after.get(name)
            if old is None or new is None or old.written is not None:
                continue
            if old.sink.turns is None:
                turns = SinkOrder(name, old.checkpoint.id, new.checkpoint.id, self._cut_us)
                old.sink.turns = new.sink.turns = turns
            old.sink.turns.cut_at(self._cut_us)

    @property
    def _parted(self) -> set[str]:
        """The groups of which each version has its own."""
        return {name for unit in self._units if not unit.moved for name in unit.groups}

    @property
    def _moved(self) -> set[str]:
        """The groups with which the next version goes on where the current one stops."""
        return {name for unit in self._units if unit.moved for name in unit.groups}

    @property
    def _inner(self) -> set[str]:
        """Those of them that write a journal of their version's own: there everything counts, whoever owns it."""
        plans = [version.plan for version in (self.current, self.next) if version is not None]
        groups = [group for plan in plans for group in plan.groups]
        private = {name for unit in self._units for name in unit.private}
        return {
            group.name
            for group in groups
            if group.name in self._parted and group.journal in private
        }

    def _expect(self, query: GroupQuery, at_least: int | None) -> None:
        for target in query.sink.targets:
            if isinstance(target, JournalTarget):
                target.expect(query.checkpoint.sender(query.flow.name), at_least)

    def _close(self, unit: Unit) -> None:
        if unit.moved:
            return  # the next version has its queries already, and nobody may know how far the old one would have read
        close = self._cut_us + self._reach(unit) + SLACK_US
        for name in unit.groups:
            query = self._leaving.queries.get(name)
            if query is not None:
                query.control.order(changed(query.control.orders(), close_us=close))
                passing("switch-closed")

    # state that moves

    @property
    def _standstill(self) -> Question:
        """What makes the sources of a group read nothing more, and say so."""
        return Question("report", -self._state.number, self._state.step_us, stop=True)

    def _taken_over(self, unit: Unit) -> Iterator[e.Event]:
        """Let the new version of a group go on once the old one stands still between two batches."""
        (name,) = unit.groups
        query = self.current.queries.get(name)
        if query is not None and query.query is not None and self._still(query):
            query.query.stop()
            if query.checkpoint.last("offsets") == query.checkpoint.last("commits"):
                self._take_over(query)
            else:
                _start(query)  # it had begun another batch, which is for the old version to finish
        if name not in self.current.queries:
            yield e.Beyond(unit.name)
            yield e.Drained(unit.name)

    def _still(self, query: GroupQuery) -> bool:
        """Tell whether the sources of a query read nothing more, and Spark has nothing left to do."""
        answers = [query.control.answered(name) for name in query.sink.inputs]
        heard = all(one is not None and one.round == self._standstill.round for one in answers)
        return heard and found_nothing(query)

    def _take_over(self, old: GroupQuery) -> None:
        assert self.next is not None
        name = old.group.name
        old.stop()
        del self.current.queries[name]  # whatever happens now, it is not stopped again
        passing("switch-still")
        if name in self.next.homes.groups:
            checkpoint = old.checkpoint.handed_to(self.next.meanings.meanings[name])
            passing("switch-handed-over")
            query = self.next.make(name, checkpoint)
            query.paired = True
            self._settle(query)
            passing("switch-settled")
            _start(query)

    def _retire(self, name: str) -> None:
        """Let a version go that has put out all that it owns."""
        gone, stays = self._state.homes[name], self._state.homes[self._state.staying]
        if self.next is not None:
            leaving, staying = self._leaving, self._staying
            for group, query in leaving.queries.items():
                if group in self._parted:
                    self._stop(query)
                else:
                    staying.queries[group] = query
            passing("switch-stopped")
            self.current, self.next = staying, None
        remove_unless(self._ground.folder, gone, stays, new=False)
        self._register()
        passing("switch-forgotten")
        self._end_switch()
        self._hear(e.Retired())

    def _remove(self, name: str) -> None:
        """Let a version go that was not wanted."""
        self._starting = None
        for query in self.next.queries.values() if self.next is not None else ():
            self._stop(query)
        self._end_shadow()
        self.next = None
        passing("switch-stopped")
        remove_unless(
            self._ground.folder,
            self._state.homes[name],
            self._state.homes[self._state.current],
            new=True,
        )
        self._register()
        passing("switch-forgotten")
        self._end_switch()
        self._hear(e.Removed())

    def _stop(self, query: GroupQuery) -> None:
        for target in query.sink.targets:
            if isinstance(target, JournalTarget):
                target.dismiss(query.checkpoint.sender(query.flow.name))
        query.stop()

    def _pair(self) -> None:
        for query in self.everything:
            query.paired = query.group.name in self._parted | self._moved

    def _end_switch(self) -> None:
        self._plan = None
        for query in self.everything:
            query.paired, query.sink.turns = False, None

    # what is noticed

    def _noticed(self) -> Iterator[e.Event]:
        yield e.Tick()
        match self._state.phase:
            case Phase.PREPARING:
                yield from self._prepared()
            case Phase.ASKING | Phase.CONFIRMING:
                yield from self._failed()
                yield from self._answers()
            case Phase.SHADOWING:
                yield from self._shadowed()
            case Phase.OVERLAPPING:
                for unit in self._units:
                    yield from self._taken_over(unit) if unit.moved else self._progress(unit)

    def _prepared(self) -> Iterator[e.Event]:
        """Start one query more; once all are warm, say so."""
        assert self.next is not None
        try:
            if self._starting is not None:
                next(self._starting)
        except StopIteration:
            self._starting = None
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            self._starting = None
            yield e.Failed(self.next.name, str(error))
            return
        yield from self._failed()
        if self._starting is None and self._warm():
            yield e.Held(frozenset(voter.name for voter in self._voters()))

    def _failed(self) -> Iterator[e.Failed]:
        assert self.next is not None
        for query in self.next.queries.values():
            failure = self._failure(query)
            if failure is not None:
                yield e.Failed(self.next.name, str(failure))

    def _answers(self) -> Iterator[e.Event]:
        kind = "report" if self._state.phase is Phase.ASKING else "confirm"
        for voter in self._voters():
            answer = voter.query.control.answered(voter.journal)
            if answer is None or answer.round != self._state.ballot.round or answer.kind != kind:
                continue
            if kind == "report":
                yield e.Reported(answer.round, voter.name, answer.highest[voter.partition])
            else:
                yield (e.Passed if answer.passed else e.Confirmed)(answer.round, voter.name)

    def _progress(self, unit: Unit) -> Iterator[e.Event]:
        reach, queries = self._reach(unit), self._leaving.queries
        leaving = [queries[name] for name in unit.groups if name in queries]
        pairs = [(query, query.checkpoint.committed()) for query in leaving]
        logged = [
            (query, one)
            for query, one in pairs
            if one is not None and self._heard_of_the_cut(query, one)
        ]
        if len(logged) < len(leaving):
            return
        if all(ahead(query, one, self._cut_us + reach) <= 0 for query, one in logged):
            yield e.Beyond(unit.name)
        if all(cuts.drained(query.sink.reached(one), self._cut_us, reach) for query, one in logged):
            yield e.Drained(unit.name)

    def _heard_of_the_cut(self, query: GroupQuery, logged: Logged) -> bool:
        if query.group.name in self._inner:
            return True
        return all(cuts.knows(offset.owns, self._cut_us) for offset in logged.offsets.values())

    def _left(self) -> float | None:
        """Return how many seconds of events the version that leaves still has to read."""
        most = 0.0
        if self._state.phase is not Phase.OVERLAPPING:
            return None
        queries = self._leaving.queries
        for unit in [unit for unit in self._units if not unit.moved]:
            for query in (queries[name] for name in unit.groups if name in queries):
                logged = query.checkpoint.committed()
                if logged is None:
                    return None
                most = max(most, ahead(query, logged, self._cut_us + self._reach(unit)))
        return None if most == float("inf") else most / 1e6

    # small things

    @property
    def _units(self) -> tuple[Unit, ...]:
        return () if self._plan is None else self._plan.units

    @property
    def _is_cut(self) -> bool:
        # A version that has a share runs on while another share is being cut.
        return self._state.phase in _PAST_THE_CUT or self._state.share > 0

    @property
    def _cut_us(self) -> int:
        return self._state.owners.stretches[-1].from_us

    @property
    def _began_us(self) -> int:
        """The cut from which on the next version owns anything."""
        return next(
            one.from_us for one in self._state.owners.stretches if one.second == self._state.next
        )

    @property
    def _leaving(self) -> FlowVersion:
        """The version that goes: the old one, unless it is given its keys back."""
        found = self.next if self._state.leaving == self._state.next else self.current
        assert found is not None
        return found

    @property
    def _staying(self) -> FlowVersion:
        found = self.current if self._leaving is self.next else self.next
        assert found is not None
        return found

    def _reach(self, unit: Unit) -> int:
        """Return how far past the cut the version that leaves has to read."""
        horizon = unit.horizon if self._leaving is self.current else unit.returns
        assert horizon is not None
        return horizon // MICROSECOND

    def _version(self, name: str) -> FlowVersion | None:
        return next(
            (one for one in (self.current, self.next) if one is not None and one.name == name), None
        )

    def _now(self) -> int:
        return self._clock.now_us()


def _start(query: GroupQuery) -> None:
    query.start()
    # One after the other: each starts Python processes of its own, and
    # Spark gives them ten seconds, which is little when all start at once.
    query.wait_for_sources()


def _question(instruction: i.AskWindows | i.AskConfirm | i.LetGo) -> Question | None:
    """Return what sources are asked."""
    match instruction:
        case i.AskWindows(number, step_us, stop):
            return Question("report", number, step_us, stop=stop)
        case i.AskConfirm(number, step_us, bound, cut_us):
            return Question("confirm", number, step_us, bound, cut_us)
    return None


def _point(instruction: i.Instruction | Entry) -> str:
    """Return the name of the failpoint behind an instruction."""
    kind = type(instruction).__name__.lower()
    return (
        f"switch-write-{instruction.record.phase}"
        if isinstance(instruction, i.Write)
        else f"switch-{kind}"
    )
