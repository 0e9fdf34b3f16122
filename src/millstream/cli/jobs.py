"""Jobs on engines: `millstream deploy | jobs | status | logs | wait | drain | resume | ...`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from millstream.cli.environment import engines_of_environment
from millstream.cli.options import Engines, Journals, Json, State, Timeout, TokenFile
from millstream.cli.output import encoded, group_cells, seconds_of, show, table
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.jobs.status import (
        CopyStatus,
        InboxStatus,
        JobStatus,
        ProducerStatus,
        RuntimeStatus,
    )
    from millstream.plan.groups import Plan

#: How `wait` and `drain` end when the job has failed, and when the time is over.
FAILED: Final = 5
TIME_OVER: Final = 4

Job = Annotated[str, typer.Argument(metavar="JOB", help="The name or id of the job.")]


def deploy(
    flow: Annotated[
        Path, typer.Argument(metavar="FLOW", help="A flow (.py, .yaml) or a scheme (.yaml, .json).")
    ],
    name: Annotated[
        str | None, typer.Option(help="The name of the job; by default, that of the flow.")
    ] = None,
    rows_per_batch: Annotated[
        int | None,
        typer.Option(min=1, help="The most rows that a micro-batch reads from a journal."),
    ] = None,
    most_unread: Annotated[
        int | None,
        typer.Option(min=1, help="Let senders wait while this many rows are not processed."),
    ] = None,
    state: State = None,
    journals: Journals = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Deploy a flow or a scheme, on one engine or a cluster."""
    _check(flow)
    options: dict[str, object] = {"rows_per_batch": rows_per_batch, "most_unread": most_unread}
    options |= {"state": state, "journals": journals}
    with cluster(engine, token_file) as found:
        with Console(stderr=True).status(f"deploying {flow}"):
            job = found.deploy(
                flow, name=name, options={k: v for k, v in options.items() if v is not None}
            )
        show(job, f"deployed {job.name} (job {job.id})   {found.urls[0]}/jobs/{job.id}", json=json)


def _check(flow: Path) -> None:
    from millstream.actions import scheme

    if scheme.described_in(flow):
        scheme.load(flow)
        return
    from millstream.plan.objections import check_new

    check_new(checked(flow))


def checked(flow: Path) -> Plan:
    """Report mistakes here, where the file is, with their line."""
    from millstream.flow.load import load
    from millstream.plan.groups import plan

    return plan(load(flow))


