"""The switches of an engine's jobs: checked and begun here, carried out by drivers, written down.

asked ──▶ unpack ──▶ the driver plans ──▶ written down ──▶ the driver begins ──▶ its reports ──▶ written down
                          │ impossible, a mistake: nothing was touched                 │
                          ▼                                                            ▼ done
                        refused                                        inboxes that are gone are closed; probation
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from millstream.actions.scheme import described_in
from millstream.clock import iso
from millstream.engine.driver.protocol import AbortSwitch, KeysShared, SwitchPlanned
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.jobs import package as packages
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import Happening, SwitchStatus, VersionStatus
from millstream.engine.jobs.store import JobSettings, Noted, Store, Version
from millstream.engine.jobs.switch_record import (
    Begin,
    Compare,
    Planned,
    RecoveredState,
    Share,
    Switch,
    SwitchState,
    apply_report,
    reconcile,
)
from millstream.engine.probation_watch import ProbationWatch
from millstream.engine.programs.binaries import Binaries
from millstream.engine.version_sharing import VersionSharing
from millstream.errors import (
    EngineError,
    InvalidTransition,
    MillstreamError,
    StoreBroken,
    SwitchImpossible,
    SwitchRefused,
)
from millstream.switch.comparison import Comparison
from millstream.switch.cut import WHOLE, percent
from millstream.switch.probation import Trial
from millstream.switch.progress import SwitchProgress
from millstream.switch.request import SwitchRequest

if TYPE_CHECKING:
    from millstream.engine.driver.process import DriverProcess
    from millstream.engine.job_runner import JobRunner
    from millstream.engine.jobs.folders import Folders
    from millstream.engine.managed_job import ManagedJob

_log = logging.getLogger(__name__)
#: How long a driver may take to plan a switch: it asks Spark, between two polls.
PLAN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _New:
    """A version that has arrived."""

    package: bytes
    folder: Path
    flow: Path
    back_to: int | None


class Switches:
    """An engine's switches.

    `plan`, `begin` and `abort` are for any thread, the rest for the runner's.
    """

    def __init__(
        self,
        folders: Folders,
        store: Store,
        inboxes: Inboxes,
        binaries: Binaries,
        runner: JobRunner,
        now: Callable[[], float],
        sharing: VersionSharing,
    ) -> None:
        self._folders, self._store, self._inboxes, self._binaries = (
            folders,
            store,
            inboxes,
            binaries,
        )
        self._runner, self._now, self._sharing = runner, now, sharing
        self._one = threading.Lock()
        self._unsaved: dict[tuple[str, int], tuple[Version, list[Noted]]] = {}
        self._probations = ProbationWatch(now, self._end_trial, self._go_back)

    # asking

    def plan(self, managed: ManagedJob, request: SwitchRequest) -> Planned:
        """Return what a switch would do; nothing is touched.

        Raises:
            FlowError: The new version has a mistake.
            InvalidTransition: The job does not run.
            SwitchRefused: It would be another share of a switch that goes on, of which everything
                is known.
        """
        if request.package is None and (request.share is not None or _shares(managed)):
            msg = "another share has no plan: it is one more cut of the running switch"
            raise SwitchRefused(msg)
        with self._one, _arrived(self._folders, self._store, managed, request) as new:
            try:
                return self._planned(managed, request, new)
            finally:
                shutil.rmtree(new.folder, ignore_errors=True)

    def begin(self, managed: ManagedJob, request: SwitchRequest) -> None:
        """Begin a switch; the driver's reports tell how it goes.

        Raises:
            FlowError: The new version has a mistake.
            SwitchImpossible: It cannot replace the running version.
            SwitchRefused: A switch is going on, there is nothing to switch, or no version to go
                back to.
            InvalidTransition: The job does not run.
        """
        if request.package is None and (request.share is not None or _shares(managed)):
            with self._one:
                self._share(managed, request)
            return
        with self._one, _arrived(self._folders, self._store, managed, request) as new:
            _check_idle(managed)
            planned = self._planned(managed, request, new)
            _check_plan(managed, planned)
            settings = _settings(self._folders, self._binaries, managed, new, planned)
            version, driver = self._runner.call(lambda: self._add(managed, request, new, settings))
            begin = _begin(version, new, request, self._binaries)
            self._share_out(managed, version, new.package)
            self._runner.call(lambda: _send(managed, version, driver, begin))

    def _share_out(self, managed: ManagedJob, version: Version, package: bytes) -> None:
        """Let engines know a version that they may have to go on with; if they cannot, refuse it."""
        try:
            self._sharing.add(managed, version, package)
        except MillstreamError as error:
            refused = SwitchProgress(str(version.number), ended="refused", why=error.message)
            self._runner.call(lambda: self.reported(managed, refused))
            raise

    def _share(self, managed: ManagedJob, request: SwitchRequest) -> None:
        """Give the new version another share, or nothing."""
        switch = managed.switch
        if switch is None or not _shares(managed):
            hint = f"millstream switch {managed.name} FLOW --share 10% begins with that"
            raise SwitchRefused(f'no keys of job "{managed.name}" are shared out', hint=hint)
        if switch.cut_us is None and request.share is None:
            self.abort(managed)
            return
        progress = managed.present_driver.ask(Share(request), KeysShared, PLAN_S).switch
        self._runner.call(lambda: self.reported(managed, progress))

    def abort(self, managed: ManagedJob) -> None:
        """Have the driver abort a switch, or another share, which it does until the cut.

        Raises:
            SwitchRefused: There is none, or it is past its cut.
        """
        switch = managed.switch
        if switch is None or switch.over:
            raise SwitchRefused(f'no switch of job "{managed.name}" is going on')
        if switch.cut_us is not None and switch.share == switch.wanted:
            wait = "" if switch.phase == "sharing" else "wait until it is done, then "
            hint = f"{wait}go back: millstream switch {managed.name} --back"
            raise SwitchRefused(f'the switch of job "{managed.name}" is past its cut', hint=hint)
        if managed.driver is not None:
            managed.driver.send(AbortSwitch())

    def end_when_quiet(self, managed: ManagedJob) -> None:
        """Let a switch that goes on end without events, once its sources are idle.

        Raises:
            SwitchRefused: There is none.
        """
        self._runner.call(lambda: self._end_when_quiet(managed))

    def _end_when_quiet(self, managed: ManagedJob) -> None:
        switch = managed.switch
        if switch is None or switch.over:
            raise SwitchRefused(f'no switch of job "{managed.name}" is going on')
        version = managed.versions[switch.version]
        version = replace(version, switch=replace(switch, until_quiet=True))
        managed.versions[version.number] = version
        text = "the overlap ends when the sources are quiet"
        self._save(managed, version, [Noted(self._now(), f"switch {switch.phase}", text)])

    def _planned(self, managed: ManagedJob, request: SwitchRequest, new: _New) -> Planned:
        compare = Compare(str(new.flow), _unpacked(request))
        planned = managed.present_driver.ask(compare, SwitchPlanned, PLAN_S).plan
        found = _with_notes(managed, request, planned)
        managed.planned = self._now(), found
        return found

    def _add(
        self, managed: ManagedJob, request: SwitchRequest, new: _New, settings: JobSettings
    ) -> tuple[Version, DriverProcess]:
        _check_idle(managed)
        driver, now, number = managed.present_driver, self._now(), managed.next_version
        switch = Switch(
            version=number,
            previous=managed.current,
            asked_at=now,
            back_to=new.back_to,
            consent=request.consent,
            timeout_s=request.timeout.total_seconds(),
            trial=request.trial,
            shadow=Comparison() if request.shadow else None,
            since=request.since,
            share=0 if request.share not in (None, WHOLE) else None,
            wanted=request.share if request.share != WHOLE else None,
            until_quiet=request.until_quiet,
        )
        version = Version(number=number, added_at=now, settings=settings, switch=switch)
        text = f"from version {managed.current} to {number}" + (
            f", back to {new.back_to}" if new.back_to else ""
        )
        text += ", in the shadow" if request.shadow else ""
        text += "" if request.share is None else f", with {percent(request.share)} of the keys"
        self._store.add_version(
            managed.stored.id, version, new.package, Noted(now, "switch asked", text)
        )
        kept = {known: one for known, one in managed.versions.items() if known < number}
        managed.versions = {**kept, number: version}
        return version, driver

    # what drivers report

    def reported(self, managed: ManagedJob, progress: SwitchProgress) -> None:
        """Note how a switch goes, by its driver's report."""
        version = (
            managed.versions.get(int(progress.version)) if progress.version.isdigit() else None
        )
        if version is not None and version.switch is not None:
            self._became(managed, version, apply_report(version.switch, progress, self._now()))

    def recovered(self, managed: ManagedJob, state: RecoveredState) -> None:
        """Note how the record stands, by a driver that has come up."""
        for version in list(managed.versions.values()):
            if version.switch is not None:
                self._became(managed, version, reconcile(version.switch, state, self._now()))
        switch = managed.switch
        if switch is not None and switch.state is SwitchState.GOING_ON:
            # On this engine its inboxes may be new: the driver has made their journals.
            self._inboxes.extend(
                managed.name,
                self._folders.flow(managed.name),
                managed.versions[switch.version].settings.inboxes,
            )

    def _became(self, managed: ManagedJob, version: Version, switch: Switch) -> None:
        before = version.switch
        assert before is not None
        if switch == before:
            return
        done = switch.state is SwitchState.DONE
        version = replace(
            version, switch=switch, current_at=switch.ended_at if done else version.current_at
        )
        managed.versions[version.number] = version
        if (switch.state, switch.steps, switch.trial) != (before.state, before.steps, before.trial):
            self._save(managed, version, list(_notes(before, switch)))
        if switch.state is not before.state:
            self._turned(managed, version)

    def _turned(self, managed: ManagedJob, version: Version) -> None:
        """Do what is due when a switch begins and when it ends."""
        switch = version.switch
        assert switch is not None
        match switch.state:
            case SwitchState.GOING_ON:
                self._inboxes.extend(
                    managed.name, self._folders.flow(managed.name), version.settings.inboxes
                )
            case SwitchState.DONE:
                managed.stored = replace(managed.stored, settings=version.settings)
                self._inboxes.extend(
                    managed.name, self._folders.flow(managed.name), version.settings.inboxes
                )
                self._inboxes.reduce(managed.name, version.settings.inboxes)
                self._sweep(managed)
                if not version.settings.places:
                    self._inboxes.grow(
                        managed.name, self._folders.flow(managed.name), version.settings.inboxes
                    )
            case SwitchState.ABORTED | SwitchState.REFUSED | SwitchState.COMPARED:
                self._inboxes.reduce(managed.name, managed.stored.settings.inboxes)
                shutil.rmtree(self._folders.package(version.settings), ignore_errors=True)

    def _sweep(self, managed: ManagedJob) -> None:
        """Remove what was unpacked of versions that no driver will need.

        The store keeps their packages.
        """
        root = managed.stored.settings.root
        for version in managed.versions.values():
            folder = self._folders.package(version.settings)
            if version.number not in managed.needed and str(folder) != root:
                shutil.rmtree(folder, ignore_errors=True)

    def _save(self, managed: ManagedJob, version: Version, noted: list[Noted]) -> None:
        key = (managed.stored.id, version.number)
        noted = [*self._unsaved.pop(key, (version, []))[1], *noted]
        try:
            self._store.update_version(managed.stored.id, version, noted)
        except StoreBroken as error:
            _log.error("job %s: %s", managed.name, error)
            self._unsaved[key] = version, noted
        self._sharing.changed(managed)

    # from time to time

    def tick(self, managed: ManagedJob) -> None:
        """Write down what could not be, and look after a version on probation."""
        for version in list(managed.versions.values()):
            if (managed.stored.id, version.number) in self._unsaved:
                self._save(managed, version, [])
        switch = managed.switch
        if switch is not None and switch.until_quiet and not switch.over:
            self._inboxes.lift(managed.name, switch.needs)
        self._probations.tick(managed)

    def _go_back(self, managed: ManagedJob) -> None:
        """Go back, in a thread: planning takes longer than the runner may wait."""

        def begin() -> None:
            try:
                self.begin(managed, SwitchRequest())
            except MillstreamError as error:
                _log.error(
                    "job %s could not go back to the version before: %s", managed.name, error
                )
                text = f"the version before could not come back: {error}"
                with _logged():
                    self._store.note(managed.stored.id, Noted(self._now(), "switch refused", text))

        threading.Thread(target=begin, name=f"back {managed.name}", daemon=True).start()

    def _end_trial(self, managed: ManagedJob, trial: Trial, text: str) -> None:
        version = managed.versions[managed.current]
        assert version.switch is not None
        version = replace(version, switch=replace(version.switch, trial=trial))
        managed.versions[version.number] = version
        self._save(managed, version, [Noted(self._now(), "probation", text)])


