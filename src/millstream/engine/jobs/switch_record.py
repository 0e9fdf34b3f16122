"""A switch of a job, as its engine sees it: asked for, under way in the driver, then done, given up or refused.

         the driver begins            the old version is retired
    ASKED ───────────────▶ GOING ON ─────────────────────────────▶ DONE ──▶ on probation, if that was wanted
      │                       │ until the cut, or the keys are given back
      └──▶ REFUSED            ├──▶ GIVEN UP
                              └──▶ COMPARED, if the new version only ran in the shadow of the old one

What decides where a switch stands is the record in the job's folder, which its driver keeps; an
engine writes down what it hears. A driver that comes up says how the record stands: a switch that
this does not know of was never begun, or was given up. A switch that gives the new version a share
of the keys goes on until one version has them all. Every version of a job has a number, counted
from 1, also one that is gone back to: that is a new version with an older package.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from millstream.switch.comparison import Comparison
from millstream.switch.cut import WHOLE
from millstream.switch.events import Mode
from millstream.switch.probation import Limits

#: How long a new version may take until the cut, if nobody says otherwise.
LIMIT_S: Final = 300.0
#: Why a switch has ended whose new version had keys, and has none any more.
GIVEN_BACK: Final = "the old version has all keys again"


class SwitchState(StrEnum):
    """How far a switch has got."""

    ASKED = "asked"
    GOING_ON = "going on"
    DONE = "done"
    GIVEN_UP = "given up"
    REFUSED = "refused"
    COMPARED = "compared"


#: States that a switch does not leave.
OVER: Final = frozenset(
    {SwitchState.DONE, SwitchState.GIVEN_UP, SwitchState.REFUSED, SwitchState.COMPARED}
)


class SwitchStep(msgspec.Struct, frozen=True):
    """A step of a switch: when (seconds since 1970), the phase it led to, and what happened."""

    at: float
    phase: str
    text: str


class Trial(msgspec.Struct, frozen=True):
    """The probation of a new version: for how long, what it may do, and whether the old one comes back if it does more."""

    seconds: float
    limits: Limits = Limits()
    back: bool = False
    #: How it ended, if it has.
    ended: str | None = None


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A switch, as it is written down with the version that it leads to. Moments are seconds since 1970."""

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
    limit_s: float = LIMIT_S
    trial: Trial | None = None
    #: How the new version compares, if it only runs in the shadow of the old one.
    shadow: Comparison | None = None
    since: datetime | None = None
    #: How much of the keys the new version has, and is to have, in parts of `WHOLE`; None if it is to have all at once.
    share: int | None = None
    wanted: int | None = None

    @property
    def over(self) -> bool:
        return self.state in OVER


# between an engine and a driver


class Compare(msgspec.Struct, frozen=True, tag=True):
    """Say what a switch to the flow in a file would do; `consent` names the stages whose state may be lost.

    `since` is from when on it processes again, if it does.
    """

    flow: str
    consent: tuple[str, ...] = ()
    mode: Mode = "switch"
    since: datetime | None = None


class Planned(msgspec.Struct, frozen=True):
    """The plan of a switch, as data and as text, and what an engine must know of the new version."""

    plan: dict[str, Any]
    text: str
    inboxes: dict[str, int] = {}
    binaries: tuple[str, ...] = ()


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Begin a switch to the flow in a file; `binaries` are programs of the engine's that the version needs."""

    version: str
    flow: str
    consent: tuple[str, ...] = ()
    limit_s: float = LIMIT_S
    binaries: dict[str, str] = {}
    #: How long the version is to run in the shadow of the one that runs; None: it takes its place.
    shadow_s: float | None = None
    since: datetime | None = None
    share: int = WHOLE


class Share(msgspec.Struct, frozen=True, tag=True):
    """Give the new version another share of the keys; with nothing, the old one has them all again."""

    parts: int
    limit_s: float = LIMIT_S


class SwitchReport(msgspec.Struct, frozen=True):
    """What a driver says about a switch: all its steps so far; `ended` is "done", "given up", "refused" or "compared".

    `left_s` is how much event time the old version still has to read, `shadow` how a version in the
    shadow compares.
    """

    version: str
    phase: str = ""
    cut_us: int | None = None
    left_s: float | None = None
    steps: tuple[SwitchStep, ...] = ()
    ended: str | None = None
    why: str | None = None
    shadow: Comparison | None = None
    share: int | None = None
    wanted: int | None = None


class RecoveredState(msgspec.Struct, frozen=True):
    """How the record stands when a driver comes up: the version that runs, and the one that it is switched to."""

    version: str
    next: str | None = None


def heard(switch: Switch, told: SwitchReport, now: float) -> Switch:
    """Return a switch after its driver has spoken of it; what comes too late changes nothing."""
    if switch.over or told.version != str(switch.version):
        return switch
    steps = told.steps or switch.steps
    state = SwitchState(told.ended) if told.ended is not None else SwitchState.GOING_ON
    return replace(
        switch,
        state=state,
        phase=told.phase or switch.phase,
        cut_us=told.cut_us if told.cut_us is not None else switch.cut_us,
        left_s=told.left_s,
        steps=steps,
        why=told.why if told.ended is not None else switch.why,
        ended_at=now if state in OVER else None,
        shadow=told.shadow or switch.shadow,
        share=switch.share if switch.share is None or told.share is None else told.share,
        wanted=switch.wanted if switch.wanted is None or told.wanted is None else told.wanted,
    )


def reconcile(switch: Switch, standing: RecoveredState, now: float) -> Switch:
    """Return a switch after its driver was started again, by how the record stands."""
    if switch.over or standing.next == str(switch.version):
        return switch
    if standing.version == str(switch.version):
        return replace(switch, state=SwitchState.DONE, phase="running", ended_at=now)
    stopped = "the driver ended before the cut" if switch.shadow is None else "the driver ended"
    why = switch.why or (stopped if switch.cut_us is None else GIVEN_BACK)
    return replace(switch, state=SwitchState.GIVEN_UP, phase="running", ended_at=now, why=why)