def jobs(engine: Engines = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List the jobs."""
    with cluster(engine, token_file) as found:
        listed = found.jobs()
    show(listed, _list(listed) if listed else "there are no jobs", json=json)


def status(
    job: Job, engine: Engines = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Show a job in detail."""
    with cluster(engine, token_file, job) as found:
        shown = found.status(job)
    show(shown, _view(shown), json=json)


def logs(
    job: Job,
    lines: Annotated[
        int,
        typer.Option("--lines", "-n", min=1, max=10_000, help="The number of lines, from the end."),
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until you press Ctrl-C.")
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show the log of a job's driver."""
    with cluster(engine, token_file, job) as found:
        if json:
            print(encoded({"lines": found.logs(job, lines)}))
        elif follow:
            _follow(found, job, lines)
        else:
            _print(found.logs(job, lines))


def wait(
    job: Job,
    timeout: Timeout = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Wait until a job has finished, is drained or has failed."""
    with cluster(engine, token_file, job) as found:
        _wait(found, job, timeout, json=json)


def drain(
    job: Job,
    flush: Annotated[
        bool,
        typer.Option(
            "--flush", help="End the sources too: open windows close, and the job finishes."
        ),
    ] = False,
    timeout: Timeout = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Let a job process what it has accepted, then stop it.

    Its inboxes are closed first; `resume` opens them again.
    """
    with cluster(engine, token_file, job) as found:
        found.drain(job, flush=flush)
        _wait(found, job, timeout, json=json)


def resume(
    job: Job, engine: Engines = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Continue a drained or failed job."""
    with cluster(engine, token_file, job) as found:
        resumed = found.resume(job)
    show(resumed, f"resumed {resumed.name} (job {resumed.id})", json=json)


def undeploy(
    job: Job,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is running; reports what is not processed.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove its journals and checkpoints too.")
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Remove a finished, drained or failed job."""
    with cluster(engine, token_file, job) as found:
        if force:
            _warn(found.status(job), purge=purge)
        gone = found.undeploy(job, force=force, purge=purge)
    kept = "nothing of it is left" if purge else "its journals stay"
    show(gone, f"undeployed {gone.name} (job {gone.id}); {kept}", json=json)


def stop(
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if jobs are running; they continue at the next start."),
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Stop an engine, or all engines of a cluster."""
    with cluster(engine, token_file) as found:
        if force:
            _warn_of_stop(found.jobs())
        found.stop(force=force)
        with Console(stderr=True).status("stopping"):
            gone = found.gone()
        urls = ", ".join(found.urls)
    text = f"stopped {urls}" if gone else f"{urls} is still stopping"
    show({"stopped": gone, "engines": found.urls}, text, json=json)
    if not gone:
        raise typer.Exit(TIME_OVER)


# engines


@contextmanager
def cluster(
    engines: list[str] | None, token_file: Path | None, job: str | None = None
) -> Iterator[Cluster]:
    """Return the engines from the command or the environment; for a `job`, the one that runs it."""
    from millstream.cluster import DEFAULT, Cluster
    from millstream.engine.tokens import read_token

    named = engines or engines_of_environment()
    token = os.environ.get("MILLSTREAM_TOKEN") or None
    if token_file is not None:
        token = read_token(token_file)
    with Cluster(named or [DEFAULT], token) as found:
        if job is not None:
            found.go_to(job)
        yield found
        for url in found.away:
            text = f"warning: the engine at {url} does not answer; what it has is not counted"
            Console(stderr=True, highlight=False).print(text, soft_wrap=True)


# waiting


def _wait(found: Cluster, job: str, timeout: float | None, *, json: bool) -> None:
    from millstream.engine.jobs.lifecycle import SETTLED, JobState

    with _progress(job) as progress:
        ended = found.wait(job, timeout, progress=progress)
    reason = f": {ended.reason}" if ended.reason else ""
    show(ended, f"{ended.name} {_STATES[ended.state]}{reason}", json=json)
    for notice in ended.notices:
        print(notice, file=sys.stderr)
    if ended.state is JobState.FAILED:
        raise typer.Exit(FAILED)
    if ended.state not in SETTLED and ended.state is not JobState.UNDEPLOYED:
        raise typer.Exit(TIME_OVER)


_STATES: Final = {
    "deployed": "is deployed",
    "starting": "is still starting",
    "running": "is still running",
    "restarting": "is being started again",
    "draining": "is still draining",
    "drained": "is drained; millstream resume continues it",
    "finished": "has finished",
    "failed": "has failed",
    "undeployed": "is undeployed",
    "moved": "is another engine's now; millstream tasks shows whose",
}


@contextmanager
def _progress(job: str) -> Iterator[Callable[[JobStatus], None] | None]:
    """Show a progress bar on a terminal; it is full when nothing is left."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    most = 1
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(job, total=None)

        def update(status: JobStatus) -> None:
            nonlocal most
            most = max(most, status.unprocessed)
            text = f"{status.name} {status.state}   {status.unprocessed:,} not processed"
            shown.update(task, description=text, total=most, completed=most - status.unprocessed)

        yield update


def _follow(found: Cluster, job: str, lines: int) -> None:
    with suppress(KeyboardInterrupt):
        for more in found.follow(job, lines):
            _print(more)


def _print(lines: list[str]) -> None:
    for line in lines:
        print(line, flush=True)


# what is lost


def _warn(job: JobStatus, *, purge: bool) -> None:
    console = Console(stderr=True, highlight=False)
    left = f'{job.unprocessed:,} events of job "{job.name}" are not processed yet'
    if job.unprocessed and purge:
        console.print(f"warning: {left}, and are lost with its journals", soft_wrap=True)
    elif job.unprocessed:
        stay = "they stay in its journals, for a job that is deployed under this name"
        console.print(f"warning: {left}; {stay}", soft_wrap=True)
    elif purge:
        gone = f'the journals and checkpoints of job "{job.name}" are removed'
        console.print(f"warning: {gone}", soft_wrap=True)


def _warn_of_stop(listed: list[JobStatus]) -> None:
    from millstream.engine.jobs.lifecycle import ALIVE

    busy = [job for job in listed if job.state in ALIVE]
    if busy:
        names = ", ".join(job.name for job in busy)
        until = "until an engine is started again; nothing is lost"
        text = f"warning: {names} stop taking events {until}"
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)


# what is shown


def _list(listed: list[JobStatus]) -> Table:
    made = table(
        ("job", "id", "state", "since"), ("not processed", "late", "dead letters", "restarts")
    )
    made.add_column("reason", overflow="fold")
    for job in listed:
        numbers = [f"{number:,}" for number in (job.unprocessed, job.late, job.dead, job.restarts)]
        made.add_row(job.name, job.id, str(job.state), at(job.since), *numbers, job.reason or "")
    return made


def _view(job: JobStatus) -> Group:
    parts: list[Any] = [Text(_head(job))]
    if job.reason:
        parts.append(Text(job.reason, style="red"))
    if job.groups:
        parts.append(_groups(job))
    parts += [
        Text(f"inbox {one.source}/{one.partition}  {one.address}  {_inbox(one)}")
        for one in job.inboxes
    ]
    parts += [Text(_producer(one)) for one in job.producers]
    parts += [
        Text(f"copy  {one.source}/{one.partition}  {one.original}  {_copy(one)}")
        for one in job.copies
    ]
    parts += [Text(_runtime(one)) for one in job.runtimes]
    waiting = f"   letters waiting {job.waiting:,}" if job.waiting else ""
    dead = f"late {job.late:,}   dead letters {job.dead:,}{waiting}"
    foot = f"{dead}   not processed {job.unprocessed:,}"
    return Group(*parts, Text(foot, style="dim"), *map(Text, job.notices))


def _head(job: JobStatus) -> str:
    pid = "" if job.pid is None else f"   driver {job.pid}"
    again = f"   restarts {job.restarts:,}" if job.restarts else ""
    return (
        f"{job.name} (job {job.id})  {job.state} since {at(job.since)}{pid}{again}{_version(job)}"
    )


def _version(job: JobStatus) -> str:
    """Return the version of a job, if it was ever switched, and the progress of a switch."""
    if job.switch is None:
        return ""
    switch, text = job.switch, f"   version {job.version}"
    if switch.state not in ("asked", "going on"):
        return text
    keys = f", which has {switch.share * 100:g}% of the keys" if switch.share else ""
    cut = f", cut at {at(switch.cut)}" if switch.cut else ""
    waits = f", waits for {switch.waits}" if switch.waits else ""
    return f"{text}, {switch.phase} {switch.version}{keys}{cut}{waits}"


def _inbox(one: InboxStatus) -> str:
    text = f"{one.rows:,} taken, {one.waiting:,} wait, room for {one.free:,}"
    text += f", {one.expired:,} staged files expired" if one.expired else ""
    return f"{text}, {one.error}" if one.error else text


def _producer(one: ProducerStatus) -> str:
    """Return what a producer may send, and how often it had to wait."""
    limits = [
        f"{most:,} {what}"
        for most, what in (
            (one.rows_per_second, "rows/s"),
            (one.bytes_per_second, "bytes/s"),
            (one.most_connections, "connections"),
        )
        if most is not None
    ]
    sent = f"{one.rows:,} rows, {one.connections:,} connections"
    return f"producer {one.name}  at most {', '.join(limits)}  {sent}, waited {one.waits:,} times"


def _runtime(one: RuntimeStatus) -> str:
    place = "" if one.address is None else f"  {one.address}  generation {one.generation}"
    again = f"  restarts {one.restarts:,}" if one.restarts else ""
    left = f"  oldest message {one.oldest:,}" if one.oldest else ""
    pid = "" if one.pid is None else f"  process {one.pid}"
    aside = f"  damaged queues set aside {one.set_aside:,}" if one.set_aside else ""
    return f"{one.role} {one.node}  {one.state}{place}{pid}{again}{left}{aside}"


def _copy(one: CopyStatus) -> str:
    text = f"{one.rows:,} here, {one.behind_bytes:,} bytes behind"
    return f"{text}, {one.error}" if one.error else text


def _groups(job: JobStatus) -> Table:
    made = table(("group",), ("in", "out", "batch", "lag", "watermark", "state"))
    for group in job.groups:
        counts = f"{group.rows_in:,}", f"{group.rows_out:,}"
        made.add_row(group.name, *counts, *group_cells(group))
    return made


def at(text: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds_of(text)))
