"""`millstream token create | ls | rotate | revoke`: the tokens of an engine, in its data folder."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from millstream.cli.engine import DATA
from millstream.cli.options import Json
from millstream.engine.access.permissions import May
from millstream.errors import MillstreamError, TokenRefused
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.engine.access.permissions import Token

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the token.")]
Data = Annotated[Path, typer.Option("--data", help="The data folder of the engine.")]
To = Annotated[
    Path | None,
    typer.Option("--to", help="Write the token to this new file, for you alone; do not print it."),
]


@app.callback()
def token() -> None:
    """Create, list and revoke the tokens of an engine."""


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what the token is for.")],
    may: Annotated[list[May], typer.Option(help="What it permits; deploy means running code.")],
    job: Annotated[str | None, typer.Option(help="The only job that it is for.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it works, such as 30d.")
    ] = None,
    data: Data = DATA,
    to: To = None,
    json: Json = False,
) -> None:
    """Create a token and print it; it is not shown again."""
    from millstream.engine.access import token_book

    now = time.time()
    expires_at = None if expires is None else now + _seconds(expires)
    with _audited(_there(data), "create_token", f"token create {name}"):
        secret = token_book.create(data, name, may, now=now, job=job, expires_at=expires_at)
    _hand_over(name, secret, to, json=json)


@app.command("ls")
def list_tokens(data: Data = DATA, json: Json = False) -> None:
    """List the tokens, without their secrets."""
    from millstream.engine.access import token_book

    found = [_described(token) for token in token_book.created(_there(data))]
    if json:
        from millstream.cli.output import encoded

        print(encoded(found))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("token", "may", "job", "expires"):
        table.add_column(column)
    table.add_row("owner", "everything", "all", "never")
    for one in found:
        expires = f"{one['expires_at'] or 'never'}{' (expired)' if one['expired'] else ''}"
        table.add_row(one["name"], ", ".join(one["may"]), one["job"] or "all", expires)
    Console(soft_wrap=True).print(table)


@app.command()
def rotate(
    name: Name,
    overlap: Annotated[
        str, typer.Option(metavar="TIME", help="How long the earlier secret still works.")
    ] = "0 s",
    data: Data = DATA,
    to: To = None,
    json: Json = False,
) -> None:
    """Give a token a new secret and print it; no restart is needed."""
    from millstream.engine.access import token_book

    with _audited(_there(data), "rotate_token", f"token rotate {name}"):
        secret = token_book.rotate(data, name, now=time.time(), overlap=_seconds(overlap))
    _hand_over(name, secret, to, json=json)


@app.command()
def revoke(name: Name, data: Data = DATA, json: Json = False) -> None:
    """Revoke a token: from now on, it is refused."""
    from millstream.engine.access import token_book

    with _audited(_there(data), "revoke_token", f"token revoke {name}"):
        token_book.revoke(data, name)
    print(f'{{"revoked":"{name}"}}' if json else f"revoked {name}")


def _there(data: Path) -> Path:
    if not (data / "token").exists():
        hint = "name it with --data; an engine makes it at its first start"
        raise TokenRefused(f'"{data}" is not the data folder of an engine', hint=hint)
    return data


@contextmanager
def _audited(data: Path, what: str, request: str) -> Iterator[None]:
    """Write a change of the data folder into its audit log."""
    from millstream.engine.access.audit import AuditEntry, AuditLog
    from millstream.engine.jobs.folders import Folders

    reason = None
    try:
        yield
    except MillstreamError as error:
        reason = error.message
        raise
    finally:
        entry = AuditEntry(
            who=f"user {getpass.getuser()}",
            address="data folder",
            what=what,
            outcome="done" if reason is None else "refused",
            request=request,
            reason=reason,
        )
        AuditLog(Folders(data).audit).write(entry, time.time())


def _seconds(text: str) -> float:
    from millstream.flow.durations import duration

    return duration(text).total_seconds()


def _hand_over(name: str, secret: str, to: Path | None, *, json: bool) -> None:
    if to is not None:
        try:
            opened = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as exc:
            msg = f'token "{name}" could not be written to "{to}": {exc.strerror}'
            hint = f"millstream token rotate {name} --to FILE makes it again"
            raise TokenRefused(msg, hint=hint) from exc
        with os.fdopen(opened, "w") as file:
            file.write(f"{secret}\n")
    if json:
        from millstream.cli.output import encoded

        print(
            encoded({"name": name, "token": secret if to is None else None, "file": to and str(to)})
        )
        return
    print(secret if to is None else f"wrote {to}")
    if to is None:
        typer.echo("keep it now: it is stored nowhere", err=True)


def _described(token: Token) -> dict[str, Any]:
    from millstream.clock import iso

    return {
        "name": token.name,
        "may": list(token.may),
        "job": token.job,
        "created_at": iso(token.created_at),
        "expires_at": None if token.expires_at is None else iso(token.expires_at),
        "expired": token.expired(time.time()),
    }
