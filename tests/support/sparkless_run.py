"""A run without Spark that can be switched: it keeps a record as the real one does, and goes on when a file says so.

In the flow's folder the file "cut" lets a switch make its cut, and "drained" lets the old version retire. Before the cut a switch
is given up if the driver dies, after it it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.errors import SwitchRefused
from millstream.flow.flow import Flow
from millstream.plan.groups import plan
from millstream.switch.changes import Change, Version
from millstream.switch.comparison import Compared, Comparison
from millstream.switch.cut import Owners
from millstream.switch.events import Mode
from millstream.switch.machine import Entry
from millstream.switch.plan import SwitchPlan, switch_plan
from millstream.switch.record import Phase, Record, decode, encode

CUT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Status:
    phase: Phase
    old: str
    new: str
    cut: datetime | None
    left: float | None
    history: tuple[Entry, ...]


class SparklessRun:
    """What a driver asks of a `FlowRun` about versions."""

    def __init__(self, flow: Flow, version: str, folder: Path, root: Path, versions: Callable[[str], Flow]) -> None:
        self.flow, self.version, self.folder = flow, version, folder
        self._root, self._file, self._versions = root, folder / "switch" / "record", versions
        self._phase, self._entries, self._next = Phase.RUNNING, list[Entry](), None
        known = decode(self._file.read_bytes()) if self._file.exists() else Record(0, self._phase, version, Owners("1"))
        if known.current != version:
            self.version, self.flow = known.current, versions(known.current)
        if known.next is not None:
            self._next = known.next
            if known.phase is Phase.OVERLAPPING:
                self._to(Phase.OVERLAPPING, "it goes on")
            else:
                self._give_up("the driver stopped before the cut")

    def plan_switch(self, flow: Flow, *, consent: Collection[str] = (), mode: Mode = "switch") -> SwitchPlan:
        return switch_plan(Version.of(plan(self.flow)), Version.of(plan(flow)), consent=consent, mode=mode)

    def switch(self, flow: Flow, version: str, *, consent: Collection[str], limit: timedelta) -> None:
        self.plan_switch(flow, consent=consent).check()
        self._next = version
        self._to(Phase.PREPARING, f"within {limit}")

    def shadow(
        self, flow: Flow, version: str, *, lasting: timedelta, consent: Collection[str], limit: timedelta
    ) -> None:
        self.plan_switch(flow, consent=consent, mode="shadow").check()
        self._next = version
        self._to(Phase.PREPARING, f"within {limit}")
        self._to(Phase.SHADOWING, f"for {lasting}")

    def comparison(self) -> Comparison:
        return Comparison("2026-01-01T12:00:00Z", None, (Compared("some", Change.REPLACED, equal=5),))

    def give_up(self) -> None:
        if self._phase not in (Phase.PREPARING, Phase.SHADOWING):
            raise SwitchRefused("there is nothing to give up")
        self._give_up("it was asked to end")

    def _give_up(self, why: str) -> None:
        self._to(Phase.ABORTING, why)
        self._next = None
        self._to(Phase.RUNNING, "alone")

    def _to(self, phase: Phase, text: str) -> None:
        self._phase = phase
        self._entries.append(Entry(time.time_ns() // 1000, 1, phase, text))
        fresh = self._file.with_suffix(".new")
        fresh.parent.mkdir(exist_ok=True)
        fresh.write_bytes(encode(Record(1, phase, self.version, Owners("1"), self._next)))
        fresh.replace(self._file)

    def poll(self) -> None:
        if self._phase is Phase.PREPARING and (self._root / "cut").exists():
            self._to(Phase.OVERLAPPING, "cut")
        elif self._phase is Phase.OVERLAPPING and (self._root / "drained").exists():
            assert self._next is not None
            self.version, self.flow, self._next = self._next, self._versions(self._next), None
            self._to(Phase.RUNNING, "alone")

    def switching(self) -> Status | None:
        if self._next is None:
            return None
        cut = CUT if self._phase is Phase.OVERLAPPING else None
        return Status(self._phase, self.version, self._next, cut, 5.0 if cut else None, tuple(self._entries))

    def history(self) -> tuple[Entry, ...]:
        return tuple(self._entries)