@contextmanager
def _arrived(
    folders: Folders, store: Store, managed: ManagedJob, request: SwitchRequest
) -> Iterator[_New]:
    """Unpack the new version; take that back if something is raised."""
    if not managed.job.driver:
        fact = f'job "{managed.name}" has its driver on another engine, which does its switches'
        raise InvalidTransition(fact, hint="ask that one: it is the first of the job's engines")
    if managed.job.state is not JobState.RUNNING:
        hint = f"see millstream status {managed.name}; resume a job that is drained or has failed first"
        msg = f'job "{managed.name}" is {managed.job.state}, and only one that runs can be switched'
        raise InvalidTransition(msg, hint=hint)
    now = managed.stored.settings
    if described_in(folders.package(now) / now.flow):
        hint = f"drain {managed.name}, undeploy it, and deploy the new one"
        msg = f'job "{managed.name}" is a scheme of runtimes, and only flows can be switched'
        raise SwitchRefused(msg, hint=hint)
    back_to = None if request.package is not None else managed.before
    package = request.package if back_to is None else store.package(managed.stored.id, back_to)
    if package is None:
        msg = f'job "{managed.name}" has no version before {managed.current} to go back to'
        raise SwitchRefused(msg)
    folder = folders.packages / uuid.uuid4().hex
    try:
        yield _New(package, folder, packages.unpack(package, folder), back_to)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _with_notes(managed: ManagedJob, request: SwitchRequest, planned: Planned) -> Planned:
    root = managed.stored.settings.root
    if request.root is None or root is None or request.root == root:
        return planned
    note = f"paths in the flow still start from {root}, which the job was deployed from"
    plan = {**planned.plan, "notes": [*planned.plan["notes"], note]}
    return replace(planned, plan=plan, text=f"{planned.text}\n{note}")


