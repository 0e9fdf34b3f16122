"""`millstream send`: events from standard input into a source's inboxes."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from millstream import ingest
from millstream.cli.environment import engines_of_environment
from millstream.errors import Ended, EngineError, NotAllowed, NotThere
from millstream.flow.load import load
from millstream.flow.stages import Source
from millstream.links.client import Client, connect
from millstream.links.rows import meant
from millstream.terminal.console import Console

_BYTES: Final = 1 << 20
_ROWS: Final = 8192
_IN_FLIGHT: Final = 64
_QUIET_S: Final = 5.0
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of `millstream send`; `repeated` were stored already, from this sender."""

    target: str
    sender: str
    sent: int
    repeated: int
    refused: int
    seconds: float
    ended: bool

    def summary(self, data: str | None = None) -> str:
        """Return it as text; `data` is the data folder of the flow, if it is not the default."""
        notes = [f"{self.repeated:,} were there already"] if self.repeated else []
        if self.refused:
            where = "" if data is None else f" --data {data}"
            notes.append(
                f"{self.refused:,} refused, see millstream journal cat {self.target}.dead{where}"
            )
        text = (
            f"sent {self.sent:,} {'event' if self.sent == 1 else 'events'} in {self.seconds:.2f} s"
            + (f" ({'; '.join(notes)})" if notes else "")
        )
        return f"{text}\nended {self.target}" if self.ended else text


