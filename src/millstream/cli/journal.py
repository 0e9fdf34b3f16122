"""`millstream journal ls | show | cat | verify | repair`: look into journals, and repair them.

A journal is named FLOW.JOURNAL and lies in DATA/FLOW/journals/JOURNAL; its dead letters are
FLOW.JOURNAL.dead. That of a job lies in the data folder of an engine, in
DATA/jobs/JOB/JOB/journals/JOURNAL, and is named JOB.JOURNAL; with `--job JOB`, JOURNAL is enough.
With `--engine URL` the engine is asked, over HTTP.
"""

from __future__ import annotations

import contextlib
import itertools
import json as jsonlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from millstream.cli.data import data_of
from millstream.cli.journal_remote import remote
from millstream.cli.options import Data, Engines, Json, TokenFile
from millstream.errors import JournalError, JournalMissing, SchemaConflict
from millstream.journal import (
    Journal,
    JournalReader,
    Kind,
    PartitionReader,
    Slice,
    journal_at,
    journals_in,
)
from millstream.journal.health import PartitionSummary, Summary, Verification
from millstream.journal.plain import as_json, rows_of
from millstream.terminal.console import Console

app = typer.Typer(no_args_is_help=True)

Job = Annotated[str | None, typer.Option("--job", help="Only this job or flow.")]
Name = Annotated[
    str,
    typer.Argument(
        help="FLOW.JOURNAL or JOB.JOURNAL; with .dead, its dead letters. With --job, JOURNAL is enough."
    ),
]
_Read = Callable[[int, int | None], Iterator[tuple[int, dict[str, Any]]]]


@app.callback()
def journals() -> None:
    """Look into journals, and repair them."""


# finding


def flow_folders(data: Path) -> dict[str, Path]:
    """Return the folders of journals under a data folder, by flow or job."""
    found = [*data.glob("*/journals"), *data.glob("jobs/*/*/journals")]
    return {folder.parent.name: folder for folder in sorted(found)}


def named(data: Path, job: str | None = None) -> dict[str, Journal]:
    """Return the journals under a data folder, by name."""
    return {
        f"{flow}.{name}": journal
        for flow, folder in flow_folders(data).items()
        if job in (None, flow)
        for name, journal in journals_in(folder).items()
    }


def find(name: str, data: Path, job: str | None = None) -> tuple[str, Journal]:
    """Return the journal of a name, with its whole name.

    Raises:
        JournalMissing: There is none.
    """
    whole = name if job is None or name.startswith(f"{job}.") else f"{job}.{name}"
    flow, _, rest = whole.partition(".")
    short, _, letters = rest.partition(".")
    folder = flow_folders(data).get(flow)
    if folder is not None and short and letters in ("", "dead"):
        journal = journal_at(folder / short)
        found = journal.dead_journal() if letters else journal
        if journal.exists() and not found.exists():
            raise JournalMissing(f'journal "{flow}.{short}" has no dead letters')
        if journal.exists():
            return whole, found
    known = list(named(data, job))
    hint = (
        f"there are {', '.join(known)}"
        if known
        else f'there are none in "{data}": run a flow, or give --data'
    )
    raise JournalMissing(f'there is no journal "{whole}"', hint=hint)


# ls


