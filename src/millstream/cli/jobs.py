"""`millstream deploy | jobs | status | logs | wait | drain | resume | undeploy | stop`: jobs on engines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from millstream.cli.environment import engines_of_environment
from millstream.cli.run import moment

if TYPE_CHECKING:
    from millstream.cluster import Cluster
    from millstream.engine.jobs.status import CopyStatus, InboxStatus, JobStatus, RuntimeStatus

#: How `wait` and `drain` end when the job has failed, and when the time is over.
FAILED: Final = 5
TIME_OVER: Final = 4

Job = Annotated[str, typer.Argument(metavar="JOB", help="The name or id of the job.")]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="The engine, or all engines of a cluster; default MILLSTREAM_ENGINE.",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="The file with the engine's token; default MILLSTREAM_TOKEN.")
]
Timeout = Annotated[float | None, typer.Option(min=0.0, help="The most seconds to wait.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def deploy(
    flow: Annotated[Path, typer.Argument(help="A flow (.py, .yaml) or a scheme (.yaml, .json).")],
    name: Annotated[
        str | None, typer.Option(help="The name of the job; by default, that of the flow.")
    ] = None,
    rows_per_batch: Annotated[
        int | None,
        typer.Option(min=1, help="The most rows that a micro-batch reads from a journal."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Where windows and joins keep their state: memory or rocksdb."),
    ] = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Deploy a flow or a scheme, on one engine or a cluster."""
    _check(flow)
    options = {"rows_per_batch": rows_per_batch, "state": state}
    with cluster(engine, token_file) as found:
        with Console(stderr=True).status(f"deploying {flow}"):
            job = found.deploy(
                flow, name=name, options={k: v for k, v in options.items() if v is not None}
            )
        told(job, f"deployed {job.name} (job {job.id})   {found.urls[0]}/jobs/{job.id}", json=json)


def _check(flow: Path) -> None:
    """Report mistakes here, where the file is, with their line."""
    from millstream.actions import scheme

    if scheme.described_in(flow):
        scheme.load(flow)
        return
    from millstream.flow.load import load
    from millstream.plan.groups import plan
    from millstream.plan.objections import check_new

    check_new(plan(load(flow)))


