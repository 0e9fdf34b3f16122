"""`millstream switch`: replace the running version of a job."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli import shadow as shadows
from millstream.cli.jobs import TIME_OVER, checked, cluster
from millstream.cli.options import Engines, Json, Timeout, TokenFile
from millstream.cli.output import encoded, seconds_of, status_line
from millstream.cli.output import show as show_result
from millstream.errors import InvalidOption, SwitchRefused
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.jobs.status import JobStatus, SwitchStatus
    from millstream.switch.probation import Trial
    from millstream.switch.request import SwitchRequest

#: How `switch` ends when the switch was aborted, and the old version runs on.
ABORTED: Final = 6
_INTERRUPTED: Final = 130
_FLOWS: Final = (".py", ".yaml", ".yml")
_BAR: Final = 10


JobOrFlow = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The name or id of the job; with --plan, also the file of the old flow."
    ),
]
NewFlow = Annotated[Path | None, typer.Argument(help="The new version: a .py or .yaml file.")]
Share = Annotated[
    str | None,
    typer.Option(
        metavar="PERCENT",
        help="Give the new version this share of the keys, as 10%; or change its share.",
    ),
]
Consent = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Accept losing a state: drop:STAGE or drop:STAGE.STATE; or with --from repeating the results of this output; repeatable.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="OLD=NEW",
        help="Carry the state of a stage, or STAGE.STATE of a fold, over under a new name; repeatable.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help='Process again from "2 hours ago" or a timestamp, and replace the results since then.',
    ),
]
Limit = Annotated[
    str, typer.Option(metavar="TIME", help="Abort the switch if it has no cut after this time.")
]
Shadow = Annotated[
    bool,
    typer.Option(
        "--shadow", help="Run it in the shadow of the running version, and compare their results."
    ),
]
Probation = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Watch the new version for this long after the switch."),
]
UntilQuiet = Annotated[
    bool,
    typer.Option(
        "--until-quiet",
        help="End the overlap when the sources are idle, without waiting for events; alone, of the switch that is going on.",
    ),
]
OnFailure = Annotated[
    str | None, typer.Option(metavar="back", help="Go back if the new version fails its probation.")
]
DeadLetters = Annotated[
    int, typer.Option(min=0, help="The most dead letters that a version on probation may cause.")
]


def switch(
    job: JobOrFlow,
    flow: NewFlow = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what it would do, and do nothing.")
    ] = False,
    back: Annotated[bool, typer.Option("--back", help="Go back to the previous version.")] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort a switch that has not made its cut yet.")
    ] = False,
    give_up: Annotated[bool, typer.Option("--give-up", hidden=True)] = False,
    share: Share = None,
    consent: Consent = None,
    state: States = None,
    since: Since = None,
    limit: Limit = "5 min",
    shadow: Shadow = False,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long a shadow runs.")
    ] = shadows.LENGTH,
    end: Annotated[
        bool, typer.Option("--end", help="With --shadow: end it, and show what it has found.")
    ] = False,
    until_quiet: UntilQuiet = False,
    probation: Probation = None,
    on_failure: OnFailure = None,
    dead_letters: DeadLetters = 100,
    detach: Annotated[bool, typer.Option("--detach", help="Begin, and do not wait.")] = False,
    timeout: Timeout = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Replace the running version of a job, without a pause.

    No result is lost or published twice.
    """
    abort = abort or give_up
    ends = until_quiet and flow is None and share is None and not (back or abort or end)
    _check_arguments(flow, back=back, abort=abort or end or ends, plan=plan, share=share)
    request = _request(
        share=None if share is None else _share(share),
        consent=tuple(consent or ()),
        states=_renames(state),
        since=_since(since, shadow=shadow),
        shadow=shadow,
        duration=_duration(duration, probation, shadow=shadow, end=end),
        timeout=_span(limit),
        trial=_probation(probation, on_failure, dead_letters),
        until_quiet=until_quiet,
    )
    if Path(job).suffix in _FLOWS and Path(job).is_file():
        _compare(Path(job), flow, request, plan=plan, json=json)
        return
    with cluster(engine, token_file) as found:
        if abort:
            status = found.abort_switch(job)
            text = f"the switch of {status.name} is being aborted; version {status.version} runs on"
            show_result(status, text, json=json)
        elif ends:
            found.end_when_quiet(job)
            if not detach:
                _wait(found, job, timeout, None, back=False, json=json)
        elif plan:
            _plan(found, job, flow, request, json=json)
        elif end:
            shadows.end(found, job, None, json=json)
        elif shadow:
            _checked(flow)
            shadows.run(found, job, flow, request, json=json)
            if not detach:
                shadows.wait(found, job, timeout, json=json)
        else:
            _checked(flow)
            begun = shadows.begin(found, job, flow, request)
            if not json and begun.switch is not None:
                shadows.say(_beginning(begun.name, begun.switch))
            if not detach:
                _wait(found, job, timeout, request.share, back=back, json=json)


