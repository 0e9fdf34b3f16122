"""The versions of a job's flow in its driver: loaded, planned, begun, reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from millstream import ingest
from millstream.engine.jobs.switch_record import (
    GIVEN_BACK,
    Begin,
    Compare,
    Planned,
    RecoveredState,
    Share,
)
from millstream.errors import MillstreamError, RunError
from millstream.flow.apart import load_apart, visiting
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.rewire import renamed
from millstream.flow.stages import Source
from millstream.plan.drawing import drawing
from millstream.switch import show
from millstream.switch.progress import SwitchProgress, step_of

if TYPE_CHECKING:
    from millstream.engine.driver.protocol import Described
    from millstream.spark.flow_run import FlowRun
    from millstream.switch.comparison import Comparison

Ship = Callable[[Path], None]
#: How often it is reported how a version in the shadow compares.
COMPARED_EVERY_S: Final = 1.0


class DriverVersions:
    """The versions of a flow that a driver may need, and the switch between two of them."""

    def __init__(
        self, name: str, files: dict[str, str], binaries: dict[str, Path], ship: Ship
    ) -> None:
        """Know the files of a job's versions.

        Args:
            name: The job's name, which the flows get.
            files: The file of each version's flow.
            binaries: Where the engine's programs are; those of a new version are added to it.
            ship: Lets functions of a folder's modules travel to executors.
        """
        self._name, self._files, self._binaries, self._ship = name, dict(files), binaries, ship
        self._own: str | None = None
        self._loaded: str | None = None
        self._asked: str | None = None
        self._reported: SwitchProgress | None = None
        self._shadow: Compares | None = None

    def began_with(self, version: str, own: str) -> None:
        """Note which version was loaded first, and what its flow calls itself."""
        self._loaded, self._own = self._files[version], own

    def flow(self, version: str) -> Flow:
        """Load a version, apart from those that are loaded already.

        Raises:
            RunError: The engine has no such version.
        """
        if version not in self._files:
            hint = f"was it undeployed in the middle of a switch? millstream undeploy {self._name} --purge begins again"
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
        """Return what a switch would do; nothing is touched.

        Raises:
            FlowError: The new version has a mistake.
        """
        loaded = self._loaded
        with visiting(asked.flow):
            try:
                flow = self._load(asked.flow)
                known = describe(flow)
                plan = running.plan_switch(flow, asked.request)
            finally:
                self._loaded = loaded
        return Planned(
            show.to_json(plan),
            show.table(plan),
            known.inboxes,
            known.binaries,
            known.spread,
            drawing(plan.new),
        )

    def begin(self, running: FlowRun, asked: Begin) -> SwitchProgress | None:
        """Begin a switch; return what to report if it is refused."""
        self._files[asked.version] = asked.flow
        self._binaries.update({name: Path(file) for name, file in asked.binaries.items()})
        try:
            flow = self._load(asked.flow)
            running.switch(flow, asked.version, asked.request)
        except MillstreamError as error:
            return SwitchProgress(asked.version, ended="refused", why=error.message)
        self._asked = asked.version
        if asked.request.shadow:
            self._shadow = Compares(running)
        else:
            _declare(running, flow)
        return None

    def share(self, running: FlowRun, asked: Share) -> SwitchProgress:
        """Give the new version another share; return how the switch goes then.

        Raises:
            SwitchRefused: No keys are shared out, or it is the share that the version has.
        """
        running.share(asked.request)
        self._reported = self._progress(running)
        assert self._reported is not None
        return self._reported

    def recovered(self, running: FlowRun) -> RecoveredState:
        """Return which version runs, and which one it is switched to, by the record."""
        progress = running.switching()
        self._asked = None if progress is None else progress.version
        return RecoveredState(running.version, self._asked)

    def news(self, running: FlowRun) -> SwitchProgress | None:
        """Return how the switch goes, if that has changed; None if there is none."""
        if self._asked is None:
            return None
        progress = self._progress(running) or self._ended(running)
        if progress.ended is not None:
            self._asked = self._shadow = None
        elif progress == self._reported:
            return None
        self._reported = progress
        return progress

    def _progress(self, running: FlowRun) -> SwitchProgress | None:
        progress = running.switching()
        if progress is None:
            return None
        left = None if progress.left_s is None else round(progress.left_s, 1)
        shadow = None if self._shadow is None else self._shadow.so_far()
        return replace(progress, left_s=left, shadow=shadow)

    def _ended(self, running: FlowRun) -> SwitchProgress:
        assert self._asked is not None
        every = running.history()
        steps = tuple(step_of(one) for one in every if one.number == every[-1].number)
        if running.version == self._asked:
            return SwitchProgress(self._asked, "running", steps=steps, ended="done")
        why = next((one.text for one in reversed(steps) if one.phase == "aborting"), None)
        why = why if why is not None or self._shadow is not None else GIVEN_BACK
        found = None if self._shadow is None else running.comparison()
        whole = found is not None and found.since is not None and found.broken is None
        ended = "compared" if whole else "given up"
        return SwitchProgress(
            self._asked, "running", steps=steps, ended=ended, why=why, shadow=found
        )


class Compares:
    """How a version in the shadow compares, looked up once in a while."""

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
    """Make the journals of inboxes that a new version adds or widens, for its engine to open."""
    for name, stage in flow.stages.items():
        if not (isinstance(stage, Source) and stage.origin.intake):
            continue
        if running.flow.stages.get(name) != stage:
            ingest.declare(stage, running.folder / "journals" / name)