def send(
    target: Annotated[str, typer.Argument(metavar="FLOW.SOURCE", help="The source to send to.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="The address of the flow's inboxes."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="URL", help="The engine that the flow is deployed on.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The data folder of the flow on this host.", show_default=".millstream"),
    ] = None,
    flow: Annotated[
        Path | None, typer.Option(help="The flow's file; creates the journal if it does not exist.")
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(help="Lines that are sent again under this name are not stored twice."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the stream after the last event.")
    ] = False,
    key: Annotated[Path | None, typer.Option(help="Your key, if the flow needs keys.")] = None,
    server: Annotated[Path | None, typer.Option(help="The public key of the flow.")] = None,
    time_limit: Annotated[
        float, typer.Option(help="How many seconds to wait for inboxes that accept nothing.")
    ] = 600.0,
    allow_unknown: Annotated[
        bool,
        typer.Option("--allow-unknown", help="Ignore fields that the source does not have."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Send JSON lines from standard input to a source of a flow.

    Each line is an object with the source's columns. When the command returns, the events are on
    disk. Bad lines go to the dead letters of the source with the reason, and do not stop the
    others.
    """
    _check(target)
    if (to, engine, data, flow) == (None, None, None, None):
        engine = next(iter(engines_of_environment()), None) or _usual(target)
    data = data or Path(".millstream")
    if flow is not None and to is None and engine is None:
        _declare(target, data, flow)
    kept_in: str | None = None
    if engine is not None and to is None:
        to, kept_in = _at(engine, target)
    client = connect(to or data, sender=sender, key=key, server=server, timeout=time_limit)
    pump = _Pump(client, target, allow_unknown=allow_unknown)
    began = time.monotonic()
    try:
        with _silence_broken(client, target, to or data):
            ended = client.ended(target)
        notice = client.info(target).notice
        if notice:
            typer.echo(f"note: {notice}", err=True)
        if ended:
            hint = "start the flow again in a new --data folder"
            if engine is not None:
                hint = "undeploy the job with --purge and deploy it again"
            raise Ended(f'"{target}" has ended: it accepts no more events', hint=hint)
        with _progress(pump), _silence_broken(client, target, to or data):
            interrupted = pump.run(end=end)
            if interrupted and client.waiting:
                typer.echo(
                    "waiting for acknowledgements; press Ctrl-C again to stop waiting", err=True
                )
            client.flush()
    except KeyboardInterrupt:
        _give_up(client)
    except BaseException:
        client.abort()
        raise
    result = pump.result(client.sender, time.monotonic() - began, ended=end and not interrupted)
    client.close()
    print(jsonlib.dumps(asdict(result)) if json else result.summary(kept_in))
    if interrupted:
        raise typer.Exit(130)


class _Pump:
    """Sends lines as events."""

    def __init__(self, client: Client, target: str, *, allow_unknown: bool) -> None:
        self._client = client
        self._target = target
        self._allow_unknown = allow_unknown
        self._waiting: deque[Future[int]] = deque()
        self._refused = 0
        self.lines = 0

    def run(self, *, end: bool) -> bool:
        """Send all lines of standard input; return whether the user interrupted it."""
        try:
            for block in _blocks(sys.stdin.buffer.fileno()):
                self._take(block)
        except KeyboardInterrupt:
            return True
        if end:
            self._client.end(self._target)
        return False

    def _take(self, block: list[bytes]) -> None:
        schema = self._client.schema(self._target)
        unknown = [] if self._allow_unknown else _unknown(block, schema.names, self.lines)
        for one in unknown:
            block[one.number - self.lines] = b""
        rows = ingest.parse_rows(block, schema, self.lines)
        # Before the rows around them: the journal counts a sender's dead letters by the same
        # numbers.
        if rows.refused or unknown:
            self._refused += self._refuse([*rows.refused, *unknown])
        if len(rows):
            numbers: Any = rows.numbers
            self._waiting.append(
                self._client.send_nowait(self._target, rows.batch, numbers=numbers)
            )
        self.lines += len(block)
        while len(self._waiting) > _IN_FLIGHT:
            self._waiting.popleft().result()

    def _refuse(self, refused: Sequence[ingest.Refused]) -> int:
        """Keep bad lines as dead letters; who may not do that is shown why they are bad."""
        try:
            return self._client.refuse(self._target, refused)
        except NotAllowed:
            for one in refused:
                typer.echo(f"line {one.number + 1} is not sent: {one.reason}", err=True)
            return len(refused)

    def result(self, sender: str, seconds: float, *, ended: bool) -> Sent:
        """Return the counts, once everything is acknowledged."""
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


def _unknown(lines: Sequence[bytes], known: Sequence[str], first: int) -> list[ingest.Refused]:
    """Return the lines with a field that the source does not have: a typo would be null."""
    found = []
    for number, line in enumerate(lines, first):
        try:
            fields = _FIELDS.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue  # the parser says what is wrong
        name = next((one for one in fields if one not in known), None)
        if name is not None:
            reason = f'unknown field "{name}": {meant(name, known, "columns")}'
            found.append(ingest.Refused(number, reason, line.decode(errors="replace")))
    return found


def _progress(pump: _Pump) -> AbstractContextManager[object]:
    """Show the progress on a terminal, unless the events are typed there."""
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
def _silence_broken(client: Client, target: str, where: object) -> Iterator[None]:
    """Print a note, once, if nothing is acknowledged for a while: waiting may take minutes."""
    over = threading.Event()

    def watch() -> None:
        before = 0
        while not over.wait(_QUIET_S):
            numbers = client.statistics()
            acknowledged = sum(one.acknowledged for one in numbers)
            if acknowledged == before and (client.waiting or not numbers):
                typer.echo(_waits(client, target, where), err=True)
                return
            before = acknowledged

    watcher = threading.Thread(target=watch, name="send silence", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _waits(client: Client, target: str, where: object) -> str:
    why = client.no_room(target) if client.statistics() else None
    if why is None or "takes nothing" not in why.message:
        return f'waiting: no response from "{where}" for {_QUIET_S:.0f} s'
    return f"waiting: {why.message}"


def _give_up(client: Client) -> NoReturn:
    waiting = client.waiting
    client.abort()
    if waiting:
        events = "1 event is" if waiting == 1 else f"{waiting:,} events are"
        typer.echo(f"{events} not acknowledged, and may or may not be stored", err=True)
    raise typer.Exit(130)


def _at(engine: str, target: str) -> tuple[str, str]:
    """Return the address of an engine's inboxes, and the folder of a job's data on its host."""
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


def _usual(target: str) -> str | None:
    """Return the engine at the usual port, if there is one and no such flow is here."""
    from millstream.cluster import DEFAULT, EngineClient

    flow, _, source = target.partition(".")
    if (Path(".millstream") / flow / "journals" / source / "source.json").exists():
        return None
    client = EngineClient(DEFAULT, os.environ.get("MILLSTREAM_TOKEN"))
    try:
        client.about()
    except EngineError:
        return None
    finally:
        client.close()
    return DEFAULT


def _check(target: str) -> None:
    if not target.partition(".")[2]:
        hint = "write FLOW.SOURCE, like flights.departures"
        raise NotThere(f'"{target}" does not name a source', hint=hint)


def _declare(target: str, data: Path, flow: Path) -> None:
    """Create the journal of "FLOW.SOURCE" from the flow's file."""
    name, _, source = target.partition(".")
    ingest.declare(_source(flow, name, source), data / name / "journals" / source)


def _source(file: Path, name: str, source: str) -> Source:
    flow = load(file)
    stage = flow.stages.get(source)
    if flow.name != name:
        hint = f"millstream send {flow.name}.{source}"
        raise NotThere(f'{file} holds flow "{flow.name}", not "{name}"', hint=hint)
    found = [
        key for key, one in flow.stages.items() if isinstance(one, Source) and one.origin.intake
    ]
    if not isinstance(stage, Source) or source not in found:
        hint = f"its inboxes are {', '.join(found) or 'none'}"
        raise NotThere(f'flow "{name}" has no inbox "{source}"', hint=hint)
    return stage


def _blocks(stream: int) -> Iterator[list[bytes]]:
    """Yield the available lines, at most `_ROWS` at a time."""
    rest = b""
    while chunk := os.read(stream, _BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for at in range(0, len(lines), _ROWS):
            yield lines[at : at + _ROWS]
    if rest:
        yield [rest]