def _request(**asked: Any) -> SwitchRequest:
    from millstream.switch.request import SwitchRequest

    try:
        return SwitchRequest(**asked)
    except SwitchRefused as refused:
        raise typer.BadParameter(f"{refused.message}: {refused.hint}") from None


def _renames(given: list[str] | None) -> dict[str, str]:
    from millstream.switch.wishes import renames_of

    try:
        return renames_of(given or ())
    except SwitchRefused as refused:
        raise typer.BadParameter(f"{refused.message}: {refused.hint}") from None


def _check_arguments(
    flow: Path | None, *, back: bool, abort: bool, plan: bool, share: str | None
) -> None:
    chosen = [flow is not None or share is not None, back, abort]
    if sum(chosen) != 1:
        raise typer.BadParameter("give one of: a new version, --back, --abort, or --share alone")
    if plan and (abort or (share is not None and flow is None)):
        raise typer.BadParameter("only a new version and the way back have a plan")


def _span(text: str) -> timedelta:
    from millstream.flow.durations import duration

    return duration(text)


def _share(text: str) -> int:
    """Return a share that a user has written, in parts of the whole: 10% is 1000."""
    from millstream.switch.cut import parts

    try:
        percent = float(text.strip().removesuffix("%")) if text.strip().endswith("%") else 0.0
    except ValueError:
        percent = 0.0
    if not 0.01 <= percent <= 100:
        msg = f'a share is like 10%, from 0.01% to 100%, not "{text}"; --back takes the keys back'
        raise typer.BadParameter(msg)
    return parts(percent / 100)


def _duration(text: str, probation: str | None, *, shadow: bool, end: bool) -> timedelta | None:
    """Return how long a shadow is to run; None if there is to be none."""
    if not shadow:
        if end or text != shadows.LENGTH:
            raise typer.BadParameter("--for and --end need --shadow")
        return None
    if probation is not None:
        msg = "--probation is for a version that has taken over, not for one in the shadow"
        raise typer.BadParameter(msg)
    return _span(text)


def _probation(length: str | None, on_failure: str | None, dead_letters: int) -> Trial | None:
    from millstream.switch.probation import Limits, Trial

    if on_failure not in (None, "back"):
        raise typer.BadParameter(f'--on-failure can be "back", not "{on_failure}"')
    if length is None:
        if on_failure is not None:
            raise typer.BadParameter("--on-failure needs --probation")
        return None
    limits = Limits(dead_letters=dead_letters)
    return Trial(_span(length).total_seconds(), limits, back=on_failure == "back")


def _checked(flow: Path | None) -> None:
    if flow is not None:
        checked(flow)


# plans


def _since(text: str | None, *, shadow: bool) -> datetime | None:
    if text is not None and shadow:
        msg = "a version in the shadow replaces nothing: --from is for one that takes over"
        raise typer.BadParameter(msg)
    return None if text is None else moment(text, datetime.now(UTC))


def moment(text: str, now: datetime) -> datetime:
    """Return the moment of "2 hours ago", or of a timestamp, in UTC by default.

    Raises:
        InvalidDuration: It is neither.
        InvalidOption: It lies in the future.
    """
    if text.strip().endswith("ago"):
        return now - _span(text.strip().removesuffix("ago"))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        hint = 'write "2 hours ago", or a timestamp like 2026-03-08T12:00'
        raise InvalidOption(f'"{text}" is not a moment', hint=hint) from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if found > now:
        hint = "a switch without --from is about what comes"
        raise InvalidOption(f'"{text}" lies in the future', hint=hint)
    return found


def _compare(
    old: Path, new: Path | None, request: SwitchRequest, *, plan: bool, json: bool
) -> None:
    """Compare two files without an engine; columns that only Spark knows are not compared."""
    from millstream.flow.apart import load_apart
    from millstream.flow.load import load
    from millstream.plan.groups import plan as plan_flow
    from millstream.switch import show
    from millstream.switch.changes import Version
    from millstream.switch.plan import switch_plan

    if not plan or new is None:
        hint = f"millstream switch JOB {new or 'NEW'} switches a job; {old} is compared with --plan"
        raise InvalidOption(f'"{old}" is a flow, not a job', hint=hint)
    before = Version.of(plan_flow(load(old)))
    after = Version.of(plan_flow(load_apart(new, old)))
    found = switch_plan(
        before,
        after,
        consent=request.consent,
        mode=request.mode,
        since=request.since,
        states=request.states,
    )
    _show(show.to_json(found), show.table(found), json=json)


def _plan(
    found: Cluster, job: str, flow: Path | None, request: SwitchRequest, *, json: bool
) -> None:
    _checked(flow)
    with Console(stderr=True).status("asking the job"):
        planned = found.plan_switch(job, flow, request)
    _show(planned.plan, planned.text, json=json)


def _show(plan: dict[str, Any], text: str, *, json: bool) -> None:
    print(encoded(plan) if json else text)
    if not plan["possible"]:
        raise typer.Exit(1)


# switching


def _beginning(job: str, switch: SwitchStatus) -> str:
    if switch.share is None or switch.wanted is None:
        return f"switching {job} from version {switch.previous} to {switch.version}"
    if not switch.wanted:
        return f"version {switch.previous} of {job} is to have all keys again"
    return f"version {switch.version} of {job} is to have {_percent(switch.wanted)} of the keys"


