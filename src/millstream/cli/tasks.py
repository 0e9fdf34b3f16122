"""`millstream tasks`: which engine runs which job, how busy engines are, and moving jobs to others."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from millstream.cli.jobs import at, cluster
from millstream.cli.options import Engines, Json, TokenFile
from millstream.cli.output import show, table
from millstream.flow import durations
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.leases.loads import EngineLoad
    from millstream.engine.leases.tasks import MoveStatus, Tasks, TaskStatus

_POLL_S: Final = 0.5
_UNKNOWN: Final = "unknown"


def tasks(
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Move the jobs of this engine to others, one by one."),
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show which engine runs which job, and how busy engines are."""
    with cluster(engine, token_file) as found:
        listed = _drained(found) if drain else found.tasks()
    show(listed, _view(listed), json=json)


def _drained(found: Cluster) -> Tasks:
    """Wait until an engine has moved all jobs that others know too."""
    from millstream.engine.jobs.lifecycle import SETTLED

    listed = found.drain_tasks()
    with Console(stderr=True).status("moving jobs to other engines"):
        while any(one.here and one.state not in SETTLED for one in _shared(listed)) or any(
            one.state in ("stopping", "moving") for one in listed.moves
        ):
            time.sleep(_POLL_S)
            listed = found.tasks()
    return listed


def _shared(listed: Tasks) -> list[TaskStatus]:
    return [one for one in listed.tasks if one.generation is not None]


def _view(listed: Tasks) -> Group:
    shown: list[RenderableType] = [_jobs(listed)] if listed.tasks else []
    shown += [Text(_move(one)) for one in listed.moves]
    shown = shown or [Text("there are no jobs")]
    if listed.loads:
        shown += [Text(), _engines(listed)]
    return Group(*shown)


def _jobs(listed: Tasks) -> RenderableType:
    made = table(("job", "state", "engine", "since"), ("generation",))
    made.add_column("next")
    made.add_column("reason", overflow="fold")
    for one in listed.tasks:
        engine = f"{one.engine or '-'}{' (here)' if one.here and one.engine else ''}"
        since = "" if one.since is None else at(one.since)
        generation = "" if one.generation is None else str(one.generation)
        made.add_row(
            one.job, one.state, engine, since, generation, one.next or "", one.reason or ""
        )
    return made


def _engines(listed: Tasks) -> RenderableType:
    numbers = ("jobs", "load", "cores", "disk free", "rows/s in", "measured")
    made = table(("engine", "state", "url"), numbers)
    for name, one in sorted(listed.loads.items()):
        here = " (here)" if name == listed.engine else ""
        made.add_row(f"{name}{here}", one.state, one.url, *_numbers(one))
    return made


def _numbers(one: EngineLoad) -> tuple[str, ...]:
    jobs, cores = (_UNKNOWN if count is None else str(count) for count in (one.jobs, one.cores))
    if one.load is None or one.disk_free is None or one.disk_size is None:
        return jobs, _UNKNOWN, cores, _UNKNOWN, _UNKNOWN, ""
    disk = f"{one.disk_free / 1e9:,.1f} of {one.disk_size / 1e9:,.1f} GB"
    age = durations.format(timedelta(seconds=int(one.age_s or 0)))
    return jobs, f"{one.load:.1f}", cores, disk, f"{one.rows_in or 0:,.1f}", f"{age} ago"


def _move(one: MoveStatus) -> str:
    to = "" if one.to is None else f" to {one.to}"
    pause = "" if one.pause_s is None else f", not running for {one.pause_s:g} s"
    return f"{one.job} {one.state}{to}{pause}"
