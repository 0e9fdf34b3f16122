"""A switch of a job, as its engine sees it: asked for, going on, then done, aborted or refused.

         the driver begins            the old version is retired
    ASKED ───────────────▶ GOING ON ─────────────────────────────▶ DONE ──▶ on probation, if that was wanted
      │                       │ until the cut, or the keys are given back
      └──▶ REFUSED            ├──▶ ABORTED
                              └──▶ COMPARED, if the new version only ran in the shadow of the old one

What decides where a switch stands is the record in the job's folder, which its driver keeps; an
engine writes down what is reported. A driver that comes up reports how the record stands: a switch that
this does not know of was never begun, or was aborted. A switch that gives the new version a share
of the keys goes on until one version has them all. Every version of a job has a number, counted
from 1, also one that is gone back to: that is a new version with an older package.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from millstream.engine.jobs.spread import SpreadSource
from millstream.plan.drawing import Drawing
from millstream.switch.comparison import Comparison
from millstream.switch.probation import Trial
from millstream.switch.progress import SwitchProgress, SwitchStep
from millstream.switch.record import decode
from millstream.switch.request import TIMEOUT, SwitchRequest

#: Why a switch has ended whose new version had keys, and has none any more.
GIVEN_BACK: Final = "the old version has all keys again"


class SwitchState(StrEnum):
    """How far a switch has got."""

    ASKED = "asked"
    GOING_ON = "going on"
    DONE = "done"
    ABORTED = "given up"
    REFUSED = "refused"
    COMPARED = "compared"


#: States that a switch does not leave.
OVER: Final = frozenset(
    {SwitchState.DONE, SwitchState.ABORTED, SwitchState.REFUSED, SwitchState.COMPARED}
)


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A switch, as stored with the version that it leads to; moments are seconds since 1970."""

    version: int
    previous: int
    asked_at: float
    #: The version whose package it is, if it goes back to one.
    back_to: int | None = None
    state: SwitchState = SwitchState.ASKED
    phase: str = "asked"
    why: str | None = None
    #: The cut, in event time.
    cut_us: int | None = None
    #: How much event time the old version still has to read.
    left_s: float | None = None
    steps: tuple[SwitchStep, ...] = ()
    ended_at: float | None = None
    consent: tuple[str, ...] = ()
    timeout_s: float = msgspec.field(default=TIMEOUT.total_seconds(), name="limit_s")
    trial: Trial | None = None
    #: How the new version compares, if it only runs in the shadow of the old one.
    shadow: Comparison | None = None
    since: datetime | None = None
    #: The share of the keys that the new version has, and is to have, in parts of `WHOLE`.
    share: int | None = None
    wanted: int | None = None
    #: Whether sources that are idle pass their time on, up to what the switch needs.
    until_quiet: bool = False
    needs: dict[str, int] = {}
    #: What the switch waits for, in words.
    waits: str | None = None

    @property
    def over(self) -> bool:
        return self.state in OVER


def first_version(record: bytes | str | None) -> int:
    """Return the number that a job's versions begin with, by the record of its switches.

    That is 1, unless journals of an earlier deployment are there.

    Raises:
        ControlBroken: The record is damaged.
    """
    if record is None:
        return 1
    current = decode(record.encode() if isinstance(record, str) else record).current
    return int(current) if current.isdigit() else 1


# between an engine and a driver


class Compare(msgspec.Struct, frozen=True, tag=True):
    """Plan the switch that is asked for, to the flow in a file."""

    flow: str
    request: SwitchRequest


class Planned(msgspec.Struct, frozen=True):
    """The plan of a switch as data and text, with what an engine must know of the version."""

    plan: dict[str, Any]
    text: str
    inboxes: dict[str, int] = {}
    binaries: tuple[str, ...] = ()
    spread: dict[str, SpreadSource] = {}
    #: The graph of the new version.
    graph: Drawing | None = None


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Begin the switch to the flow in a file.

    `binaries` are the engine's programs that it needs.
    """

    version: str
    flow: str
    request: SwitchRequest
    binaries: dict[str, str] = {}


class Share(msgspec.Struct, frozen=True, tag=True):
    """Give the new version another share of the keys.

    Without one the old version gets them all back.
    """

    request: SwitchRequest


class RecoveredState(msgspec.Struct, frozen=True):
    """How the record stands when a driver comes up: the running version, and the next one."""

    version: str
    next: str | None = None


def apply_report(switch: Switch, progress: SwitchProgress, now: float) -> Switch:
    """Return a switch after its driver has reported; what comes too late changes nothing."""
    if switch.over or progress.version != str(switch.version):
        return switch
    new = progress
    state = SwitchState(new.ended) if new.ended is not None else SwitchState.GOING_ON
    return replace(
        switch,
        state=state,
        phase=new.phase or switch.phase,
        cut_us=new.cut_us if new.cut_us is not None else switch.cut_us,
        left_s=new.left_s,
        steps=new.steps or switch.steps,
        why=new.why if new.ended is not None else switch.why,
        ended_at=now if state in OVER else None,
        needs=new.needs,
        waits=new.waits,
        shadow=new.shadow or switch.shadow,
        share=switch.share if switch.share is None or new.share is None else new.share,
        wanted=switch.wanted if switch.wanted is None or new.wanted is None else new.wanted,
    )


def reconcile(switch: Switch, standing: RecoveredState, now: float) -> Switch:
    """Return a switch after its driver was started again, by how the record stands."""
    if switch.over or standing.next == str(switch.version):
        return switch
    if standing.version == str(switch.version):
        return replace(switch, state=SwitchState.DONE, phase="running", ended_at=now)
    stopped = "the driver ended before the cut" if switch.shadow is None else "the driver ended"
    why = switch.why or (stopped if switch.cut_us is None else GIVEN_BACK)
    return replace(switch, state=SwitchState.ABORTED, phase="running", ended_at=now, why=why)
