"""What `millstream watch` does, once its arguments are read.

The command's process is replaced by one that has only this: reading arguments takes a quarter of
the memory that a watcher may have.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream import cli
from millstream.cli.environment import secrets_beside
from millstream.errors import InvalidOption

if TYPE_CHECKING:
    from millstream.watch.watcher import Watcher

NOTE: Final = "watcher.json"
_LINE_S: Final = 0.5


class Note(msgspec.Struct):
    """Where the watcher of a data folder is asked for its status."""

    url: str
    pid: int
    token: bool = False


class Options(msgspec.Struct):
    """The arguments of the command."""

    patterns: str
    device: str
    data: str
    peers: str | None
    inputs: list[str]
    outputs: list[str]
    key: list[str] | None
    time: str | None
    schema: str | None
    id: str | None
    source: str | None
    lateness: str
    http: str
    token_file: str | None


def run(options: Options) -> None:
    """Watch, in a process of its own if this one is the command's."""
    if cli.is_command():
        text = msgspec.json.encode(options).decode()
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", __name__, text])  # noqa: S606
    watch(options)


def watch(options: Options) -> None:
    """Watch until the inputs end, or until a signal."""
    from millstream.watch.inputs.http import HttpInput
    from millstream.watch.watcher import Watcher, addresses, read_settings

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    folder = Path(options.data)
    secrets_beside(folder)
    token = None if options.token_file is None else Path(options.token_file).read_text().strip()
    host, _, port = options.http.rpartition(":")
    if not port.isdigit():
        raise InvalidOption(f'"{options.http}" is not an address', hint="expected HOST:PORT")
    settings = read_settings(options.peers, options.device)
    inputs = options.inputs or addresses(settings.inputs, "inputs") or ["stdin"]
    outputs = options.outputs or addresses(settings.outputs, "outputs") or ["stdout"]
    served: list[HttpInput] = []
    if not any(one.startswith("http:") for one in inputs):
        served = [HttpInput(host or "127.0.0.1", int(port), token=token, events=False)]
    watcher = Watcher(
        Path(options.patterns),
        key=options.key,
        time=options.time,
        schema=options.schema,
        id=options.id,
        device=options.device,
        peers=options.peers,
        data=folder,
        inputs=[*inputs, *served],
        outputs=outputs,
        lateness=options.lateness,
        token=token,
        source=options.source,
    )
    with _stopping() as stop:
        _watch(watcher, folder, stop, token=token is not None)


def _watch(watcher: Watcher, folder: Path, stop: threading.Event, *, token: bool) -> None:
    from millstream.watch.inputs.http import HttpInput

    server = next(one for one in watcher.inputs if isinstance(one, HttpInput))
    note = folder / NOTE

    def greet() -> None:
        note.write_bytes(msgspec.json.encode(Note(server.url, os.getpid(), token)))
        names = ", ".join(one.name for one in watcher.patterns)
        _say(f"{watcher.device} watches for {names}; status at {server.url}/status")

    try:
        watcher.start(greet)
        with _progress(watcher):
            while not stop.wait(0.1) and not watcher.ended:
                pass
    finally:
        note.unlink(missing_ok=True)
        watcher.close()
    left = watcher.undelivered
    if left:
        _say(f"{left:,} complex events are not delivered yet; the next start goes on with them")
    counts = watcher.node.counts
    found = sum(counts.found.values())
    _say(f"{counts.events:,} events, {found:,} complex events, {watcher.rejected:,} rows put aside")


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set an event at Ctrl-C or SIGTERM; the second ends the process at once."""
    stop = threading.Event()

    def note(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _progress(watcher: Watcher) -> Iterator[None]:
    """Keep a line on the terminal up to date, unless complex events are printed there."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        began, before = time.monotonic(), 0
        while not over.wait(_LINE_S):
            now, counts = time.monotonic(), watcher.node.counts
            rate, began, before = (counts.events - before) / (now - began), now, counts.events
            found = sum(counts.found.values())
            line = f"{counts.events:,} events ({rate:,.0f}/s), {found:,} complex events"
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    shown = threading.Thread(target=show, name="progress", daemon=True)
    shown.start()
    try:
        yield
    finally:
        over.set()
        shown.join()
        sys.stderr.write("\r\x1b[K")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    cli.guarded(lambda: watch(msgspec.json.decode(sys.argv[1], type=Options)), "millstream watch")
