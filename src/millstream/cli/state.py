"""`millstream state ls | show | export | import`: what the stages of a job keep for each key.

A job is the flow of a run, in DATA/FLOW, or a job in the data folder of an engine. It may run
meanwhile: what is read is the state of one committed batch, and nothing is locked. With `--engine`
the job's driver reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.data import data_of
from millstream.cli.jobs import cluster
from millstream.cli.options import Data, Engines, Job, Json, Storage, TokenFile
from millstream.cli.output import show as shown
from millstream.cli.output import table
from millstream.cli.state_reading import reading_spark
from millstream.journal.plain import as_json

if TYPE_CHECKING:
    from millstream.engine.jobs.state_status import StageStatus, StateRows
    from millstream.spark.inspection.key_states import KeyStates
    from millstream.spark.inspection.place import JobPlace
    from millstream.spark.inspection.stages import StageSummary

app = typer.Typer(no_args_is_help=True)

Stage = Annotated[
    str, typer.Argument(metavar="STAGE", help="The stage; GROUP.STAGE if several groups have it.")
]
At = Annotated[
    int | None, typer.Option(min=0, metavar="BATCH", help="As of an earlier committed batch.")
]


@app.callback()
def states() -> None:
    """Look at what stages keep for each key."""


@app.command("ls")
def list_states(
    job: Job,
    data: Data = None,
    storage: Storage = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """List the stages of a job that keep state, with their keys and sizes."""
    found: Sequence[StageStatus | StageSummary]
    if engine:
        with cluster(engine, token_file) as asked:
            found = asked.states(job)
    else:
        found = _listed(job, data, storage)
    grid = table(("group", "stage", "kind", "columns"), ("keys", "size", "batch"))
    for one in found:
        columns = "-" if one.columns is None else ", ".join(one.columns)
        keys = "-" if one.keys is None else f"{one.keys:,}"
        size = f"{one.bytes:,} B"
        grid.add_row(one.group, one.stage, one.kind, columns, keys, size, str(one.batch))
    shown(found, grid if found else f'no stage of "{job}" keeps state', json=json)


def _listed(job: str, data: Path | None, storage: str | None) -> list[StageSummary]:
    from millstream.spark.inspection.stages import listed

    with ExitStack() as stack:
        # Spark is started if a stage is there that has keys.
        spark = cache(lambda: stack.enter_context(reading_spark(storage)))
        return listed(_place(data, job, storage), spark)


@app.command()
def show(
    job: Job,
    stage: Stage,
    key: Annotated[
        str | None, typer.Option(help="Only this key: its values with commas, or as JSON.")
    ] = None,
    at: At = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most keys to show.")] = 20,
    data: Data = None,
    storage: Storage = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show the state of a stage, a row for each key."""
    if engine:
        with cluster(engine, token_file) as asked:
            remote = asked.state_rows(job, stage, key=key, at=at, limit=limit)
        _show(remote.rows, remote, job, key, json=json)
        return
    with _read(job, stage, at, data, storage) as found:
        _show(found.plain(limit, key), found, job, key, json=json)


def _show(
    rows: list[dict[str, Any]], of: StateRows | KeyStates, job: str, key: str | None, *, json: bool
) -> None:
    if json:
        for row in rows:
            print(as_json(row))
        return
    grid = table(tuple(rows[0]) if rows else ())
    for row in rows:
        grid.add_row(*("-" if value is None else str(value) for value in row.values()))
    if rows:
        shown(None, grid, json=False)
    rest = "" if key is not None or of.keys <= len(rows) else f" of {of.keys:,}"
    typer.echo(f"{len(rows):,}{rest} keys of {job}.{of.stage}, batch {of.batch}", err=True)


@app.command()
def export(
    job: Job,
    stage: Stage,
    to: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to write: .parquet, .jsonl or .csv.")
    ],
    at: At = None,
    data: Data = None,
    storage: Storage = None,
    json: Json = False,
) -> None:
    """Write the state of a stage to a file, a row for each key."""
    from millstream.spark.inspection.exporting import export_states
    from millstream.spark.inspection.table_files import kind_of

    kind_of(to)
    with _read(job, stage, at, data, storage) as found:
        written = export_states(found, to, job)
    text = f"{written.keys:,} keys of {job}.{written.stage}, batch {written.batch}: {to}"
    shown(written, text, json=json)


@app.command("import")
def import_state(
    job: Job,
    stage: Stage,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file, as of an export.")],
    data: Data = None,
    storage: Storage = None,
    json: Json = False,
) -> None:
    """Let a stage go on with the state in a file, all of it; the job must not run."""
    from millstream.spark.inspection.importing import import_states
    from millstream.spark.inspection.place import stopped
    from millstream.spark.inspection.stages import find_stage
    from millstream.spark.inspection.table_files import kind_of

    kind_of(file)
    place = _place(data, job, storage)
    found, name = find_stage(place, stage)
    with stopped(place), reading_spark(storage) as spark:
        done = import_states(spark, found, name, file)
    text = (
        f"{done.keys:,} keys for {job}.{done.stage}, {done.new:,} of them new; {done.gone:,} gone"
    )
    shown(done, f"{text}; the next start goes on with them", json=json)


def _place(data: Path | None, job: str, storage: str | None) -> JobPlace:
    from millstream.spark.inspection.place import job_place

    return job_place(data_of(data), job, storage)


@contextmanager
def _read(
    job: str, stage: str, at: int | None, data: Path | None, storage: str | None
) -> Iterator[KeyStates]:
    from millstream.spark.inspection.key_states import read_states
    from millstream.spark.inspection.stages import find_stage

    found, name = find_stage(_place(data, job, storage), stage)
    with reading_spark(storage) as spark:
        yield read_states(spark, found, name, at)