def _settings(
    folders: Folders, binaries: Binaries, managed: ManagedJob, new: _New, planned: Planned
) -> JobSettings:
    """Return the settings of a new version.

    Raises:
        SwitchImpossible: It has other inboxes than it may, or another program of the same name.
    """
    now = managed.stored.settings
    inboxes = _inboxes(managed, planned)
    # A version that comes back has the programs that it had.
    known = {} if new.back_to is None else managed.versions[new.back_to].settings.binaries
    pinned = binaries.pinned(planned.binaries, known)
    for name, sha256 in pinned.items():
        if now.binaries.get(name, sha256) != sha256:
            raise SwitchImpossible(
                f'the new version runs "{name}", which is another program now than when the job was deployed',
                hint=f"name its version in the flow: {name.partition('@')[0]}@N",
            )
    # What paths count from stays: where the first version was deployed from, or unpacked.
    root = str(folders.root(now))
    return replace(
        now,
        flow=new.flow.name,
        package=new.folder.name,
        root=root,
        inboxes=inboxes,
        binaries=pinned,
    )


def _begin(version: Version, new: _New, request: SwitchRequest, binaries: Binaries) -> Begin:
    """Return the command that begins a switch."""
    programs = version.settings.binaries.items()
    return Begin(
        version=str(version.number),
        flow=str(new.flow),
        request=_unpacked(request),
        binaries={name: str(binaries.path(sha256)) for name, sha256 in programs},
    )


