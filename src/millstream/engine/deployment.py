"""Deploying: how a flow becomes a job.

    package ──▶ unpacked ──▶ a driver reads it ──▶ its journals are made ──▶ stored
                                                                             ├─ of several: DEPLOYED
                                                                             └─ alone: STARTING

What was done before a step that fails is undone.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.actions.scheme import described_in
from millstream.clock import Clock
from millstream.engine.driver.process import DriverProcess
from millstream.engine.driver.protocol import Declare, Declared, Describe, Described
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.job_runner import JobRunner
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs import package as packages
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import Job, JobState
from millstream.engine.jobs.spread import SpreadSource
from millstream.engine.jobs.status import Peer, Places, Prepared
from millstream.engine.jobs.store import (
    JOURNALS,
    MOST_UNREAD,
    JobSettings,
    Packed,
    Store,
    Stored,
    Version,
    current_of,
)
from millstream.engine.jobs.switch_record import first_version
from millstream.engine.leases.coordination import TakenJob
from millstream.engine.managed_job import ManagedJob
from millstream.engine.programs.binaries import Binaries
from millstream.errors import InvalidOption, JobExists
from millstream.journal import journal_at, keep_journals
from millstream.journal.copies import written_here
from millstream.storage import Folder

#: How long a driver may take to read a flow.
_DESCRIBE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A flow that is being deployed: its driver has read it."""

    driver: DriverProcess
    described: Described
    settings: JobSettings
    package: bytes