def jobs(engine: Engines = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List the jobs."""
    with cluster(engine, token_file) as found:
        listed = found.jobs()
    if json:
        print(encoded(listed))
    elif not listed:
        print("there are no jobs")
    else:
        Console(width=width()).print(_list(listed))


def status(
    job: Job, engine: Engines = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Show a job in detail."""
    with cluster(engine, token_file) as found:
        shown = found.status(job)
    if json:
        print(encoded(shown))
    else:
        Console(width=width()).print(_view(shown))


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
    with cluster(engine, token_file) as found:
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
    with cluster(engine, token_file) as found:
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
    with cluster(engine, token_file) as found:
        found.drain(job, flush=flush)
        _wait(found, job, timeout, json=json)


def resume(
    job: Job, engine: Engines = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Continue a drained or failed job."""
    with cluster(engine, token_file) as found:
        resumed = found.resume(job)
    told(resumed, f"resumed {resumed.name} (job {resumed.id})", json=json)


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
    with cluster(engine, token_file) as found:
        if force:
            _warn(found.status(job), purge=purge)
        gone = found.undeploy(job, force=force, purge=purge)
    kept = "nothing of it is left" if purge else "its journals stay"
    told(gone, f"undeployed {gone.name} (job {gone.id}); {kept}", json=json)


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
    if json:
        print(encoded({"stopped": gone, "engines": found.urls}))
    else:
        print(f"stopped {urls}" if gone else f"{urls} is still stopping")
    if not gone:
        raise typer.Exit(TIME_OVER)


# engines


@contextmanager
def cluster(engines: list[str] | None, token_file: Path | None) -> Iterator[Cluster]:
    """Return the engines from the command or the environment."""
    from millstream.cluster import DEFAULT, Cluster
    from millstream.engine.tokens import read_token

    named = engines or engines_of_environment()
    token = os.environ.get("MILLSTREAM_TOKEN") or None
    if token_file is not None:
        token = read_token(token_file)
    with Cluster(named or [DEFAULT], token) as found:
        yield found
        for url in found.away:
            text = f"warning: the engine at {url} does not answer; what it has is not counted"
            Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def encoded(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def told(job: JobStatus, text: str, *, json: bool) -> None:
    print(encoded(job) if json else text)


# waiting


def _wait(found: Cluster, job: str, timeout: float | None, *, json: bool) -> None:
    from millstream.engine.jobs.lifecycle import SETTLED, JobState

    with _progress(job) as progress:
        ended = found.wait(job, timeout, progress=progress)
    reason = f": {ended.reason}" if ended.reason else ""
    told(ended, f"{ended.name} {_STATES[ended.state]}{reason}", json=json)
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
        console.print(
            f"warning: {left}; they stay in its journals, for a job that is deployed under this name",
            soft_wrap=True,
        )
    elif purge:
        console.print(
            f'warning: the journals and checkpoints of job "{job.name}" are removed', soft_wrap=True
        )


def _warn_of_stop(listed: list[JobStatus]) -> None:
    from millstream.engine.jobs.lifecycle import ALIVE

    busy = [job for job in listed if job.state in ALIVE]
    if busy:
        names = ", ".join(job.name for job in busy)
        text = (
            f"warning: {names} stop taking events until an engine is started again; nothing is lost"
        )
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)


# what is shown


def width() -> int | None:
    """Return None for a terminal, and a large width for a pipe."""
    return None if Console().is_terminal else 140


def _list(listed: list[JobStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "id", "state", "since"):
        table.add_column(name)
    for name in ("not processed", "late", "dead letters", "restarts"):
        table.add_column(name, justify="right")
    table.add_column("reason", overflow="fold")
    for job in listed:
        numbers = [f"{number:,}" for number in (job.unprocessed, job.late, job.dead, job.restarts)]
        table.add_row(job.name, job.id, str(job.state), at(job.since), *numbers, job.reason or "")
    return table


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
    parts += [
        Text(f"copy  {one.source}/{one.partition}  {one.original}  {_copy(one)}")
        for one in job.copies
    ]
    parts += [Text(_runtime(one)) for one in job.runtimes]
    parts.append(
        Text(
            f"late {job.late:,}   dead letters {job.dead:,}   not processed {job.unprocessed:,}",
            style="dim",
        )
    )
    return Group(*parts)


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
    if job.switch.state in ("asked", "going on"):
        going = f", {job.switch.phase} {job.switch.version}"
    else:
        going = ""
    keys = (
        f", which has {job.switch.share * 100:g}% of the keys" if going and job.switch.share else ""
    )
    cut = f", cut at {at(job.switch.cut)}" if going and job.switch.cut else ""
    waits = f", waits for {job.switch.waits}" if going and job.switch.waits else ""
    return f"   version {job.version}{going}{keys}{cut}{waits}"


def _inbox(one: InboxStatus) -> str:
    text = f"{one.rows:,} taken, {one.waiting:,} wait, room for {one.free:,}"
    return f"{text}, {one.error}" if one.error else text


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
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("group")
    for name in ("in", "out", "batch", "lag", "watermark", "state"):
        table.add_column(name, justify="right")
    for group in job.groups:
        table.add_row(
            group.name,
            f"{group.rows_in:,}",
            f"{group.rows_out:,}",
            f"{group.batch_seconds:.1f} s",
            f"{group.lag_rows:,} ({group.lag_seconds:.1f} s)" if group.lag_rows else "0",
            moment(group.watermark_ms),
            f"{group.state_rows:,}",
        )
    return table


def at(text: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(_seconds(text)))


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
