"""`millstream send`: events from standard input into a source's journal."""

from __future__ import annotations

import json as jsonlib
import os
import select
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import typer

from millstream import ingest
from millstream.clock import SystemClock
from millstream.errors import AlreadyWriting, Ended, JournalMissing, NotThere
from millstream.flow.load import load
from millstream.flow.stages import Source
from millstream.ingest import Feed
from millstream.journal import Description, Reader

_BYTES: Final = 1 << 20
_ROWS: Final = 8192
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What a run of `millstream send` has done; `repeated` were there already, from this sender."""

    target: str
    sender: str
    sent: int
    repeated: int
    refused: int
    seconds: float
    ended: bool

    def __str__(self) -> str:
        notes = [f"{self.repeated:,} were there already"] if self.repeated else []
        if self.refused:
            notes.append(f"{self.refused:,} refused, see millstream journal cat {self.target}.dead")
        said = f"sent {self.sent:,} events in {self.seconds:.2f} s" + (f" ({'; '.join(notes)})" if notes else "")
        return f"{said}\nended {self.target}" if self.ended else said


def send(
    target: Annotated[str, typer.Argument(metavar="FLOW.SOURCE", help="The source that the events are for.")],
    data: Annotated[Path, typer.Option(help="The data folder of the flow.")] = Path(".millstream"),
    flow: Annotated[Path | None, typer.Option(help="The flow's file: makes the journal if it is not there.")] = None,
    sender: Annotated[
        str | None, typer.Option(help="A name to send the same lines under again: what is there is not stored twice.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="End the stream after the last event.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds to wait for another sender to be done.")] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result for machines.")] = False,
) -> None:
    """Send JSON lines from standard input to a source of a flow.

    Each line is an object with the source's columns. Events are durable when the command says so. What cannot be taken
    goes to the source's dead letters with its reason, and does not stop the others.
    """
    description, settings = journal_of(target, data, flow)
    feed = _feed(target, description, settings, time_limit)
    sender = sender or f"send:{uuid.uuid4().hex}"
    began, interrupted = time.monotonic(), False
    try:
        _pump(feed, sender, description.schema, end=end)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        feed.close()
    took = time.monotonic() - began
    result = Sent(target, sender, feed.rows, feed.repeated, feed.refused, took, end and not interrupted)
    print(jsonlib.dumps(asdict(result)) if json else result)
    if interrupted:
        raise typer.Exit(130)


def journal_of(target: str, data: Path, flow: Path | None) -> tuple[Description, ingest.Settings]:
    """Return the journal of "FLOW.SOURCE", made from the flow's file if one is given.

    Raises:
        NotThere: There is no such journal, or no such source in the flow.
    """
    name, _, source = target.partition(".")
    folder = data / name / "journals" / source
    if not source:
        raise NotThere(f'"{target}" does not name a source', hint="write FLOW.SOURCE, like flights.departures")
    if flow is not None:
        return ingest.declare(_source(flow, name, source), folder)
    try:
        return ingest.declared(folder)
    except JournalMissing as exc:
        raise NotThere(f'there is no journal of "{target}" in {data}', hint=_hint(target, data)) from exc


def _hint(target: str, data: Path) -> str:
    known = sorted(
        f"{path.parent.parent.parent.name}.{path.parent.name}" for path in data.glob("*/journals/*/source.json")
    )
    make = f"millstream send {target} --flow FILE makes it, and so does millstream run"
    return f"{make}; there are {', '.join(known)}" if known else make


def _source(file: Path, name: str, source: str) -> Source:
    flow = load(file)
    stage = flow.stages.get(source)
    if flow.name != name:
        raise NotThere(f'{file} holds flow "{flow.name}", not "{name}"', hint=f"millstream send {flow.name}.{source}")
    if not isinstance(stage, Source):
        found = [key for key, one in flow.stages.items() if isinstance(one, Source)]
        raise NotThere(f'flow "{name}" has no source "{source}"', hint=f"its sources are {', '.join(found)}")
    return stage


def _pump(feed: Feed, sender: str, schema: pa.Schema, *, end: bool) -> None:
    lines = 0
    for block in _blocks(sys.stdin.buffer.fileno(), feed):
        feed.take(sender, ingest.parse_rows(block, schema, lines))
        lines += len(block)
    if end:
        feed.end()


def _feed(target: str, description: Description, settings: ingest.Settings, time_limit: float) -> Feed:
    parts = [Reader(description.path).partition(number) for number in range(description.partitions)]
    if all(part.state_at(part.end).ended for part in parts):
        raise Ended(
            f'"{target}" has ended: it takes no more events', hint="start the flow again in a new --data folder"
        )
    try:
        return ingest.open_feed(description, settings, SystemClock())
    except AlreadyWriting as exc:
        print(f"waiting: {exc}", file=sys.stderr)
        return ingest.open_feed(description, settings, SystemClock(), wait_s=time_limit)


def _blocks(stream: int, feed: Feed) -> Iterator[list[bytes]]:
    """Yield the lines that are there, at most `_ROWS` at a time, and watch over idle partitions while there are none."""
    rest = b""
    while chunk := _read(stream, feed):
        *lines, rest = (rest + chunk).split(b"\n")
        for at in range(0, len(lines), _ROWS):
            yield lines[at : at + _ROWS]
    if rest:
        yield [rest]


def _read(stream: int, feed: Feed) -> bytes:
    while not select.select([stream], [], [], _TICK_S)[0]:
        feed.tick()
    return os.read(stream, _BYTES)