def _send(managed: ManagedJob, version: Version, driver: DriverProcess, begin: Begin) -> None:
    """Let a driver begin a switch; a driver that came up since finds that it was never begun."""
    switch = managed.versions[version.number].switch
    if managed.driver is driver and switch is not None and not switch.over:
        driver.send(begin)


@contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        _log.error("%s", error)


def _unpacked(request: SwitchRequest) -> SwitchRequest:
    """Return a request without the package, for a driver that gets the flow."""
    return replace(request, package=None, root=None)


def _shares(managed: ManagedJob) -> bool:
    """Tell whether a switch goes on that shares out the keys."""
    switch = managed.switch
    return switch is not None and not switch.over and switch.share is not None


def check_undivided(managed: ManagedJob) -> None:
    """Refuse to end a job whose keys two versions share: neither would know that it is the last.

    Raises:
        SwitchRefused: They do.
    """
    switch = managed.switch
    if switch is not None and _shares(managed):
        hint = f"end that first: millstream switch {managed.name} --share 100%, or --back; drain without --flush goes too"
        msg = f'versions {switch.previous} and {switch.version} of "{managed.name}" share its keys'
        raise SwitchRefused(msg, hint=hint)


def _check_idle(managed: ManagedJob) -> None:
    switch = managed.switch
    if switch is not None and not switch.over:
        told = f"from version {switch.previous} to {switch.version}, which is {switch.phase}"
        hint = f"wait until it is done, or abort it: millstream switch {managed.name} --abort"
        if switch.phase == "sharing":
            hint = f"end it first: millstream switch {managed.name} --share 100%, or --back"
        raise SwitchRefused(f'a switch of job "{managed.name}" is going on {told}', hint=hint)