def _percent(share: float) -> str:
    return f"{share * 100:g}%"


def _wait(
    found: Cluster, job: str, timeout: float | None, share: int | None, *, back: bool, json: bool
) -> None:
    try:
        with status_line(_Line()) as progress:
            status = found.wait_switch(job, timeout, progress=progress)
    except KeyboardInterrupt:
        text = (
            f"the switch goes on: millstream status {job} shows it, "
            f"millstream switch {job} --abort ends it until its cut"
        )
        print(text, file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    show_result(status, outcome(status), json=json)
    code = _code(status, share, back=back)
    if code:
        raise typer.Exit(code)


def _code(status: JobStatus, share: int | None, *, back: bool) -> int:
    """Return the exit code: 0 also for a version that has its share, or has given it back."""
    from millstream.switch.cut import WHOLE

    switch = status.switch
    assert switch is not None
    if switch.phase == "sharing" and switch.share == switch.wanted:
        return 0 if share is not None and switch.share == share / WHOLE else ABORTED
    if back and switch.share is not None and switch.state == "given up":
        return 0
    return {"done": 0, "given up": ABORTED, "refused": 1}.get(switch.state, TIME_OVER)


# what is shown


class _Line:
    """How a switch goes, compared with the longest that it had to go."""

    def __init__(self) -> None:
        self.most = 0.0

    def __call__(self, switch: SwitchStatus) -> str:
        self.most = max(self.most, switch.left_s or 0.0)
        return line(switch, time.time(), self.most)


def line(switch: SwitchStatus, now: float, most_left_s: float) -> str:
    """Return how a switch goes, in a line: finished phases with times, and the current one."""
    parts = [
        f"{name} ✓ {_length(seconds)}" for name, seconds in phases(switch) if seconds is not None
    ]
    began = _phase_began(switch)
    since = "" if began is None else f" {_length(max(0.0, now - began))}"
    going = _NAMES.get(switch.phase, switch.phase)
    if switch.phase == "overlapping" and switch.left_s is not None and most_left_s > 0:
        done = max(0.0, min(1.0, 1 - switch.left_s / most_left_s))
        full = round(done * _BAR)
        going += f" {'█' * full}{'░' * (_BAR - full)} {done:.0%}"
    waits = "" if switch.waits is None else f"   waits for {switch.waits}"
    return "   ".join([*parts, f"{going}{since}"]) + waits


_NAMES: Final = {
    "asked": "planning",
    "asking": "cutting",
    "confirming": "cutting",
    "overlapping": "overlap",
}


def phases(switch: SwitchStatus) -> list[tuple[str, float | None]]:
    """Return how long a switch took to prepare, to cut, to overlap and to retire.

    None for what is not over.
    """
    first: dict[str, float] = {}
    for step in switch.steps:
        first.setdefault(_NAMES.get(step.what, step.what), seconds_of(step.at))
    ended = None if switch.ended_at is None else seconds_of(switch.ended_at)
    shared = ["sharing"] if "sharing" in first else []
    marks = pairwise(["preparing", "cutting", *shared, "overlap", "retiring"])
    found = [(name, _between(first.get(name), first.get(until))) for name, until in marks]
    return [*found, ("retiring", _between(first.get("retiring"), first.get("running", ended)))]


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin


def _phase_began(switch: SwitchStatus) -> float | None:
    return next(
        (seconds_of(one.at) for one in reversed(switch.steps) if one.what == switch.phase), None
    )


def outcome(status: JobStatus) -> str:
    """Return how a switch has ended, or where it stands."""
    switch = status.switch
    assert switch is not None
    match switch.state:
        case "done":
            over = [(name, seconds) for name, seconds in phases(switch) if seconds is not None]
            times = "   ".join(f"{name} {_length(seconds)}" for name, seconds in over)
            cut = "" if switch.cut is None else f"; cut at {switch.cut}"
            watched = "" if switch.probation is None else f"; on probation {switch.probation}"
            return f"{status.name} runs version {switch.version}{cut}   {times}{watched}"
        case "given up":
            why = switch.why or "for an unknown reason"
            return f"the switch was aborted: {why}; version {status.version} runs on"
        case "refused":
            return f"the switch was refused: {switch.why}; version {status.version} runs on"
    if switch.phase == "sharing" and switch.share is not None:
        has = f"version {switch.version} of {status.name} has {_percent(switch.share)} of the keys; cut at {switch.cut}"
        last = (switch.steps[-1].detail or "") if switch.steps else ""
        return f"{has}; {last}" if last.startswith("the share stays") else has
    going = f"the switch of {status.name} to version {switch.version} is {switch.phase}"
    if switch.waits is None:
        return going
    quiet = f"millstream switch {status.name} --until-quiet"
    hint = "" if switch.until_quiet else f"; {quiet} ends it when the sources are idle"
    return f"{going}: it waits for {switch.waits}{hint}"


def _length(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