class Deployments:
    """Takes the flows that arrive at an engine. Any thread may call."""

    def __init__(
        self,
        folders: Folders,
        store: Store,
        inboxes: Inboxes,
        binaries: Binaries,
        runner: JobRunner,
        clock: Clock,
    ) -> None:
        self._folders, self._store, self._inboxes = folders, store, inboxes
        self._binaries, self._runner, self._clock = binaries, runner, clock
        self._names: set[str] = set()
        self._guard = threading.Lock()

    def deploy(
        self, package: bytes, name: str | None, root: str | None, options: Mapping[str, Any]
    ) -> ManagedJob:
        """Take a flow and begin it, in one step: a job of one engine is never half deployed."""
        with self._arriving(package, name, root, options) as arrival, self._opened(arrival):
            return self._add(arrival, life.advance(self._new(arrival), life.Deployed(), self._now))

    def check_shared(
        self, package: bytes, name: str | None, root: str | None, options: Mapping[str, Any]
    ) -> str:
        """Check that any engine can run a flow, make its journals, and return its name.

        Raises:
            InvalidOption: Something of it would be on one engine alone.
        """
        with contextlib.ExitStack() as undone:
            arriving = self._arriving(package, name, root, options, anywhere=True, to_run=False)
            with arriving as arrival:
                folder = self._folders.package(arrival.settings)
                undone.callback(shutil.rmtree, folder, ignore_errors=True)
                undone.callback(arrival.driver.kill)
            return arrival.described.name

    def adopt(self, taken: TakenJob) -> ManagedJob:
        """Run a job that other engines know too, and that this one has claimed.

        It has the versions that the engine before has left, and is in the middle of a switch if it
        was there.
        """
        shared, root = taken.deployment, self._root(taken)
        runs = current_of(one for one, _ in taken.versions)
        found = next((one for one in taken.versions if one[0].number == runs), None)
        package, folder = (
            (taken.package, None) if found is None else (found[1], found[0].settings.package)
        )
        arriving = self._arriving(
            package, shared.name, root, shared.options, anywhere=True, folder=folder
        )
        with arriving as arrived, self._opened(arrived):
            settings = msgspec.structs.replace(arrived.settings, shared=True)
            arrival = replace(arrived, settings=settings)
            versions = [
                (_here(one, settings, runs=one.number == runs), package)
                for one, package in taken.versions
            ]
            step = life.advance(self._new(arrival), life.Deployed(), self._now)
            return self._add(arrival, step, taken, versions)

    def _root(self, taken: TakenJob) -> str | None:
        """Return what the paths of all versions of a job count from: what those of the first do."""
        given = taken.deployment.root
        if not taken.versions or (given is not None and Path(given).is_dir()):
            return given
        first, package = taken.versions[0]
        folder = self._folders.package(first.settings)
        if not folder.is_dir():
            packages.unpack(package, folder)
        return str(folder)

    def prepare(
        self,
        package: bytes,
        name: str | None,
        root: str | None,
        options: Mapping[str, Any],
        binaries: Mapping[str, str] | None,
    ) -> Prepared:
        """Take a flow, and return where its partitions that live here will be; nothing runs yet."""
        _check_copied(JOURNALS in options)
        arriving = self._arriving(package, name, root, options, binaries, several=True)
        with arriving as arrival:
            home = self._folders.flow(arrival.described.name) / "journals"
            _check_copied(
                any(journal_at(home / one).everywhere for one in arrival.settings.inboxes)
            )
            managed = self._add(arrival, (self._new(arrival), []))
        place, here, settings = self._inboxes.place, self._inboxes.here, arrival.settings
        addresses = {one: dict.fromkeys(here(n), place) for one, n in settings.inboxes.items()}
        return Prepared(managed.stored.id, managed.name, addresses, settings.binaries)

    def begin(
        self, managed: ManagedJob, places: Places, *, driver: bool, engines: Sequence[Peer]
    ) -> None:
        """Begin a prepared job, whose inboxes are at `places`."""
        lists = {source: list(partitions) for source, partitions in places.items()}
        settings = managed.stored.settings
        alone = {name for name in settings.spread if name not in places}
        settings = msgspec.structs.replace(
            settings,
            places=lists,
            engines=list(engines),
            inboxes={name: n for name, n in settings.inboxes.items() if name not in alone},
            spread={name: one for name, one in settings.spread.items() if name not in alone},
        )

        def begin() -> None:
            if managed.job.state is JobState.DEPLOYED:
                self._store.update(managed.stored.id, managed.job, settings=settings)
                managed.stored = msgspec.structs.replace(managed.stored, settings=settings)
            self._runner.apply(managed, life.Deployed(driver))
            if not driver:  # it has read the flow, which another engine will run
                self._runner.orders.kill_driver(managed)

        self._runner.call(begin)

    @contextlib.contextmanager
    def _opened(self, arrival: _Arrival) -> Iterator[None]:
        """Open the inboxes of a job to be; close them if it does not come to that."""
        name = arrival.described.name
        self._inboxes.open(name, self._folders.flow(name), {}, partitions=arrival.settings.inboxes)
        try:
            yield
        except BaseException:
            self._inboxes.close_job(name)
            raise

    @contextlib.contextmanager
    def _arriving(
        self,
        package: bytes,
        name: str | None,
        root: str | None,
        options: Mapping[str, Any],
        binaries: Mapping[str, str] | None = None,
        *,
        several: bool = False,
        anywhere: bool = False,
        folder: str | None = None,
        to_run: bool = True,
    ) -> Iterator[_Arrival]:
        """Unpack a flow, have a driver read it and make its journals; undo that if it fails.

        For `several` engines, which share the sources that may be spread; to a `folder` of packages
        that is known already, if it has one. If the driver is not `to_run` it, it has no Spark.
        """
        _check(options)
        place = self._folders.packages / (folder or uuid.uuid4().hex)
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            flow = packages.unpack(package, place)
            # Of several engines one runs it.
            spark = not several and not described_in(flow)
            start = partial(self._runner.drivers.start, to_run=to_run, spark=spark)
            driver = self._runner.call(start)
            stack.callback(driver.kill)
            described = driver.ask(Describe(str(flow), name), Described, _DESCRIBE_S)
            if anywhere:
                check_anywhere(described, options)
            pinned = self._binaries.pinned(described.binaries, binaries)
            with self._reserved(described.name):
                home = self._folders.flow(described.name)
                if options.get(JOURNALS) is not None:
                    keep_journals(home / "journals", options[JOURNALS], described.name)
                spread = self._spread(described, home) if several else {}
                driver.ask(Declare(str(home), tuple(spread)), Declared, _DESCRIBE_S)
                partitions = {name: one.partitions for name, one in spread.items()}
                settings = JobSettings(
                    flow=flow.name,
                    package=place.name,
                    root=root,
                    options=dict(options),
                    inboxes=described.inboxes | partitions,
                    spread=spread,
                    binaries=pinned,
                )
                yield _Arrival(driver, described, settings, package)
            stack.pop_all()

    def _spread(self, described: Described, home: Path) -> dict[str, SpreadSource]:
        """Return the sources that engines share: not those whose driver has read them here."""
        found = {}
        for name, one in described.spread.items():
            folder, here = home / "journals" / name, self._inboxes.here(one.partitions)
            others = [number for number in range(one.partitions) if number not in here]
            if not journal_at(folder).everywhere and not written_here(folder, others):
                found[name] = one
        return found

    @contextlib.contextmanager
    def _reserved(self, name: str) -> Iterator[None]:
        """Keep a name for a job that is being deployed."""
        with self._guard:
            there = self._runner.jobs.get(name)
            if there is not None or name in self._names:
                state = (
                    "being deployed" if there is None else f"{there.job.state}, {there.stored.id}"
                )
                hint = (
                    f"millstream switch {name} FLOW replaces the running version; "
                    "or deploy under another name: --name"
                )
                raise JobExists(f'job "{name}" is deployed already ({state})', hint=hint)
            self._names.add(name)
        try:
            yield
        finally:
            self._names.discard(name)

    def _new(self, arrival: _Arrival) -> Job:
        return Job(arrival.described.name, since=self._now, hosted=arrival.described.hosted)

    def _add(
        self,
        arrival: _Arrival,
        step: life.Step,
        taken: TakenJob | None = None,
        versions: Packed = (),
    ) -> ManagedJob:
        """Store a new job as it is after its first step, then carry out the orders of that."""
        name, now = arrival.described.name, self._now
        if taken is None:
            (its_id, number), first = self._store.next_id(name), self._first(name)
        else:
            shared, first = taken.deployment, taken.first
            its_id, number, now = shared.id, shared.number, shared.deployed_at
        job, orders = step
        stored = Stored(
            id=its_id, name=name, number=number, deployed_at=now, settings=arrival.settings, job=job
        )

        def add() -> ManagedJob:
            for sha256 in arrival.settings.binaries.values():
                self._binaries.contents.status(sha256)  # nobody has removed it meanwhile
            only = Version(number=first, added_at=now, current_at=now, settings=arrival.settings)
            known = versions or [(only, arrival.package)]
            return self._runner.add(stored, known, arrival.driver, orders)

        return self._runner.call(add)

    def _first(self, name: str) -> int:
        record = Folder(self._folders.flow(name) / "switch").read("record")
        return first_version(record)

    @property
    def _now(self) -> float:
        return self._clock.now_us() / 1e6