def _check_plan(managed: ManagedJob, planned: Planned) -> None:
    obstacles = planned.plan["obstacles"]
    if obstacles:
        more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
        fact, hint = obstacles[0]["fact"], obstacles[0]["hint"]
        raise SwitchImpossible(f'job "{managed.name}" cannot be switched: {fact}{more}', hint=hint)
    if not planned.plan["units"] and not planned.plan["grown"]:
        msg = f'the new version of job "{managed.name}" means the same as the running one'
        raise SwitchRefused(msg, hint="there is nothing to switch")


def _notes(before: Switch, now: Switch) -> Iterator[Noted]:
    """Yield what has happened to a switch since it was written down."""
    for step in now.steps[len(before.steps) :]:
        yield Noted(step.at, f"switch {step.phase}", step.text)
    if now.state is not before.state and now.ended_at is not None:
        yield Noted(now.ended_at, f"switch {now.state}", now.why or f"version {now.version}")


# what is answered


def switch_status(switch: Switch | None) -> SwitchStatus | None:
    """Return a switch as it is answered."""
    if switch is None:
        return None
    return SwitchStatus(
        version=str(switch.version),
        previous=str(switch.previous),
        state=switch.state,
        phase=switch.phase,
        why=switch.why,
        asked_at=iso(switch.asked_at),
        ended_at=None if switch.ended_at is None else iso(switch.ended_at),
        cut=None if switch.cut_us is None else iso(switch.cut_us / 1e6),
        left_s=None if switch.over else switch.left_s,
        steps=tuple(Happening(iso(one.at), one.phase, one.text) for one in switch.steps),
        probation=_probation(switch),
        shadow=switch.shadow,
        share=None if switch.share is None else switch.share / WHOLE,
        wanted=None if switch.wanted is None else switch.wanted / WHOLE,
        waits=None if switch.over else switch.waits,
        until_quiet=switch.until_quiet,
    )


def _probation(switch: Switch) -> str | None:
    trial = switch.trial
    if trial is None or switch.state is not SwitchState.DONE or switch.ended_at is None:
        return None
    return trial.ended or f"until {iso(switch.ended_at + trial.seconds)}"


def version_statuses(versions: Collection[Version], current: int) -> list[VersionStatus]:
    """Return the versions of a job as they are answered, oldest first."""
    return [
        VersionStatus(
            version=str(one.number),
            flow=one.settings.flow,
            added_at=iso(one.added_at),
            current_at=None if one.current_at is None else iso(one.current_at),
            running=one.number == current,
            back_to=None
            if one.switch is None or one.switch.back_to is None
            else str(one.switch.back_to),
            switch=switch_status(one.switch),
        )
        for one in versions
    ]


def _inboxes(managed: ManagedJob, planned: Planned) -> dict[str, int]:
    """Return the partitions of a new version's inboxes, and of sources that the engines read.

    Raises:
        SwitchImpossible: They are others, and the job runs on several engines.
    """
    now = managed.stored.settings
    if now.spread != {name: planned.spread.get(name) for name in now.spread}:
        msg = (
            f'the new version of job "{managed.name}" has other sources, which several engines read'
        )
        hint = "keep them as they are, or drain the job and deploy the new version"
        raise SwitchImpossible(msg, hint=hint)
    inboxes = planned.inboxes | {name: one.partitions for name, one in now.spread.items()}
    if now.places and inboxes != now.inboxes:
        msg = f'the new version of job "{managed.name}" has other inboxes, and the job runs on several engines'
        hint = "keep the inboxes as they are, or drain the job and deploy the new version"
        raise SwitchImpossible(msg, hint=hint)
    return inboxes
