"""`millstream watch`: patterns over events on this device, without Spark; `watch status` asks it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from typer.core import TyperGroup

from millstream.cli.options import Json
from millstream.cli.watching import NOTE, Note
from millstream.errors import InvalidOption, MillstreamError

if TYPE_CHECKING:
    from millstream.watch.replicator import PeerStatus
    from millstream.watch.status import WatcherStatus

_DATA: Final = Path(".millstream") / "watch"


class _Watch(TyperGroup):
    """A group whose command `run` need not be named: `millstream watch patterns.py`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_Watch, no_args_is_help=True)

Data = Annotated[
    Path | None,
    typer.Option(help="The folder of the watcher's state; by default .millstream/watch/DEVICE."),
]
Device = Annotated[
    str | None, typer.Option(help="The name of this device; by default the name of this host.")
]


@app.command()
def run(
    patterns: Annotated[
        Path, typer.Argument(metavar="FILE", help="A flow, or a file with patterns: .py or .yaml.")
    ],
    device: Device = None,
    peers: Annotated[
        Path | None, typer.Option(help="The settings of all devices that work together.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="ADDRESS", help="Where events come from; default stdin."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--out", metavar="ADDRESS", help="Where matches go; default stdout."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column whose values are matched separately, unless the file says."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="The time column, unless the file says; without one, events are stamped."
        ),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="The columns of events, as in SQL, unless the file says.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The column that tells events apart.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source of the flow whose events these are.")
    ] = None,
    lateness: Annotated[str, typer.Option(help="How long absence waits for late events.")] = "0 s",
    data: Data = None,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /status and /metrics are served.")
    ] = "127.0.0.1:0",
    token: Annotated[
        Path | None,
        typer.Option("--token-file", help="The file with the token that other hosts have to show."),
    ] = None,
) -> None:
    """Look for patterns in events, on this device."""
    from millstream.cli import watching

    name = device or socket.gethostname().partition(".")[0]
    options = watching.Options(
        patterns=str(patterns),
        device=name,
        data=str((data or _DATA / name).absolute()),
        peers=None if peers is None else str(peers),
        inputs=inputs or [],
        outputs=outputs or [],
        key=key or None,
        time=time,
        schema=schema,
        id=id,
        source=source,
        lateness=lateness,
        http=http,
        token_file=None if token is None else str(token),
    )
    watching.run(options)


@app.command()
def status(
    device: Device = None,
    data: Data = None,
    url: Annotated[
        str | None, typer.Option(help="The address of the watcher's HTTP server.")
    ] = None,
    token: Annotated[
        Path | None, typer.Option("--token-file", help="The file with its token.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a watcher does: its peers, runs, inputs and outputs."""
    from millstream.watch.asking import asked
    from millstream.watch.status import WatcherStatus

    address = url or _noted(device, data)
    content = asked(address, None if token is None else token.read_text().strip())
    if json:
        print(content.decode())
        return
    _show(msgspec.json.decode(content, type=WatcherStatus))


def _noted(device: str | None, data: Path | None) -> str:
    """Return the address of a watcher on this host."""
    notes = [data / NOTE] if data else sorted(_DATA.glob(f"{device or '*'}/{NOTE}"))
    found = [(file, _read(file)) for file in notes if file.is_file()]
    live = [(file, note) for file, note in found if _alive(note.pid)]
    if len(live) == 1:
        return live[0][1].url
    if not live:
        hint = "start one with millstream watch FILE, or name its address with --url"
        raise MillstreamError("no watcher runs here", hint=hint)
    names = ", ".join(file.parent.name for file, _ in live)
    raise InvalidOption(f"several watchers run here: {names}", hint="name one with --device")


def _read(file: Path) -> Note:
    return msgspec.json.decode(file.read_bytes(), type=Note)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _troubles(peer: PeerStatus) -> Iterator[str]:
    if peer.reason is not None:
        yield f"the last message to it failed: {peer.reason}"
    if peer.refused is not None:
        yield f"{peer.refused[0]:,} of its messages were refused: {peer.refused[1]}"


def _warnings(one: WatcherStatus) -> Iterator[str]:
    if one.unwritten is not None:
        yield f"it takes no events: {one.unwritten}"
    if one.strangers is not None:
        yield f"{one.strangers[0]:,} messages of strangers were refused: {one.strangers[1]}"


def _show(one: WatcherStatus) -> None:
    from rich.console import Group

    from millstream.cli.output import table
    from millstream.terminal.console import Console

    memory = f"{one.memory_bytes / 1e6:.0f} MB"
    head = (
        f"{one.device} ({one.incarnation}), up {one.uptime_seconds:.0f} s, {memory}: "
        f"{one.events:,} events, {one.rejected:,} put aside, {one.elsewhere:,} taken elsewhere"
    )
    patterns = table(("PATTERN",), ("LIVE RUNS", "FOUND"))
    for pattern in one.patterns:
        patterns.add_row(pattern.name, f"{pattern.live:,}", f"{pattern.found:,}")
    parts: list[Any] = [head, *_warnings(one), "", patterns]
    if one.peers:
        peers = table(("PEER", "ADDRESS", "STATE"), ("LAST CONTACT", "STASH"))
        for peer in one.peers:
            since = peer.heard_s
            state = "away" if peer.away else "present"
            state += ", needs a RESYNC" if peer.resync else ""
            last = "never" if since is None else f"{since:.1f} s ago"
            peers.add_row(peer.name, peer.address, state, last, f"{peer.stash:,}")
            parts += [f"{peer.name}: {why}" for why in _troubles(peer)]
        parts += ["", peers]
    ends = table(("", "NAME", "STATE"), ("WAITING", "DELIVERED"))
    for given in one.inputs:
        ends.add_row("in", given.name, "running" if given.running else "ended", "", "")
    for out in one.outputs:
        ends.add_row("out", out.name, out.trouble or "", f"{out.waiting:,}", f"{out.delivered:,}")
    parts += ["", ends]
    if one.unknown:
        runs = table(("RUN", "NOT KNOWN TO"))
        for run_id, names in one.unknown.items():
            runs.add_row(run_id, ", ".join(names))
        parts += ["", runs]
    Console(width=None if Console().is_terminal else 140).print(Group(*parts))
