"""`millstream switch --shadow`: run a version in the shadow of the running one, and compare."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from millstream.cli.jobs import TIME_OVER
from millstream.cli.output import show, status_line
from millstream.errors import SwitchRefused
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.jobs.status import JobStatus, SwitchStatus
    from millstream.switch.comparison import Comparison
    from millstream.switch.request import SwitchRequest

#: How it ends if the versions differ, and if there was nothing to compare or it broke off.
DIFFERENT: Final = 7
UNCOMPARED: Final = 6
#: How long it runs by default.
LENGTH: Final = "10 min"


def begin(found: Cluster, job: str, flow: Path | None, request: SwitchRequest) -> JobStatus:
    """Begin a switch, or a shadow; show that it is planned first."""
    with Console(stderr=True).status("planning"):
        return found.switch(job, flow, request)


def say(text: str) -> None:
    Console(highlight=False, soft_wrap=True).print(text)


def run(found: Cluster, job: str, flow: Path | None, request: SwitchRequest, *, json: bool) -> None:
    """Begin a shadow."""
    begun = begin(found, job, flow, request)
    if not json and (switch := begun.switch) is not None:
        of = f"in the shadow of version {switch.previous}"
        say(f"version {switch.version} of {begun.name} runs {of}")


def wait(found: Cluster, job: str, timeout: float | None, *, json: bool) -> None:
    """Wait until a shadow has ended, and show what it has found; Ctrl-C ends it."""
    began = time.monotonic()
    try:
        with status_line(lambda switch: line(switch, time.monotonic() - began)) as progress:
            status = found.wait_switch(job, timeout, progress=progress)
    except KeyboardInterrupt:
        end(found, job, timeout, json=json)
        return
    _tell(status, json=json)


def end(found: Cluster, job: str, timeout: float | None, *, json: bool) -> None:
    """End a shadow, and show what it has found.

    Raises:
        SwitchRefused: There is none.
    """
    before = found.wait_switch(job, 0.0)
    if before.switch is None or before.switch.shadow is None:
        hint = f"millstream switch {job} FLOW --shadow begins"
        raise SwitchRefused(f"no version of {job} runs in a shadow", hint=hint)
    # It may have ended meanwhile.
    with contextlib.suppress(SwitchRefused):
        found.abort_switch(job)
    _tell(found.wait_switch(job, timeout), json=json)


def _tell(status: JobStatus, *, json: bool) -> None:
    show(status, outcome(status), json=json)
    code = status_of(status)
    if code:
        raise typer.Exit(code)


def status_of(status: JobStatus) -> int:
    """Return how the command ends."""
    switch = status.switch
    assert switch is not None
    match switch.state:
        case "asked" | "going on":
            return TIME_OVER
        case "refused":
            return 1
    if switch.shadow is None or not switch.shadow.counted or switch.state != "compared":
        return UNCOMPARED
    return 0 if switch.shadow.same else DIFFERENT


def outcome(status: JobStatus) -> str:
    """Return what a shadow has found, so far or in the end."""
    from millstream.switch.comparison import table

    switch = status.switch
    assert switch is not None
    if switch.state == "refused":
        return f"the shadow was refused: {switch.why}; version {status.version} runs on"
    found = "" if switch.shadow is None else f"{table(switch.shadow)}\n"
    return f"{found}{_end(status, switch)}"


def _end(status: JobStatus, switch: SwitchStatus) -> str:
    match switch.state:
        case "compared":
            same = "are the same" if switch.shadow is not None and switch.shadow.same else "differ"
            counted = "" if switch.shadow is None else f"{switch.shadow.counted:,} "
            runs = f"version {status.version} of {status.name} runs on"
            return f"the {counted}results that were compared {same}; {runs}"
        case "given up":
            runs = f"version {status.version} of {status.name} runs on"
            return f"the shadow ended early: {switch.why}; {runs}"
    return f"version {switch.version} of {status.name} is {switch.phase}; --shadow --end ends that"


def line(switch: SwitchStatus, seconds: float) -> str:
    """Return how a shadow goes, in a line."""
    minutes, rest = divmod(int(seconds), 60)
    parts = [f"{switch.phase} {minutes}:{rest:02}"]
    if switch.shadow is not None and switch.shadow.since is not None:
        parts += [*_counts(switch.shadow), "Ctrl-C ends it"]
    return "   ".join(parts)


def _counts(found: Comparison) -> Iterator[str]:
    replaced = [one for one in found.outputs if one.change == "replaced"]
    for what in ("equal", "missing", "extra", "different", "waiting"):
        count = sum(getattr(one, what) for one in replaced)
        if count or what == "equal":
            yield f"{count:,} {what}"
