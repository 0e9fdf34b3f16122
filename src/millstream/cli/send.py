"""`millstream send`: events from standard input into a source's inboxes."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console

from millstream import ingest
from millstream.cli.environment import engines_of_environment
from millstream.errors import Ended, NotThere
from millstream.flow.load import load
from millstream.flow.sources import Inbox
from millstream.flow.stages import Source
from millstream.links.client import Client, connect

_BYTES: Final = 1 << 20
_ROWS: Final = 8192
_IN_FLIGHT: Final = 64
_QUIET_S: Final = 5.0


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

    def told(self, data: str | None = None) -> str:
        """Say it to a person; `data` is the folder of the flow's data, if that is not the usual one."""
        notes = [f"{self.repeated:,} were there already"] if self.repeated else []
        if self.refused:
            where = "" if data is None else f" --data {data}"
            notes.append(
                f"{self.refused:,} refused, see millstream journal cat {self.target}.dead{where}"
            )
        said = (
            f"sent {self.sent:,} {'event' if self.sent == 1 else 'events'} in {self.seconds:.2f} s"
            + (f" ({'; '.join(notes)})" if notes else "")
        )
        return f"{said}\nended {self.target}" if self.ended else said


def send(
    target: Annotated[
        str, typer.Argument(metavar="FLOW.SOURCE", help="The source that the events are for.")
    ],
    to: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Where the flow's inboxes are.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="URL", help="The engine that the flow is deployed on.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The data folder of the flow, on this host.", show_default=".millstream"),
    ] = None,
    flow: Annotated[
        Path | None, typer.Option(help="The flow's file: makes the journal if it is not there.")
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            help="A name to send the same lines under again: what is there is not stored twice."
        ),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the stream after the last event.")
    ] = False,
    key: Annotated[Path | None, typer.Option(help="Our key, if the other side wants keys.")] = None,
    server: Annotated[Path | None, typer.Option(help="The other side's public key.")] = None,
    time_limit: Annotated[
        float, typer.Option(help="Seconds to wait for inboxes that take nothing.")
    ] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result for machines.")] = False,
) -> None:
    """Send JSON lines from standard input to a source of a flow.

    Each line is an object with the source's columns. Events are durable when the command says so.
    What cannot be taken goes to the source's dead letters with its reason, and does not stop the
    others.
    """
    _check(target)
    if (to, engine, data, flow) == (None, None, None, None):
        engine = next(iter(engines_of_environment()), None)
    data = data or Path(".millstream")
    if flow is not None and to is None and engine is None:
        _declare(target, data, flow)
    kept_in: str | None = None
    if engine is not None and to is None:
        to, kept_in = _at(engine, target)
    sender = sender or f"send:{uuid.uuid4().hex}"
    client = connect(to or data, sender=sender, key=key, server=server, time_limit_s=time_limit)
    pump = _Pump(client, target)
    began = time.monotonic()
    try:
        with _silence_broken(client, to or data):
            ended = client.ended(target)
        if ended:
            hint = "start the flow again in a new --data folder"
            if engine is not None:
                hint = "undeploy the job with --purge and deploy it again"
            raise Ended(f'"{target}" has ended: it takes no more events', hint=hint)
        with _progress(pump), _silence_broken(client, to or data):
            interrupted = pump.run(end=end)
            if interrupted and client.waiting:
                typer.echo(
                    "waiting until what was sent is acknowledged; Ctrl-C again gives up", err=True
                )
            client.flush()
    except KeyboardInterrupt:
        _give_up(client)
    except BaseException:
        client.abort()
        raise
    result = pump.result(sender, time.monotonic() - began, ended=end and not interrupted)
    client.close()
    print(jsonlib.dumps(asdict(result)) if json else result.told(kept_in))
    if interrupted:
        raise typer.Exit(130)


