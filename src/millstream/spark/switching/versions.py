"""The versions of a running flow: one, or two while one replaces the other.

This is what a run asks for switches; it carries out what the machine (`switch/machine.py`) says on
running queries.

    switch()   compare, analyse, refuse             nothing is touched
    poll()     one instruction after the other      the queries of the next version start one at a time
    open()     after a stop, whatever the reason    by the record, before any query starts

By task: `vote` finds the cut, `handover` follows from it, `retire` lets a version go, `shadow_run`
compares one in the shadow, and `carry_out` calls them in the machine's order.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from millstream.clock import MICROSECOND, Clock, micros, moment_of
from millstream.errors import RunError, SwitchRefused
from millstream.flow.flow import Flow
from millstream.spark.run.locations import homes_of, next_homes, owning, shadow_homes
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.shared_query import share
from millstream.spark.run.version import Aside, FlowVersion, RunContext, remove_leftovers
from millstream.spark.switching import handover, reprocess, vote
from millstream.spark.switching.carry_out import CarryOut, Failure
from millstream.spark.switching.pair import VersionPair, settle, start
from millstream.spark.switching.shadow import Shadow
from millstream.spark.switching.shadow_run import ShadowRun
from millstream.spark.switching.shapes import rekeyed, reshaped
from millstream.spark.switching.switch_log import SwitchLog
from millstream.spark.switching.waiting import awaited, needed_floors
from millstream.switch import machine
from millstream.switch.comparison import Comparison
from millstream.switch.events import AbortRequested, ShareRequested, SwitchRequested
from millstream.switch.machine import Entry
from millstream.switch.phases import Retiring, Running, Shadowing
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.progress import SwitchProgress, step_of
from millstream.switch.record import Homes, Phase, Record
from millstream.switch.request import SwitchRequest
from millstream.switch.shadow import shadowed

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Load = Callable[[str], Flow]


def _shared(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the groups of which two versions have the same checkpoint."""
    return [name for name, home in new.items() if old.get(name) == home]


