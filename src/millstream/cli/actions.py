"""`millstream actions add | ls | show | rm`: programs that are stored on engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from millstream.cli.jobs import at, cluster
from millstream.cli.options import Engines, Json, TokenFile
from millstream.cli.output import show as show_result
from millstream.errors import NoSuchAction
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.engine.jobs.status import BinaryStatus

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The program's name.")]


@app.command()
def add(
    name: Name,
    file: Annotated[Path, typer.Argument(help="The program: one executable file.")],
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Store a program as a new version of NAME; flows and schemes call it NAME@VERSION."""
    with cluster(engine, token_file) as found, _progress(name) as progress:
        added = found.add_action(name, file, progress=progress)
    text = f"added {added.name}@{added.version}   {_size(added.bytes)}   sha256 {added.sha256}"
    show_result(added, text, json=json)


@app.command()
def ls(engine: Engines = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List the programs, each with its newest version."""
    with cluster(engine, token_file) as found:
        listed = found.actions()
    newest = {one.name: one for one in listed}
    rows = _table([_of_all(one, listed) for one in newest.values()])
    show_result(listed, rows if listed else "there are no actions", json=json)


@app.command()
def show(
    name: Name, engine: Engines = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Show the versions of a program, and the jobs that run them."""
    with cluster(engine, token_file) as found:
        listed = found.action(name)
    rows = _table([(f"{one.name}@{one.version}", one, one.jobs) for one in listed])
    show_result(listed, rows, json=json)


@app.command()
def rm(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="A version; without one, all of them.")
    ],
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Remove a version of a program, or all of them; refused while a job runs one."""
    with cluster(engine, token_file) as found:
        gone = found.remove_action(*_named(name))
    names = ", ".join(f"{one.name}@{one.version}" for one in gone)
    show_result(gone, f"removed {names}", json=json)


def _named(text: str) -> tuple[str, int | None]:
    from millstream.flow.binary import parse

    if "@" not in text:
        return text, None
    named = parse(text)
    if named is None or named.version is None:
        hint = "name one like score@2, or all: score"
        raise NoSuchAction(f'"{text}" is not a version of an action', hint=hint)
    return named.name, named.version


def _of_all(
    newest: BinaryStatus, listed: list[BinaryStatus]
) -> tuple[str, BinaryStatus, list[str]]:
    jobs = dict.fromkeys(job for one in listed if one.name == newest.name for job in one.jobs)
    return f"{newest.name}@{newest.version}", newest, list(jobs)


def _table(rows: list[tuple[str, BinaryStatus, list[str]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("action", "size", "added", "sha256", "jobs"):
        table.add_column(column, justify="right" if column == "size" else "left", overflow="fold")
    for title, one, jobs in rows:
        table.add_row(title, _size(one.bytes), at(one.added_at), one.sha256, ", ".join(jobs))
    return table


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show the progress on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    name_of = TextColumn("{task.description}")
    columns = (name_of, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(name, total=None)
        yield lambda sent, total: shown.update(task, completed=sent, total=total)