class _Pump:
    """Lines in, events out."""

    def __init__(self, client: Client, target: str) -> None:
        self._client = client
        self._target = target
        self._waiting: deque[Future[int]] = deque()
        self._refused = 0
        self.lines = 0

    def run(self, *, end: bool) -> bool:
        """Send all lines of standard input; return whether the user has stopped it."""
        try:
            for block in _blocks(sys.stdin.buffer.fileno()):
                self._take(block)
        except KeyboardInterrupt:
            return True
        if end:
            self._client.end(self._target)
        return False

    def _take(self, block: list[bytes]) -> None:
        rows = ingest.parse_rows(block, self._client.schema(self._target), self.lines)
        # Before the rows around them: what the journal remembers of a sender covers its dead
        # letters too.
        if rows.refused:
            self._refused += self._client.refuse(self._target, rows.refused)
        if len(rows):
            numbers: Any = rows.numbers
            self._waiting.append(
                self._client.send_nowait(self._target, rows.batch, numbers=numbers)
            )
        self.lines += len(block)
        while len(self._waiting) > _IN_FLIGHT:
            self._waiting.popleft().result()

    def result(self, sender: str, seconds: float, *, ended: bool) -> Sent:
        """Return what was done, once everything is acknowledged."""
        for future in self._waiting:
            future.result()
        numbers = self._client.statistics()
        # The end counts as an event of every inbox.
        taken = sum(one.acknowledged for one in numbers) - (len(numbers) if ended else 0)
        repeated, refused = (
            sum(one.repeated for one in numbers),
            sum(one.refused for one in numbers),
        )
        sent = taken - repeated - refused
        return Sent(self._target, sender, sent, repeated, self._refused + refused, seconds, ended)


def _progress(pump: _Pump) -> AbstractContextManager[object]:
    """Show a person how far it is, unless the person is typing the events."""
    console = Console(stderr=True)
    if not console.is_terminal or sys.stdin.isatty():
        return nullcontext()
    from rich.progress import Progress, SpinnerColumn, TextColumn

    class Lines(Progress):
        def get_renderables(self) -> Any:
            self.update(task, completed=pump.lines)
            yield from super().get_renderables()

    progress = Lines(
        SpinnerColumn(), TextColumn("{task.completed:,} lines"), console=console, transient=True
    )
    task = progress.add_task("", total=None)
    return progress


@contextmanager
def _silence_broken(client: Client, where: object) -> Iterator[None]:
    """Say, once, if nothing is taken for a while: waiting may take minutes, and look like nothing at all."""
    over = threading.Event()

    def watch() -> None:
        before = 0
        while not over.wait(_QUIET_S):
            numbers = client.statistics()
            acknowledged = sum(one.acknowledged for one in numbers)
            if acknowledged == before and (client.waiting or not numbers):
                typer.echo(
                    f'waiting for "{where}", which has not answered for {_QUIET_S:.0f} s', err=True
                )
                return
            before = acknowledged

    watcher = threading.Thread(target=watch, name="send silence", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _give_up(client: Client) -> NoReturn:
    waiting = client.waiting
    client.abort()
    if waiting:
        events = "1 event is" if waiting == 1 else f"{waiting:,} events are"
        typer.echo(f"{events} not acknowledged, and may or may not be there", err=True)
    raise typer.Exit(130)


def _at(engine: str, target: str) -> tuple[str, str]:
    """Return where the inboxes of an engine are, and where on its host it keeps the data of a job."""
    from millstream.cluster import EngineClient
    from millstream.links.network import Address

    client = EngineClient(engine, os.environ.get("MILLSTREAM_TOKEN"))
    try:
        about = client.about()
    finally:
        client.close()
    return str(
        Address(about.inbox.ip, about.inbox.port)
    ), f"{about.data}/jobs/{target.partition('.')[0]}"


def _check(target: str) -> None:
    if not target.partition(".")[2]:
        raise NotThere(
            f'"{target}" does not name a source', hint="write FLOW.SOURCE, like flights.departures"
        )


def _declare(target: str, data: Path, flow: Path) -> None:
    """Make the journal of "FLOW.SOURCE" from the flow's file."""
    name, _, source = target.partition(".")
    ingest.declare(_source(flow, name, source), data / name / "journals" / source)


def _source(file: Path, name: str, source: str) -> Source:
    flow = load(file)
    stage = flow.stages.get(source)
    if flow.name != name:
        raise NotThere(
            f'{file} holds flow "{flow.name}", not "{name}"',
            hint=f"millstream send {flow.name}.{source}",
        )
    found = [
        key
        for key, one in flow.stages.items()
        if isinstance(one, Source) and isinstance(one.origin, Inbox)
    ]
    if not isinstance(stage, Source) or source not in found:
        raise NotThere(
            f'flow "{name}" has no inbox "{source}"',
            hint=f"its inboxes are {', '.join(found) or 'none'}",
        )
    return stage


def _blocks(stream: int) -> Iterator[list[bytes]]:
    """Yield the lines that are there, at most `_ROWS` at a time."""
    rest = b""
    while chunk := os.read(stream, _BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for at in range(0, len(lines), _ROWS):
            yield lines[at : at + _ROWS]
    if rest:
        yield [rest]
