"""A run without Spark that can be switched: it keeps a record as the real one does, and goes on when a file says so.

In the flow's folder the file "cut" lets a switch make its cut, and "drained" lets a version retire.
Before the cut a switch is aborted if the driver dies, after it it goes on. Another share is cut at
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from millstream.clock import micros
from millstream.errors import SwitchRefused
from millstream.flow.flow import Flow
from millstream.joblog import JobLog
from millstream.plan.groups import plan
from millstream.switch.changes import Change, Version
from millstream.switch.comparison import Compared, Comparison
from millstream.switch.cut import WHOLE, Owners, percent
from millstream.switch.machine import Entry
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.progress import SwitchProgress, step_of
from millstream.switch.record import Phase, Record, decode, encode
from millstream.switch.request import SwitchRequest

CUT = datetime(2026, 1, 1, 12, tzinfo=UTC)


class SwitchLog:
    """The record, in the job's log if it has one: other engines find it there."""

    def __init__(self, folder: Path, log: JobLog | None) -> None:
        self._file, self._log = folder / "switch" / "record", log

    def read(self) -> Record | None:
        if self._log is not None:
            found = self._log.state.switch
            return None if found is None else decode(found.encode())
        return decode(self._file.read_bytes()) if self._file.exists() else None

    def write(self, record: Record) -> None:
        if self._log is not None:
            self._log.note_switch(encode(record).decode())
            return
        fresh = self._file.with_suffix(".new")
        fresh.parent.mkdir(exist_ok=True)
        fresh.write_bytes(encode(record))
        fresh.replace(self._file)


class SparklessRun:
    """What a driver asks of a `FlowRun` about versions."""

    def __init__(
        self,
        flow: Flow,
        version: str,
        folder: Path,
        root: Path,
        versions: Callable[[str], Flow],
        log: JobLog | None = None,
    ) -> None:
        self.flow, self.version, self.folder = flow, version, folder
        self._root, self._record, self._versions = root, SwitchLog(folder, log), versions
        self._phase, self._entries, self._next = Phase.RUNNING, list[Entry](), None
        self._share, self._wanted = 0, WHOLE
        known = self._record.read() or Record(0, self._phase, version, Owners("1"))
        if known.current != version:
            self.version, self.flow = known.current, versions(known.current)
        if known.next is not None:
            self._next = known.next
            self._share = self._wanted = known.share
            if known.phase in (Phase.OVERLAPPING, Phase.SHARING):
                self._to(known.phase, "it goes on")
            else:
                self._abort("the driver stopped before the cut")

    def plan_switch(self, flow: Flow, request: SwitchRequest) -> SwitchPlan:
        old, new = Version.of(plan(self.flow)), Version.of(plan(flow))
        return switch_plan(
            old, new, consent=request.consent, mode=request.mode, since=request.since
        )

    def switch(self, flow: Flow, version: str, request: SwitchRequest) -> None:
        self.plan_switch(flow, request).check()
        self._next = version
        if not request.shadow:
            self._wanted = request.wanted
        self._to(Phase.PREPARING, f"within {request.timeout}")
        if request.shadow:
            self._to(Phase.SHADOWING, f"for {request.duration}")

    def comparison(self) -> Comparison:
        return Comparison(
            "2026-01-01T12:00:00Z", None, (Compared("some", Change.REPLACED, equal=5),)
        )

    def share(self, request: SwitchRequest) -> None:
        wanted = request.share or 0
        if self._phase is not Phase.SHARING or wanted == self._share:
            raise SwitchRefused(f"{percent(wanted)} of the keys were asked for")
        self._wanted = wanted
        self._cut(f"within {request.timeout}")

    def abort(self) -> None:
        if self._phase not in (Phase.PREPARING, Phase.SHADOWING):
            raise SwitchRefused("there is nothing to abort")
        self._abort("it was asked to end")

    def _abort(self, why: str) -> None:
        self._to(Phase.ABORTING, why)
        self._next = None
        self._to(Phase.RUNNING, "alone")

    def _to(self, phase: Phase, text: str) -> None:
        self._phase = phase
        self._entries.append(Entry(time.time_ns() // 1000, 1, phase, text))
        self._record.write(
            Record(1, phase, self.version, Owners("1"), self._next, share=self._share)
        )

    def poll(self) -> None:
        if self._phase is Phase.PREPARING and (self._root / "cut").exists():
            self._cut("cut")
        elif self._phase is Phase.OVERLAPPING and (self._root / "drained").exists():
            assert self._next is not None
            if self._share:
                self.version, self.flow = self._next, self._versions(self._next)
            self._next, self._share = None, 0
            self._to(Phase.RUNNING, "alone")

    def _cut(self, text: str) -> None:
        self._share = self._wanted
        self._to(Phase.SHARING if 0 < self._share < WHOLE else Phase.OVERLAPPING, text)

    def switching(self) -> SwitchProgress | None:
        if self._next is None:
            return None
        cut = self._phase in (Phase.OVERLAPPING, Phase.SHARING)
        return SwitchProgress(
            self._next,
            self._phase,
            micros(CUT) if cut else None,
            5.0 if cut else None,
            tuple(map(step_of, self._entries)),
            share=self._share,
            wanted=self._wanted,
        )

    def history(self) -> tuple[Entry, ...]:
        return tuple(self._entries)