class FlowVersions:
    """The version that runs, and the one that replaces it."""

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
        self._clock = clock
        self._given = (version, flow)
        self._log = SwitchLog(ground.folder / "switch", lambda: ground.log)
        self._pair = VersionPair(FlowVersion(ground, version, flow))
        self._shadow = ShadowRun(self._pair, ground.folder / "shadow")
        self._carrying = CarryOut(self._pair, self._shadow, self._log, failure, clock)

    # what others see

    @property
    def current(self) -> FlowVersion:
        """The version that runs."""
        return self._pair.current

    @property
    def under_way(self) -> bool:
        """Whether one version is replacing another."""
        return self._carrying.under_way

    @property
    def shadowing(self) -> bool:
        """Whether a version runs in the shadow of the current one."""
        return isinstance(self._pair.state, Shadowing)

    @property
    def queries(self) -> dict[str, GroupQuery]:
        """The queries of the current version and, from the cut on, of the next one."""
        return self._pair.queries

    @property
    def everything(self) -> list[GroupQuery]:
        """All queries, also those that are held."""
        return self._pair.everything

    @property
    def flows(self) -> list[FlowVersion]:
        """The versions whose journals and sources count."""
        return self._pair.flows

    def whose(self, query: GroupQuery) -> str:
        """Return how to name whose query it is: with its version, while there are two."""
        flow, new = f'flow "{self.current.flow.name}"', self._pair.next
        if new is None:
            return flow
        newer = any(query is one for one in new.queries.values())
        return f'version "{(new if newer else self.current).name}" of {flow}'

    def history(self) -> tuple[Entry, ...]:
        """Return every step of all switches, oldest first."""
        return self._log.history()

    def progress(self) -> SwitchProgress | None:
        """Return how a switch goes; None if there is none."""
        state = self._pair.state
        if isinstance(state, Running):
            return None
        steps = [entry for entry in self._log.history() if entry.number == state.number]
        return SwitchProgress(
            state.next,
            state.phase,
            self._pair.cut_us if state.is_cut else None,
            handover.left_s(self._pair),
            tuple(map(step_of, steps)),
            share=state.new.share,
            wanted=state.new.wanted,
            needs=needed_floors(self._pair),
            waits=awaited(self._pair),
        )

    def comparison(self) -> Comparison | None:
        """Return how a version in the shadow compares, or the last one did.

        None if there was none.
        """
        return self._shadow.comparison()

    # what users ask for

    def compare(
        self, flow: Flow, version: str, request: SwitchRequest
    ) -> tuple[FlowVersion, SwitchPlan]:
        """Return a version that might come next, and what a switch to it would do."""
        old, new = self.current, FlowVersion(self._ground, version, flow)
        new.check_binaries()
        plan = switch_plan(
            old.meanings,
            new.meanings,
            consent=request.consent,
            mode=request.mode,
            since=request.since,
            states=request.states,
        )
        shapes = (*reshaped(old, new, plan), *rekeyed(old, new, plan))
        more = (*shapes, *reprocess.unready(old, new, plan))
        return new, replace(plan, obstacles=(*plan.obstacles, *more))

    def switch(self, flow: Flow, version: str, request: SwitchRequest) -> None:
        """Begin to replace the current version, to share its keys, or to run a shadow.

        Raises:
            SwitchImpossible: What the two versions are does not allow it.
            SwitchRefused: One is under way, the name is taken, or there is nothing to switch, or
                to compare.
            FlowError: The new version has a mistake that only Spark can see.
        """
        new, plan = self._compared(flow, version, request)
        if request.shadow:
            plan, step_us = self._prepare_shadow(new, plan, request)
        else:
            new.homes = next_homes(self.current, new, plan)
            step_us = plan.step // MICROSECOND
        asked = SwitchRequested(
            version,
            request,
            tuple(unit.name for unit in plan.units),
            step_us,
            homes={
                self.current.name: owning(self.current, homes_of(self.current), plan),
                version: new.homes,
            },
            since_us=None if plan.since is None else micros(plan.since),
        )
        step = machine.advance(self._pair.state, asked, self._now())
        self._pair.plan, self._pair.next = plan, new
        self._part()
        self._carrying.take(step)
        self._pair.mark()

    def _compared(
        self, flow: Flow, version: str, request: SwitchRequest
    ) -> tuple[FlowVersion, SwitchPlan]:
        """Return a version that can come next now, and the plan; refuse what can be refused."""
        self._check_name(version)
        machine.advance(self._pair.state, SwitchRequested(version, request, (), 1), self._now())
        new, plan = self.compare(flow, version, request)
        plan.check()
        for name in [name for unit in plan.units for name in unit.groups]:
            if name in self.current.queries and self.current.queries[name].finished:
                hint = "what has ended is started again, not switched"
                raise SwitchRefused(f'group "{name}" has ended', hint=hint)
        return new, plan

    def _prepare_shadow(
        self, new: FlowVersion, plan: SwitchPlan, request: SwitchRequest
    ) -> tuple[SwitchPlan, int]:
        """Set a version apart; return the plan of the shadow, and the step of its windows."""
        if not plan.units:
            hint = "there is nothing to compare"
            raise SwitchRefused("the new version means the same as the running one", hint=hint)
        found = shadowed(self.current.meanings, new.meanings, plan.units)
        shadow = Shadow(self._shadow.folder, self.current, new, plan, found)
        new.aside = Aside(shadow.groups, shadow.letters)
        new.homes = shadow_homes(self.current, new, found.groups)
        self._shadow.prepare(shadow, request.duration)
        return replace(plan, units=found.units, since=None), found.step_us

    def _check_name(self, version: str) -> None:
        if not _NAME.fullmatch(version):
            hint = "use letters, digits, dots, dashes and underscores"
            raise SwitchRefused(f'a version cannot be called "{version}"', hint=hint)
        if version in {self._pair.state.current, *self._pair.state.owners.versions}:
            hint = "every version that ever runs has a name of its own"
            raise SwitchRefused(f'a version "{version}" has run already', hint=hint)

    def share(self, request: SwitchRequest) -> None:
        """Give the next version another share of the keys; without one it loses all.

        Raises:
            SwitchRefused: No keys are shared out, or it is the share that the version has.
        """
        voters = () if self._pair.released is None else vote.voters(self._pair)
        self._carrying.advance(ShareRequested(request, frozenset(one.name for one in voters)))

    def abort(self) -> None:
        """Take back a switch that is not cut yet, or end a shadow.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        self._carrying.advance(AbortRequested())

    # coming up

    def open(self) -> None:
        """Set up what the record says: queries are made, their orders given, and nothing runs yet.

        Raises:
            FlowError: The flow has a mistake that only Spark can see.
            GroupChanged: A group means something else than when its checkpoint was made.
            RunError: The current version is not the one that was given, and cannot be loaded.
        """
        pair, record = self._pair, self._log.read()
        step = machine.Step(pair.state) if record is None else machine.recover(record, self._now())
        pair.state = step.state
        self._load_versions(record)
        for version in pair.flows:
            version.check_binaries()
        if pair.next is not None:
            pair.plan = self._planned_before(pair.next)
        for version in pair.flows:
            checkpoints = version.checkpoints(pair.own(version))
            # A start that is refused changes nothing: journals are made, or widened, after all
            # groups are accepted.
            version.make_journals()
            for name, checkpoint in checkpoints.items():
                settle(version.make(name, checkpoint))
        pair.register()
        pair.mark()
        self._carrying.take(step)
        self._carrying.work()

    def _load_versions(self, record: Record | None) -> None:
        """Load the versions of the record: what follows may lead to another phase at once."""
        state, phase = self._pair.state, Phase.RUNNING if record is None else record.phase
        runs = state.current
        if isinstance(state, Retiring) and phase is Phase.RETIRING:
            runs = state.staying
        self._pair.current = self._loaded(runs)
        if phase in (Phase.SHARING, Phase.OVERLAPPING):
            assert state.next is not None
            self._pair.next = self._loaded(state.next)

    def _loaded(self, name: str) -> FlowVersion:
        given, flow = self._given
        if name != given and self._load is None:
            msg = f'version "{name}" of flow "{flow.name}" is running, and "{given}" was given'
            raise RunError(msg, hint="start the version that runs, and switch it")
        found = flow if name == given or self._load is None else self._load(name)
        homes = self._pair.state.job.homes.get(name, Homes())
        return FlowVersion(self._ground, name, found, homes)

    def _planned_before(self, new: FlowVersion) -> SwitchPlan:
        """Return the plan of a switch that was begun before a stop."""
        state = self._pair.state
        assert not isinstance(state, Running)
        since = None if state.new.since_us is None else moment_of(state.new.since_us)
        known = state.job.homes
        homes = (known.get(name, Homes()).groups for name in (self.current.name, new.name))
        return switch_plan(
            self.current.meanings,
            new.meanings,
            consent=state.new.consent,
            since=since,
            states=state.new.states,
            by_position=_shared(*homes),
        )

    def poll(self) -> None:
        """Do what is to be done, and notice what has happened."""
        self._carrying.poll()

    def trim(self) -> None:
        """Apply retention, and remove what came back of versions that are gone."""
        for version in self.flows:
            version.trim()
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        if not self.under_way:  # else folders are being made
            kept = {query.checkpoint.folder.name for query in self.everything}
            remove_leftovers(self._ground.folder, kept)

    def start_all(self) -> None:
        """Start all queries."""
        self._remove_leftovers()
        if isinstance(self._pair.state, Running) and not self.under_way:
            folder = self._ground.folder.resolve() / "shared"
            shutil.rmtree(folder, ignore_errors=True)
            for one in self.current.plan.shared:
                queries = [self.current.queries[name] for name in one.groups]
                share(folder, queries)
        start(*(query for query in self.everything if query.shared is None))

    def _part(self) -> None:
        """Give the groups that a switch is about queries of their own, before anything is asked."""
        touched = self._pair.parted | self._pair.moved | vote.asked_groups(self._pair)
        for one in {id(query.shared): query.shared for query in self.everything}.values():
            if one is not None:
                one.part(touched)

    def _now(self) -> int:
        return self._clock.now_us()