@app.command("ls")
def list_journals(
    data: Data = None,
    job: Job = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """List the journals of flows, or of the jobs of an engine; with --engine over HTTP."""
    if engine:
        _list_remote(engine, token_file, job, json=json)
        return
    data = data_of(data)
    found, damaged = _summaries(data, job)
    for name, error in damaged.items():
        typer.echo(f"{name}: {error}", err=True)
    if json:
        print(jsonlib.dumps([_plain(name, one) for name, one in found.items()], indent=2))
        return
    if not found and not damaged:
        print(f"there are no journals in {data}")
        return
    table = _table(
        "journal", "*partitions", "*rows", "*size", "last append", "*readers", "*dead", "*lost"
    )
    for name, one in found.items():
        last = max((part.last_append_at or 0 for part in one.partitions), default=0)
        table.add_row(
            name,
            f"{len(one.partitions)}",
            f"{one.rows:,}",
            _size(one.bytes),
            _moment(last or None),
            f"{len(one.readers)}",
            f"{sum(one.dead.values()):,}",
            f"{one.lost:,}",
        )
    _console().print(table)


def _list_remote(
    engines: list[str], token_file: Path | None, job: str | None, *, json: bool
) -> None:
    """List the journals of jobs as their engines have them."""
    from millstream.cli.jobs import cluster

    with cluster(engines, token_file) as found:
        jobs = [one.name for one in found.jobs()] if job is None else [job]
        listed = [(name, one) for name in jobs for one in found.journals(name)]
    if json:
        plain = [{**msgspec.to_builtins(one), "name": f"{name}.{one.name}"} for name, one in listed]
        print(jsonlib.dumps(plain, indent=2))
        return
    table = _table("journal", "*partitions", "*rows", "*size", "*readers", "*dead", "*lost")
    for name, one in listed:
        table.add_row(
            f"{name}.{one.name}",
            f"{len(one.partitions)}",
            f"{one.rows:,}",
            _size(one.bytes),
            f"{len(one.readers)}",
            f"{sum(one.dead.values()):,}",
            f"{sum(part.lost for part in one.partitions):,}",
        )
    _console().print(table)


def _summaries(data: Path, job: str | None) -> tuple[dict[str, Summary], dict[str, JournalError]]:
    """Return the summaries of the journals, and those that are damaged."""
    found: dict[str, Summary] = {}
    damaged: dict[str, JournalError] = {}
    for name, journal in named(data, job).items():
        try:
            found[name] = journal.summary()
        except JournalError as error:
            damaged[name] = error
    return found, damaged


# show


@app.command()
def show(
    name: Name,
    data: Data = None,
    job: Job = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show a journal: partitions, senders, readers and their lag, what was late, dead or lost."""
    if engine:
        with remote(engine, token_file, name, job) as there:
            name, found = there.name, there.summary()
    else:
        name, journal = find(name, data_of(data), job)
        found = journal.summary()
    if json:
        print(jsonlib.dumps(_plain(name, found), indent=2))
        return
    console = _console()
    columns = ", ".join(f"{column} {kind}" for column, kind in found.columns.items())
    head = f"{name}  {found.rows:,} rows, {_size(found.bytes)}, written by {_writer(found)}"
    console.print(head, highlight=False, markup=False, soft_wrap=True)
    console.print(f"columns  {columns}", highlight=False, markup=False, soft_wrap=True)
    if found.place is not None:
        console.print(f"kept in  {found.place}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"time     {found.time or 'none'}\n", highlight=False, markup=False)
    console.print(_partitions(found.partitions))
    console.print(_senders(found.partitions))
    if found.readers:
        console.print(_readers(found))
    _print_losses(console, name, found)


def _writer(found: Summary) -> str:
    return "inboxes" if found.written_by == "inbox" else "a group"


def _partitions(partitions: tuple[PartitionSummary, ...]) -> Table:
    table = _table(
        "*partition",
        "*begin",
        "*end",
        "*rows",
        "*size",
        "*segments",
        "from",
        "to",
        "floor",
        "last append",
    )
    for part in partitions:
        table.add_row(
            f"{part.partition}",
            f"{part.begin:,}",
            f"{part.end:,}",
            f"{part.rows:,}",
            _size(part.bytes),
            f"{part.segments}",
            _moment(part.min_time),
            _moment(part.running_max),
            "ended" if part.ended else _moment(part.floor),
            _moment(part.last_append_at),
        )
    return table


def _senders(partitions: tuple[PartitionSummary, ...]) -> Table:
    table = _table("*partition", "sender", "*highest sequence")
    for part in partitions:
        for sender, highest in sorted(part.highest.items()):
            table.add_row(f"{part.partition}", sender, f"{highest:,}")
    return table


def _readers(found: Summary) -> Table:
    table = _table("reader", "positions", "*behind")
    for reader in found.readers:
        positions = ", ".join(f"{position:,}" for _, position in sorted(reader.positions.items()))
        table.add_row(reader.reader, positions, f"{reader.lag:,}")
    return table


def _print_losses(console: Console, name: str, found: Summary) -> None:
    for reason, count in sorted(found.dead.items(), key=lambda item: -item[1]):
        console.print(
            f"dead letters  {count:,}  {reason}", highlight=False, markup=False, soft_wrap=True
        )
    if found.dead:
        console.print(f"see millstream journal cat {name}.dead", style="dim", highlight=False)
    if found.lost:
        console.print(
            f"lost          {found.lost:,} positions, kept aside by a repair",
            style="red",
            highlight=False,
        )


# cat


@app.command()
def cat(
    name: Name,
    data: Data = None,
    job: Job = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    start: Annotated[int | None, typer.Option("--from", help="The first position.")] = None,
    limit: Annotated[int | None, typer.Option(help="The most rows to print.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns: a,b,c.")] = None,
    positions: Annotated[
        bool, typer.Option("--positions", help="Add the partition and the position of each row.")
    ] = False,
    engine: Engines = None,
    token_file: TokenFile = None,
) -> None:
    """Print rows as JSON lines."""
    with contextlib.ExitStack() as stack:
        if engine:
            there = stack.enter_context(remote(engine, token_file, name, job))
            count = there.partitions()
            read: _Read = partial(there.rows, columns=columns, limit=limit)
        else:
            reader = find(name, data_of(data), job)[1].reader()
            count, read = reader.description.partitions, _local(reader, columns, limit)
        parts = range(count) if partition is None else [partition]
        found = ((number, *one) for number in parts for one in read(number, start))
        for number, position, row in itertools.islice(found, limit):
            place = {"_partition": number, "_position": position} if positions else {}
            print(as_json({**place, **row}))


def _local(reader: JournalReader, columns: str | None, limit: int | None) -> _Read:
    wanted, most = _columns(columns, reader), math.inf if limit is None else limit
    return lambda number, start: _rows(reader.partition(number), start, wanted, most)


def _columns(given: str | None, reader: JournalReader) -> list[str] | None:
    if given is None:
        return None
    wanted = [column.strip() for column in given.split(",")]
    unknown = [column for column in wanted if column not in reader.description.schema.names]
    if unknown:
        msg = f'the journal has no column "{unknown[0]}"'
        hint = f"its columns are {', '.join(reader.description.schema.names)}"
        raise SchemaConflict(msg, hint=hint)
    return wanted


def _rows(
    part: PartitionReader, start: int | None, columns: list[str] | None, limit: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    begin = part.begin if start is None else max(start, part.begin)
    for found in part.read(begin, part.end, columns):
        if found.kind is Kind.LOST:
            typer.echo(f"positions {found.position} to {found.stop - 1} are lost", err=True)
        if found.batch is not None:
            yield from _numbered(found, limit)


def _numbered(found: Slice, limit: float) -> Iterator[tuple[int, dict[str, Any]]]:
    assert found.batch is not None
    batch = found.batch.slice(0, int(limit) + 1) if limit < found.batch.num_rows else found.batch
    for offset, row in enumerate(rows_of(batch)):
        yield found.position + offset, row


# verify and repair


@app.command()
def verify(
    name: Name,
    data: Data = None,
    job: Job = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Check every checksum of a journal; list what is damaged, and exit with status 1."""
    if engine:
        with remote(engine, token_file, name, job) as there:
            name, report = there.name, there.verify()
    else:
        name, journal = find(name, data_of(data), job)
        report = _verified(journal, quiet=json)
    if json:
        print(jsonlib.dumps(asdict(report), indent=2, default=str))
    else:
        _print_report(name, report)
    if report.damages:
        raise typer.Exit(1)


def _verified(journal: Journal, *, quiet: bool) -> Verification:
    bar = Progress(
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet,
        transient=True,
    )
    with bar:
        task = bar.add_task("verify", total=journal.bytes_to_verify())
        return journal.verify(lambda count: bar.advance(task, count))


def _print_report(name: str, report: Verification) -> None:
    for damage in report.damages:
        print(f"damaged: {damage}")
    lost = f", {report.lost:,} positions lost before" if report.lost else ""
    state = _places(len(report.damages), "damaged") if report.damages else "sound"
    print(
        f"{name}: {state}; {report.rows:,} rows in {report.entries:,} batches, {_size(report.bytes)}{lost}"
    )
    if report.damages:
        print(f"  hint: stop the writer, then millstream journal repair {name}")


@app.command()
def repair(name: Name, data: Data = None, job: Job = None, json: Json = False) -> None:
    """Move damaged bytes aside, so that readers continue; the loss is counted and shown."""
    name, journal = find(name, data_of(data), job)
    done = journal.repair()
    if json:
        print(jsonlib.dumps([asdict(one) for one in done], indent=2, default=str))
        return
    for one in done:
        kept = f", its bytes are in {one.aside}" if one.aside else ""
        if one.positions:
            lost = f"{one.positions:,} positions from {one.position:,} are lost"
        else:
            lost = "no rows are lost"
        print(f"partition {one.partition}: {one.fact}; {lost}{kept}")
    print(f"{name}: {_places(len(done), 'repaired') if done else 'nothing to repair'}")


# words


def _plain(name: str, found: Summary) -> dict[str, Any]:
    body: dict[str, Any] = asdict(found)
    return {
        "name": name,
        **body,
        "path": str(found.path),
        "rows": found.rows,
        "bytes": found.bytes,
        "lost": found.lost,
    }


def _table(*columns: str) -> Table:
    """Return a plain table; a column with a star is a number."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.lstrip("*"), justify="right" if column.startswith("*") else "left", no_wrap=True
        )
    return table


def _console() -> Console:
    """Return the console; in a file or a pipe, lines are not wrapped."""
    return Console() if sys.stdout.isatty() else Console(width=240)


def _places(count: int, what: str) -> str:
    return f"{count} place{'s' if count > 1 else ''} {what}"


def _moment(moment: int | None) -> str:
    if moment is None:
        return "none"
    try:
        return datetime.fromtimestamp(moment / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):  # a floor may lie beyond what a calendar holds
        return "forever" if moment > 0 else "none"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
