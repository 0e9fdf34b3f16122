"""An engine in memory, a peer of the real one without drivers: jobs live by the rules, inboxes and journals are real."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from millstream.clock import SystemClock
from millstream.connectors.console import console
from millstream.connectors.inbox import inbox
from millstream.engine.job_queries import journal_of
from millstream.engine.jobs import lifecycle as life
from millstream.engine.jobs.checkpoint_status import (
    CheckpointStatus,
    PublishedStatus,
    StateFilesStatus,
    VerifiedCheckpoint,
)
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import Job, JobState
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import (
    CopyStatus,
    GroupStatus,
    Happening,
    InboxStatus,
    JobStatus,
    Peer,
    Place,
    Prepared,
    SourceStatus,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary, JobSettings, Store, Version
from millstream.engine.jobs.switch_record import Planned, Switch, SwitchState, apply_report
from millstream.engine.leases.tasks import Tasks
from millstream.engine.programs.binaries import Binaries
from millstream.engine.schemes.guests import GuestOrder, GuestStatus
from millstream.engine.switch_service import switch_status, version_statuses
from millstream.errors import (
    InvalidName,
    InvalidTransition,
    JobExists,
    JobsRunning,
    NoSuchJob,
    NotThere,
    RequestRefused,
    SwitchImpossible,
    SwitchRefused,
)
from millstream.flow.flow import Flow
from millstream.journal import Journal
from millstream.journal.kinds.files.summary import Summary, summary
from millstream.links.host import Host, declared_inboxes
from millstream.links.inbox import Inbox
from millstream.links.network import Address
from millstream.plan.drawing import Drawing, drawing
from millstream.plan.groups import plan
from millstream.switch.comparison import Comparison
from millstream.switch.progress import SwitchProgress
from millstream.switch.request import SwitchRequest
from support.links import declare

MOMENT = "2026-01-01T12:00:00.000+00:00"


class PeerEngine:
    """Jobs, each with the source "s" of the tests of links; a package names what its job shall do."""

    def __init__(self, data: Path, *, node: int = 0, of: int = 1) -> None:
        self.data, self.node, self.of = data, node, of
        self.stopped = threading.Event()
        self._jobs: dict[str, Job] = {}
        self._numbers: dict[str, int] = {}
        self._versions: dict[str, list[Version]] = {}
        self._planned: dict[str, Planned] = {}
        #: Who plans switches, and what groups report, if a test decides that.
        self.planner: Callable[[SwitchRequest], Planned] | None = None
        self.groups = (GroupStatus("all", 3, 120, 12, 0.5, 1_767_268_800_000, 7, 0.25, 9),)
        self.wanted: SwitchRequest | None = None
        #: Its patterns, and what is wrong with its checkpoints.
        self.matching: list[PatternRuns] = []
        self.faults: tuple[str, ...] = ()
        #: Dead letters that wait, as jobs report them.
        self.waiting = 3
        #: Stages whose state cannot be read by key.
        self.windows: tuple[StageStatus, ...] = ()
        #: The job whose switch is to end when its sources are quiet.
        self.quiet: str | None = None
        #: What happens when a switch was asked for.
        self.after_switch: Callable[[str], None] = lambda name: None
        #: What is known of other engines, and what becomes of it when this one is drained.
        self.known: list[Tasks] = [Tasks("", False, ())]
        self._changed = threading.Condition()
        self.begun: dict[str, tuple[Mapping[str, Sequence[Place]], bool]] = {}
        #: What happens to a job when it has begun.
        self.after: Callable[[str], None] = lambda name: self.tell(name, life.DriverReady())
        declare(data, partitions=2)
        self._host = Host(data / "f", declared_inboxes(data / "f"))
        self._store = Store(data / "jobs.sqlite")
        self.binaries = Binaries(data / "actions", self._store, SystemClock())
        #: The programs that packages name, as the driver of a real engine finds out, and what jobs have of them.
        self.named: tuple[str, ...] = ()
        self.pinned: dict[str, dict[str, str]] = {}

    def close(self) -> None:
        self._store.close()
        self._host.close()

    @property
    def warm(self) -> int:
        return 0

    @property
    def address(self) -> Address:
        return replace(self._host.address, node=self.node)

    def inbox(self, partition: int) -> Inbox:
        return self._host.inbox("s", partition)

    # events

    def tell(self, name: str, event: life.Event) -> None:
        with self._changed:
            self._jobs[name], _ = life.advance(self._jobs[name], event, time.time())
            self._changed.notify_all()

    def tell_once(self, name: str, state: JobState, event: life.Event) -> None:
        """Tell something as soon as a job is in a state."""

        def told() -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs[name].state is state)
            self.tell(name, event)

        threading.Thread(target=told, daemon=True).start()

    def _job(self, job: str) -> Job:
        for name, found in self._jobs.items():
            if job in (name, self._id(name)):
                return found
        close = get_close_matches(job, self._jobs)
        hint = f'did you mean "{close[0]}"?' if close else "millstream jobs lists them"
        raise NoSuchJob(f'there is no job "{job}" here', hint=hint)

    def _id(self, name: str) -> str:
        return f"{name}-{self._numbers[name]}"

    # deploying

    def prepare(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Any = None,
        binaries: Mapping[str, str] | None = None,
    ) -> Prepared:
        name = name or "f"
        if package == b"bad":
            raise InvalidName(f'"{name}!" is not a name', hint="letters, digits and _")
        Flow(name)  # refuses what is no name, as the driver of a real engine does
        pinned = self.binaries.pinned(self.named, binaries)
        with self._changed:
            if name in self._jobs:
                raise JobExists(
                    f'job "{name}" is deployed already', hint=f"millstream switch {name} FLOW"
                )
            self._jobs[name] = Job(name)
            self._numbers[name] = self._numbers.get(name, 0) + 1
            settings = JobSettings(flow="f.py", package="")
            self._versions[name] = [
                Version(number=1, added_at=0.0, current_at=0.0, settings=settings)
            ]
            self.pinned[name] = pinned
        at = self.address
        here = {
            number: Place(at.ip, at.port, self.node, at.folder)
            for number in range(4)
            if number % self.of == self.node
        }
        return Prepared(self._id(name), name, {"s": here}, pinned)

    def host(self, job: str, node: str, order: GuestOrder) -> GuestStatus:
        self._job(job)
        if node != "filter":
            raise RequestRefused(f'"{node}" is no node that could run at "{order.address}"')
        return GuestStatus(4711, order.generation, answer=order.command or None)

    def begin(
        self,
        job: str,
        places: Mapping[str, Sequence[Place]],
        *,
        driver: bool,
        engines: Sequence[Peer] = (),
    ) -> JobStatus:
        name = self._job(job).name
        self.begun[name] = (places, driver)
        log = Folders(self.data).log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(f"{name} line {number}\n" for number in range(20)))
        self.tell(name, life.Deployed(driver))
        self.after(name)
        return self.status(name)

    def deploy(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Any = None,
    ) -> JobStatus:
        prepared = self.prepare(package, name=name, root=root, options=options)
        places = {source: list(found.values()) for source, found in prepared.addresses.items()}
        return self.begin(prepared.name, places, driver=True)

    # looking

    def states(self, job: str) -> list[StageStatus]:
        self._job(job)
        columns = {"k": "string", "n": "int64"}
        one = StageStatus(
            group="g", stage="counted", kind="fold", batch=7, bytes=9, keys=1, columns=columns
        )
        return [one, *self.windows]

    def state_rows(
        self, job: str, stage: str, *, key: str | None, at: int | None, limit: int
    ) -> StateRows:
        self._job(job)
        if stage not in ("counted", "g.counted"):
            raise NotThere(f'job "{job}" has no stage "{stage}" with state')
        rows = [{"k": "a", "n": 3}] if key in (None, "a") else []
        return StateRows(stage=stage, kind="fold", batch=7 if at is None else at, keys=1, rows=rows)

    @property
    def shares(self) -> bool:
        return bool(self.known[0].engine)

    def patterns(self, job: str) -> list[PatternRuns]:
        self._job(job)
        return self.matching

    def checkpoints(self, job: str) -> list[CheckpointStatus]:
        self._job(job)
        files = StateFilesStatus(stage="counted", kind="fold", version=8, files=3, bytes=900)
        one = CheckpointStatus(
            group="g",
            folder="g",
            checkpoint="c1",
            fingerprint="a" * 64,
            batch=7,
            logged=8,
            watermark_ms=1_767_268_800_000,
            inputs={"s": (3, 4)},
            published=(PublishedStatus(name="rows", kind="jsonl", epoch=7),),
            state=(files,),
            changes=("batch: 6 -> 7",),
        )
        return [one]

    def verify_checkpoint(self, job: str, group: str) -> VerifiedCheckpoint:
        self._job(job)
        if group != "g":
            raise NotThere(f'job "{job}" has no group "{group}"')
        return VerifiedCheckpoint(faults=self.faults, batches=8, files=3, outputs=1)

    def tasks(self) -> Tasks:
        return self.known.pop(0) if len(self.known) > 1 else self.known[0]

    def drain_tasks(self) -> Tasks:
        if not self.known[0].engine:
            raise InvalidTransition("this engine shares its jobs with no other")
        return self.tasks()

    def jobs(self) -> list[JobStatus]:
        return [self.status(name) for name in list(self._jobs)]

    def status(self, job: str) -> JobStatus:
        found = self._job(job)
        inboxes = [
            InboxStatus(
                "s",
                number,
                str(self.address),
                one.rows,
                one.repeated,
                one.refused,
                one.waiting,
                one.free,
            )
            for number, one in enumerate(self._host.statistics()["s"])
        ]
        return JobStatus(
            id=self._id(found.name),
            name=found.name,
            state=found.state,
            reason=found.reason,
            flush=found.flush,
            node=self.node,
            of=self.of,
            deployed_at=MOMENT,
            since=MOMENT,
            restarts=found.restarts,
            pid=4711 if found.state is JobState.RUNNING and found.driver else None,
            groups=self.groups if found.driver else (),
            sources={"s": SourceStatus(sum(one.rows for one in inboxes), bytes=10)},
            late=1,
            dead=2,
            waiting=self.waiting,
            unprocessed=7 if found.state in life.ALIVE else 0,
            inboxes=tuple(inboxes),
            copies=(CopyStatus("s", 9, "tcp://10.0.0.2:1", rows=4, behind_bytes=300, live=True),)
            if found.driver
            else (),
            version=str(self._running(found.name)),
            switch=switch_status(self._versions[found.name][-1].switch),
        )

    def wait(self, job: str, timeout: float | None = None) -> JobStatus:
        with self._changed:
            self._changed.wait_for(lambda: self._job(job).state in life.SETTLED, timeout)
        return self.status(job)

    def history(self, job: str) -> list[Happening]:
        return [Happening(MOMENT, "deployed", self._job(job).name)]

    def statistics(self, job: str) -> dict[str, Any]:
        return {"late": self.status(job).late}

    def graph(self, job: str) -> Drawing:
        self._job(job)
        flow = Flow("f")
        flow.source("s", inbox("k string, n long"), key="k")
        flow.stream("s").sink("all", console())
        return drawing(plan(flow))

    def published(self) -> dict[str, Sequence[str]]:
        return dict.fromkeys(list(self._jobs), ("all",))

    def journals(self, job: str) -> list[Summary]:
        self._job(job)
        return [summary(self.data / "f" / "journals" / "s")]

    def journal(self, job: str, name: str) -> Journal:
        self._job(job)
        return journal_of(self.data / "f", name)

    def log_file(self, job: str) -> Path:
        return Folders(self.data).log(self._job(job).name)

    def flow_folder(self, job: str) -> Path:
        self._job(job)
        return self.data / "f"

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        name = self._job(job).name
        self.tell(name, life.DrainAsked(flush))
        return self.status(name)

    def settled(self, job: str, state: JobState) -> JobStatus:
        name = self._job(job).name
        self.tell(name, life.Finished() if state is JobState.FINISHED else life.Drained())
        return self.status(name)

    def missed(self, job: str, peer: str) -> JobStatus:
        self.tell(self._job(job).name, life.PeerMissed(peer))
        return self.status(job)

    def resume(self, job: str) -> JobStatus:
        name = self._job(job).name
        self.tell(name, life.ResumeAsked())
        return self.status(name)

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        found = self._job(job)
        self.tell(
            found.name,
            life.UndeployAsked(
                force=force, purge=purge, unprocessed=self.status(found.name).unprocessed
            ),
        )
        status = self.status(found.name)
        del self._jobs[found.name], self.pinned[found.name]
        return status

    # programs

    def users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, pinned in self.pinned.items():
            for sha256 in set(pinned.values()):
                found.setdefault(sha256, []).append(name)
        return found

    def remove_binary(self, name: str, version: int | None) -> list[Binary]:
        return self.binaries.remove(name, version, self.users)

    def drop_content(self, sha256: str) -> None:
        self.binaries.drop(sha256, self.users)

    # switching

    def reported(self, name: str, progress: SwitchProgress) -> None:
        """Let the driver of a job report how its switch goes."""
        with self._changed:
            versions = self._versions[name]
            before = versions[-1].switch
            assert before is not None
            switch = apply_report(before, progress, 1_767_268_860.0)
            done = switch.state is SwitchState.DONE
            versions[-1] = msgspec.structs.replace(
                versions[-1], switch=switch, current_at=60.0 if done else None
            )
            self._changed.notify_all()

    def _running(self, name: str) -> int:
        return max(one.number for one in self._versions[name] if one.current_at is not None)

    def plan_switch(self, job: str, request: SwitchRequest) -> Planned:
        name = self._job(job).name
        if self.planner is not None:
            self._planned[name] = self.planner(request)
            return self._planned[name]
        obstacles = (
            [{"fact": "it is another flow", "hint": "deploy it"}]
            if request.package == b"bad"
            else []
        )
        plan = {
            "flow": name,
            "mode": request.mode,
            "possible": not obstacles,
            "groups": [{"name": "all", "change": "replaced", "stages": [], "differences": []}],
            "units": [{"groups": ["all"]}],
            "step": 60.0,
            "overlap": 30.0,
            "obstacles": obstacles,
            "grown": [],
            "notes": [],
        }
        text = " group  stage  change\n all    all    replaced"
        found = Planned(plan, text + "".join(f"\nimpossible: {one['fact']}" for one in obstacles))
        self._planned[name] = found
        return found

    def switch_planned(self, job: str) -> tuple[float, Planned] | None:
        found = self._planned.get(self._job(job).name)
        return None if found is None else (1_767_268_860.0, found)

    def switch(self, job: str, request: SwitchRequest) -> JobStatus:
        name = self._job(job).name
        if self.plan_switch(name, request).plan["obstacles"]:
            raise SwitchImpossible(
                f'job "{name}" cannot be switched: it is another flow', hint="deploy it"
            )
        last = self._versions[name][-1]
        going = last.switch is not None and not last.switch.over
        if (
            going
            and last.switch is not None
            and last.switch.share is not None
            and request.package is None
        ):
            self.reported(
                name,
                SwitchProgress(
                    str(last.number), "asking", share=last.switch.share, wanted=request.share or 0
                ),
            )
            status = self.status(name)
            self.after_switch(name)
            return status
        if going:
            raise SwitchRefused(
                f'a switch of job "{name}" is going on', hint="wait until it is done"
            )
        if request.package is None and len(self._versions[name]) == 1:
            raise SwitchRefused(f'job "{name}" has no version before 1 to go back to')
        number = last.number + 1
        switch = Switch(
            version=number,
            previous=self._running(name),
            asked_at=1_767_268_800.0,
            trial=request.trial,
            shadow=Comparison() if request.shadow else None,
            share=None if request.share is None else 0,
            wanted=request.share,
        )
        settings = JobSettings(flow="f.py", package="")
        self._versions[name].append(
            Version(number=number, added_at=0.0, settings=settings, switch=switch)
        )
        self.wanted = request
        status = self.status(name)
        self.after_switch(name)
        return status

    def end_when_quiet(self, job: str) -> JobStatus:
        self.quiet = job
        return self.status(self._job(job).name)

    def abort_switch(self, job: str) -> JobStatus:
        name = self._job(job).name
        last = self._versions[name][-1]
        if last.switch is None or last.switch.over:
            raise SwitchRefused(f'no switch of job "{name}" is going on')
        self.reported(
            name, SwitchProgress(str(last.number), ended="given up", why="it was asked to end")
        )
        return self.status(name)

    def versions(self, job: str) -> list[VersionStatus]:
        name = self._job(job).name
        return version_statuses(self._versions[name], self._running(name))

    def stop(self, *, force: bool = False) -> None:
        busy = [name for name, job in self._jobs.items() if job.state in life.ALIVE]
        if busy and not force:
            raise JobsRunning(f"this engine runs {', '.join(busy)}", hint="drain them, or --force")
        self.stopped.set()
