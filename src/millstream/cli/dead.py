"""`millstream dead ls | show | replay | discard`: what was refused, and what becomes of it.

JOB is a flow in a data folder, or a job of an engine; with `--engine URL` the engine is asked, over HTTP.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.dead_places import LettersHere, LettersThere, Place
from millstream.cli.options import Data, Engines, Job, Json, TokenFile
from millstream.cli.output import encoded, show, table
from millstream.terminal import neutral

if TYPE_CHECKING:
    from millstream.dead.choice import Choice
    from millstream.dead.replay import Replayed
    from millstream.journal.letters import Letter

app = typer.Typer(no_args_is_help=True)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Only these letters; how an id begins is enough."),
]
Journal = Annotated[str | None, typer.Option(help="Only letters of this journal.")]
Stage = Annotated[str | None, typer.Option(help="Only letters of this stage, or source.")]
Reason = Annotated[str | None, typer.Option(help="Only letters whose reason has this text.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help='Only letters since "2 hours ago" or a time.')
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only letters before this time.")]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help="Only letters whose row meets this: \"amount > 9 AND till = 't1'\"."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Also letters that are replayed or discarded.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, though no letter was named.")]
Edit = Annotated[
    Path | None,
    typer.Option(
        help="Write the letters to this file; if it exists, replay the rows that it has.",
        dir_okay=False,
    ),
]
To = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="Replay to this source, not to their own.")
]
Late = Annotated[bool, typer.Option("--late", help="Also rows that were late, or will be.")]
Key = Annotated[Path | None, typer.Option(help="Your key, if the flow needs keys.")]
Server = Annotated[Path | None, typer.Option(help="The public key of the flow.")]


@app.callback()
def dead() -> None:
    """Show, replay and discard dead letters."""


@app.command("ls")
def list_letters(
    job: Job,
    journal: Journal = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    all_: All = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Only so many, the newest.")
    ] = None,
    data: Data = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """List dead letters: those that wait, oldest first."""
    choice = _choice(journal, stage, reason, since, until, where, all_=all_)
    with _place(job, data, engine, token_file) as place:
        known = place.letters()
    found = _chosen(known, choice)[-limit:] if limit else _chosen(known, choice)
    if json:
        for one in found:
            print(encoded(_status(one)))
        return
    if not found:
        print(f"{job} has no dead letters" if not known else _nothing(job, known, choice))
        return
    shown = table(("id", "at", "stage", "state", "reason"))
    for one in found:
        shown.add_row(one.id, _time(one.at), one.stage, str(one.state), one.letter.reason)
    show(None, shown, json=False)


@app.command("show")
def show_letter(
    job: Job,
    letter: Annotated[
        str, typer.Argument(metavar="ID", help="The letter; how its id begins is enough.")
    ],
    data: Data = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show a dead letter with its row."""
    from millstream.dead.choice import Choice

    with _place(job, data, engine, token_file) as place:
        (one,) = _chosen(place.letters(), Choice(ids=(letter,)))
    if json:
        print(encoded(_status(one)))
        return
    about = {
        "letter": one.id,
        "state": one.state,
        "at": _time(one.at),
        "journal": one.journal,
        one.kind: one.stage,
        "from": f"{one.letter.origin}, partition {one.letter.partition}, position {one.letter.position}",
        "reason": one.letter.reason,
    }
    for name, value in about.items():
        print(neutral(f"{name:<8} {value}"))
    row = one.row
    print(neutral(one.letter.record) if row is None else jsonlib.dumps(row, indent=2))


@app.command()
def replay(
    job: Job,
    ids: Ids = None,
    journal: Journal = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    edit: Edit = None,
    to: To = None,
    late: Late = False,
    key: Key = None,
    server: Server = None,
    data: Data = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Put the rows of dead letters into the journals of their sources again, each once.

    Run it again if it was interrupted: what is there is not added again. What cannot be replayed
    stays, and is listed with the reason.
    """
    choice = _choice(journal, stage, reason, since, until, where, ids=ids)
    with _place(job, data, engine, token_file, key, server) as place:
        if edit is not None and edit.exists():
            done = place.replay_edited(edit.read_text(), to, late=late)
        else:
            found = _chosen(place.letters(), choice)
            if edit is not None:
                _write(edit, found, job)
                return
            done = place.replay(found, to, late=late)
    _print_replayed(done, json=json)
    if done.refused:
        raise typer.Exit(1)


@app.command()
def discard(
    job: Job,
    ids: Ids = None,
    journal: Journal = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    yes: Yes = False,
    data: Data = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Mark dead letters as not wanted any more; they are not replayed, and not counted as waiting."""
    choice = _choice(journal, stage, reason, since, until, where, ids=ids)
    with _place(job, data, engine, token_file) as place:
        found = _chosen(place.letters(), choice)
        if choice.everything and not yes:
            typer.confirm(f"discard all {len(found):,} letters of {job}?", abort=True, err=True)
        count = place.discard(found)
    print(jsonlib.dumps({"discarded": count}) if json else f"discarded {_letters(count)}")


# what is meant


def _choice(
    journal: str | None,
    stage: str | None,
    reason: str | None,
    since: str | None,
    until: str | None,
    where: str | None,
    *,
    ids: list[str] | None = None,
    all_: bool = False,
) -> Choice:
    from millstream.dead.choice import WAITING, Choice
    from millstream.journal.letters import State

    states = tuple(State) if all_ else WAITING
    begin, end = _us(since), _us(until)
    return Choice(journal, stage, reason, begin, end, where, tuple(ids or ()), states)


def _us(text: str | None) -> int | None:
    from millstream.cli.switch import moment
    from millstream.clock import micros

    return None if text is None else micros(moment(text, datetime.now(UTC)))


def _chosen(letters: list[Letter], choice: Choice) -> list[Letter]:
    from millstream.dead.choice import choose

    return choose(letters, choice)


@contextmanager
def _place(
    job: str,
    data: Path | None,
    engine: list[str] | None,
    token_file: Path | None,
    key: Path | None = None,
    server: Path | None = None,
) -> Iterator[Place]:
    if not engine:
        yield LettersHere.of(job, data, key, server)
        return
    from millstream.cli.jobs import cluster

    with cluster(engine, token_file) as found:
        yield LettersThere(found, job)


# printing


def _write(file: Path, letters: list[Letter], job: str) -> None:
    from millstream.dead.editing import as_lines

    file.write_text(as_lines(letters))
    print(
        f"wrote {_letters(len(letters))} to {file}; edit the rows, remove the lines that should wait, then run\n"
        f"millstream dead replay {job} --edit {file}"
    )


def _print_replayed(done: Replayed, *, json: bool) -> None:
    if json:
        print(jsonlib.dumps({"replayed": list(done.replayed), "refused": dict(done.refused)}))
        return
    print(f"replayed {_letters(len(done.replayed))}")
    for id_, why in done.refused.items():
        typer.echo(neutral(f"{id_} was not replayed: {why}"), err=True)


def _nothing(job: str, known: list[Letter], choice: Choice) -> str:
    stages = dict.fromkeys(one.stage for one in known)
    if choice.stage is not None and choice.stage not in stages:
        return f'{job} has no dead letters of a stage "{choice.stage}"; it has some of {", ".join(stages)}'
    more = "" if choice.everything else " that fit"
    return f"{job} has no dead letters{more} that wait; --all shows {_letters(len(known))}"


def _status(letter: Letter) -> object:
    from millstream.engine.http.dead_messages import status_of

    return status_of(letter)


def _letters(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
