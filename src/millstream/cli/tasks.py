"""`millstream tasks`: which engine runs which job, and moving the jobs of an engine to others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from millstream.cli.jobs import at, cluster
from millstream.cli.options import Engines, Json, TokenFile
from millstream.cli.output import show, table
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.leases.tasks import MoveStatus, Tasks, TaskStatus

_POLL_S: Final = 0.5


def tasks(
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Move the jobs of this engine to others, one by one."),
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show which engine runs which job."""
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


def _view(listed: Tasks) -> Group | str:
    if not listed.tasks and not listed.moves:
        return "there are no jobs"
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
    return Group(made, *(Text(_move(one)) for one in listed.moves))


def _move(one: MoveStatus) -> str:
    to = "" if one.to is None else f" to {one.to}"
    pause = "" if one.pause_s is None else f", not running for {one.pause_s:g} s"
    return f"{one.job} {one.state}{to}{pause}"
