"""The versions of a job's flow in its driver: how they are loaded, planned and begun, and what is told of a switch."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream import ingest
from millstream.clock import micros
from millstream.engine.jobs.switch_record import (
    GIVEN_BACK,
    Begin,
    Compare,
    Planned,
    RecoveredState,
    Share,
    SwitchReport,
    SwitchStep,
)
from millstream.errors import MillstreamError, RunError
from millstream.flow.apart import load_apart, visiting
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.rewire import renamed
from millstream.flow.sources import Inbox
from millstream.flow.stages import Source
from millstream.switch import show
from millstream.switch.cut import WHOLE

if TYPE_CHECKING:
    from millstream.engine.driver.protocol import Described
    from millstream.spark.flow_run import FlowRun
    from millstream.switch.comparison import Comparison
    from millstream.switch.machine import Entry

#: How often an engine hears how a version in the shadow compares.
COMPARED_EVERY_S: Final = 1.0


class Versions:
    """The files of all versions of a flow that a driver may need, by name, and the switch between two of them."""

    def __init__(
        self,
        name: str,
        files: dict[str, str],
        binaries: dict[str, Path],
        ship: Callable[[Path], None],
    ) -> None:
        """Know the files of a job's versions.

        Args:
            name: The job's name, which the flows get.
            files: The file of each version's flow.
            binaries: Where programs of the engine's are; programs of a new version are added to it.
            ship: Lets functions of a folder's modules travel to executors.
        """
        self._name, self._files, self._binaries, self._ship = name, dict(files), binaries, ship
        self._own: str | None = None
        self._loaded: str | None = None
        self._asked: str | None = None
        self._told: SwitchReport | None = None
        self._shadow: Compares | None = None

    def took(self, version: str, own: str) -> None:
        """Hear which version was loaded first, and what its flow calls itself."""
        self._loaded, self._own = self._files[version], own

    def flow(self, version: str) -> Flow:
        """Load a version, apart from those that are loaded already.

        Raises:
            RunError: The engine has no such version.
        """
        if version not in self._files:
            hint = f"was it undeployed in the middle of a switch? millstream undeploy {self._name} --purge begins anew"
            raise RunError(f'version {version} of job "{self._name}" is not here', hint=hint)
        return self._load(self._files[version])

    def _load(self, file: str) -> Flow:
        flow = load(file) if self._loaded is None else load_apart(file, self._loaded)
        self._loaded = file
        self._ship(Path(file).parent)
        # A flow of another name stays as it is: it is another flow, which the plan tells.
        return renamed(flow, self._name) if flow.name in (self._own, self._name) else flow

    # switching

    def plan(
        self, running: FlowRun, asked: Compare, describe: Callable[[Flow], Described]
    ) -> Planned:
        """Say what a switch would do; nothing is touched by that.

        Raises:
            FlowError: The new version has a mistake.
        """
        loaded = self._loaded
        with visiting(asked.flow):
            try:
                flow = self._load(asked.flow)
                known = describe(flow)
                plan = running.plan_switch(
                    flow, consent=asked.consent, mode=asked.mode, since=asked.since
                )
            finally:
                self._loaded = loaded
        return Planned(show.to_json(plan), show.table(plan), known.inboxes, known.binaries)

    def begin(self, running: FlowRun, asked: Begin) -> SwitchReport | None:
        """Begin a switch; return what there is to say if that is refused."""
        self._files[asked.version] = asked.flow
        self._binaries.update({name: Path(file) for name, file in asked.binaries.items()})
        try:
            flow = self._load(asked.flow)
            limit = timedelta(seconds=asked.limit_s)
            if asked.shadow_s is not None:
                self._begin_shadow(running, flow, asked, timedelta(seconds=asked.shadow_s))
                return None
            share = asked.share / WHOLE
            running.switch(
                flow,
                asked.version,
                consent=asked.consent,
                limit=limit,
                since=asked.since,
                share=share,
            )
        except MillstreamError as error:
            return SwitchReport(asked.version, ended="refused", why=error.message)
        self._asked = asked.version
        _declare(running, flow)
        return None

    def _begin_shadow(self, running: FlowRun, flow: Flow, asked: Begin, lasting: timedelta) -> None:
        limit = timedelta(seconds=asked.limit_s)
        running.shadow(flow, asked.version, lasting=lasting, consent=asked.consent, limit=limit)
        self._asked, self._shadow = asked.version, Compares(running)

    def share(self, running: FlowRun, asked: Share) -> SwitchReport:
        """Give the new version another share; return how the switch stands then.

        Raises:
            SwitchRefused: No keys are shared out, or it is the share that the version has.
        """
        running.share(asked.parts / WHOLE, limit=timedelta(seconds=asked.limit_s))
        self._told = self._going(running)
        return self._told

    def standing(self, running: FlowRun) -> RecoveredState:
        """Say which version runs, and which one it is switched to, by the record."""
        status = running.switching()
        if status is not None:
            self._asked = status.new
        return RecoveredState(running.version, None if status is None else status.new)

    def news(self, running: FlowRun) -> SwitchReport | None:
        """Return how the switch goes, if that has changed; None if there is none."""
        if self._asked is None:
            return None
        told = self._ended(running) if running.switching() is None else self._going(running)
        if told.ended is not None:
            self._asked = self._shadow = None
        elif told == self._told:
            return None
        self._told = told
        return told

    def _going(self, running: FlowRun) -> SwitchReport:
        status = running.switching()
        assert status is not None
        return SwitchReport(
            status.new,
            status.phase,
            None if status.cut is None else micros(status.cut),
            None if status.left is None else round(status.left, 1),
            _steps(status.history),
            shadow=None if self._shadow is None else self._shadow.so_far(),
            share=round(status.share * WHOLE),
            wanted=round(status.wanted * WHOLE),
        )

    def _ended(self, running: FlowRun) -> SwitchReport:
        assert self._asked is not None
        every = running.history()
        steps = (
            _steps(tuple(one for one in every if one.number == every[-1].number)) if every else ()
        )
        if running.version == self._asked:
            return SwitchReport(self._asked, "running", steps=steps, ended="done")
        why = next((one.text for one in reversed(steps) if one.phase == "aborting"), None)
        why = why if why is not None or self._shadow is not None else GIVEN_BACK
        found = None if self._shadow is None else running.comparison()
        whole = found is not None and found.since is not None and found.broken is None
        ended = "compared" if whole else "given up"
        return SwitchReport(self._asked, "running", steps=steps, ended=ended, why=why, shadow=found)


class Compares:
    """How a version in the shadow compares, told once in a while: it changes with every result."""

    def __init__(self, running: FlowRun) -> None:
        self._running = running
        self._known: Comparison | None = None
        self._at = 0.0

    def so_far(self) -> Comparison | None:
        """Return how it did a moment ago."""
        if time.monotonic() >= self._at:
            self._known, self._at = self._running.comparison(), time.monotonic() + COMPARED_EVERY_S
        return self._known


def _declare(running: FlowRun, flow: Flow) -> None:
    """Make the journals of inboxes that a new version adds or widens, so that its engine can open them."""
    for name, stage in flow.stages.items():
        if not (isinstance(stage, Source) and isinstance(stage.origin, Inbox)):
            continue
        if running.flow.stages.get(name) != stage:
            ingest.declare(stage, running.folder / "journals" / name)


def _steps(entries: tuple[Entry, ...]) -> tuple[SwitchStep, ...]:
    return tuple(SwitchStep(one.at_us / 1e6, one.phase, one.text) for one in entries)
