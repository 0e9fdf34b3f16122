"""`millstream audit`: who changed what on an engine, and who was refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.jobs import cluster
from millstream.cli.options import Engines, Json, TokenFile
from millstream.cli.output import encoded

if TYPE_CHECKING:
    from millstream.engine.access.audit import AuditEntry


def audit(
    job: Annotated[str | None, typer.Option(help="Only entries about this job.")] = None,
    who: Annotated[str | None, typer.Option(help="Only entries of this token or key.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help='Only entries since "2 hours ago" or a time.')
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="The most entries to show.")
    ] = 1_000,
    data: Annotated[
        Path | None, typer.Option(help="Read this data folder instead of asking an engine.")
    ] = None,
    engine: Engines = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Show who changed what, when, from where, and the outcome."""
    from millstream.clock import iso
    from millstream.engine.access.audit import AuditQuery, read
    from millstream.engine.jobs.folders import Folders

    moment = None if since is None else iso(_moment(since).timestamp())
    query = AuditQuery(job, who, moment, limit)
    if data is not None:
        found = read(Folders(data).audit, query)
    else:
        with cluster(engine, token_file) as engines:
            found = engines.audit(query)
    if json:
        for entry in found:
            print(encoded(entry))
    else:
        _show(found)


def _moment(text: str) -> datetime:
    from millstream.cli.switch import moment

    return moment(text, datetime.now(UTC))


def _show(found: list[AuditEntry]) -> None:
    if not found:
        print("there are no entries")
        return
    widths = [max(len(field(one)) for one in found) for field in (_who, _from, _request)]
    for one in found:
        times = "" if one.times == 1 else f" ({one.times:,} times)"
        reason = "" if one.reason is None else f": {one.reason}"
        named = (_who(one), _from(one), _request(one))
        cells = "  ".join(text.ljust(width) for text, width in zip(named, widths, strict=True))
        line = f"{one.at}  {cells}  {one.outcome}{times}{reason}"
        # What others have written is shown without control characters.
        print("".join(letter for letter in line if letter.isprintable()))


def _who(entry: AuditEntry) -> str:
    return entry.who


def _from(entry: AuditEntry) -> str:
    return entry.address


def _request(entry: AuditEntry) -> str:
    return entry.request or entry.what