def _here(version: Version, settings: JobSettings, *, runs: bool) -> Version:
    """Return a version that was another engine's, on this one; that which `runs` has settings."""
    own = msgspec.structs.replace(version.settings, root=settings.root, shared=True)
    return msgspec.structs.replace(version, settings=settings if runs else own)


def check_anywhere(described: Described, options: Mapping[str, Any]) -> None:
    """Refuse a job of which something would be on one engine alone.

    Files of a journal would be, in whatever folder: an engine that sleeps keeps its locks on them,
    and no other could go on.

    Raises:
        InvalidOption: Something would.
    """
    if described.unplaced and JOURNALS not in options:
        names = ", ".join(f'"{name}"' for name in described.unplaced)
        msg = f"engines that may all run a job keep its journals in Kafka, and {names} would not be"
        hint = "deploy with --journals kafka://host:9092, or give each journal an address"
        raise InvalidOption(msg, hint=hint)
    if described.hosted or described.binaries:
        msg = "a job with a scheme, or with programs that one engine keeps, runs on that engine"
        raise InvalidOption(msg, hint="deploy it on an engine without --coordination")


def _check_copied(in_kafka: bool) -> None:
    """Refuse what engines do not copy from each other: by that they know which partition is idle."""
    if in_kafka:
        msg = "a job on several engines keeps the journals of its sources in files"
        raise InvalidOption(msg, hint="leave them there, or deploy on one engine")


def _check(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        rows = name in ("rows_per_batch", MOST_UNREAD) and type(value) is int and value > 0
        kept = name == JOURNALS and isinstance(value, str)
        if not rows and not kept and not (name == "state" and value in (None, "memory", "rocksdb")):
            hint = (
                'options are "rows_per_batch" and "most_unread", numbers, "state": "memory" or'
                ' "rocksdb", and "journals": "kafka://host:9092"'
            )
            raise InvalidOption(f'a job cannot have the option "{name}": {value!r}', hint=hint)
