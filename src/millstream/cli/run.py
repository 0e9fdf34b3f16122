"""`millstream run`: a flow in this process, with a live table."""

from __future__ import annotations

import json as jsonlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream import __version__
from millstream.cli.environment import secrets_beside
from millstream.cli.options import (
    ExecutorPython,
    InboxPort,
    Journals,
    Key,
    Master,
    Network,
    OpenWithoutKeys,
    Page,
    PagePort,
    Producers,
    Serve,
    ServePort,
    State,
    Storage,
)
from millstream.cli.output import group_cells, interrupted, table
from millstream.terminal.console import Console

if TYPE_CHECKING:
    from subprocess import Popen

    from rich.status import Status

    from millstream.engine.single_run import SingleRun
    from millstream.flow.flow import Flow
    from millstream.links.host import Listening
    from millstream.links.keys import KeyPair
    from millstream.plan.groups import Plan
    from millstream.spark.flow_run import FlowRun, RunStatistics
    from millstream.spark.run.query import GroupStatistics


def run(
    flow: Annotated[Path, typer.Argument(metavar="FLOW", help="The flow: a .py or .yaml file.")],
    data: Annotated[Path, typer.Option(help="The folder of journals and checkpoints.")] = Path(
        ".millstream"
    ),
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop when all sources have ended.")
    ] = False,
    master: Master = None,
    rows_per_batch: Annotated[
        int, typer.Option(min=1, help="The most rows that a micro-batch reads from a journal.")
    ] = 500_000,
    state: State = None,
    executor_python: ExecutorPython = None,
    journals: Journals = None,
    storage: Storage = None,
    serve: Serve = "auto",
    serve_port: ServePort = 0,
    port: InboxPort = 0,
    network: Network = None,
    key: Key = None,
    producers: Producers = Path("keys"),
    open_without_keys: OpenWithoutKeys = False,
    page: Page = False,
    page_port: PagePort = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON every second instead of the table.")
    ] = False,
) -> None:
    """Run a flow; the next run continues where it stopped."""
    if state not in (None, "memory", "rocksdb"):
        raise typer.BadParameter('expected "memory" or "rocksdb"', param_hint="--state")
    described = _checked(flow, data)
    listening = listening_at(port, network, key, producers, open_without_keys=open_without_keys)
    from millstream.spark.run.claim import claim
    from millstream.spark.run.end_note import may_have_ended
    from millstream.spark.session.start import SparkStart

    keys = None if listening.security is None else listening.security.keys
    log, root = data / described.name / "run.log", flow.resolve().parent
    claimed = claim(data / described.name, described.name)
    _keep_journals(journals, data / described.name)
    terminal = Console()
    with SparkStart(described.name, master, storage, log, executor_python) as start:
        if not (until_end and may_have_ended(data / described.name)):
            start.begin()
        # Java starts while these are loaded.
        from millstream.spark.ended import note_end
        from millstream.spark.flow_run import FlowRun, Options
        from millstream.spark.preflight import preflight

        planned = preflight(described, data / described.name, root, listening)
        if until_end and _has_ended(planned, log, json=json):
            claimed.release()
            return
        kernel = compiling(described)
        with Console(stderr=True).status(f"starting Spark for {described.name}") as shown:
            spark = start.session()
            options = Options(
                *(data, root, rows_per_batch, state, log, listening),
                serve=serve,
                serve_port=serve_port,
                storage=storage,
            )
            _await_kernel(kernel, shown)
            running = FlowRun(spark, described, options, claim=claimed, terminal=terminal)
            running.start()
        with _stopping(running):
            with (
                interrupted() as seen,
                _landings(running, keys, open_without_keys),
                _page(running, spark, log, storage, page_port if page else None) as shows,
            ):
                at = spark.sparkContext.master or "local"
                view = _View(described.name, at, log, lambda: running.address, shows)
                ended = _watch(
                    running, view, seen, until_end=until_end, json=json, terminal=terminal
                )
            if ended:
                note_end(running.plan, running.folder, running.statistics(), __version__)


def _checked(file: Path, data: Path) -> Flow:
    """Read a flow, and see that all its secrets are there."""
    from millstream.flow.load import load
    from millstream.flow.named_secrets import check_secrets

    described = load(file)
    secrets_beside(data)
    check_secrets(described)
    return described


@contextmanager
def _stopping(running: FlowRun) -> Iterator[None]:
    try:
        yield
    finally:
        with Console(stderr=True).status("stopping"):
            running.stop()


def _keep_journals(address: str | None, folder: Path) -> None:
    if address is not None:
        from millstream.journal import keep_journals

        keep_journals(folder / "journals", address, folder.name)


def compiling(flow: Flow) -> Popen[bytes] | None:
    """Let the kernel of patterns be compiled while Spark starts, if the flow needs it."""
    from millstream.flow.stages import Match

    if not any(isinstance(stage, Match) for stage in flow.stages.values()):
        return None
    from millstream.patterns.kernel_cache import begin

    return begin()


def _await_kernel(kernel: Popen[bytes] | None, shown: Status) -> None:
    if kernel is not None and kernel.poll() is None:
        from millstream.patterns.kernel_cache import NOTE

        shown.update(NOTE)
        if not shown.console.is_terminal:
            shown.console.print(NOTE, highlight=False)
        kernel.wait()


@contextmanager
def _landings(running: FlowRun, keys: KeyPair | None, open_: bool) -> Iterator[None]:
    """Open the landings of sources that runtimes send to."""
    from millstream.engine.inboxes.landing import landings_of

    opened = []
    if running.address is not None:
        opened = landings_of(running.host, running.folder, keys, open_without_keys=open_)
    try:
        yield
    finally:
        for landing in opened:
            landing.close()


@contextmanager
def _page(
    running: FlowRun,
    spark: Any,  # as above
    log: Path,
    storage: str | None,
    port: int | None,
) -> Iterator[tuple[SingleRun, str] | None]:
    """Serve the page of a run, if there is to be one."""
    if port is None:
        yield None
        return
    from millstream.engine.single_run import SingleRun, page_of

    shown = SingleRun(running, spark, log, storage)
    server = page_of(shown, port)
    server.start()
    try:
        yield shown, server.url
    finally:
        server.close()


def listening_at(
    port: int, network: str | None, key: Path | None, producers: Path, *, open_without_keys: bool
) -> Listening:
    """Return the address and keys of the inboxes from the options.

    Raises:
        NoSuchNetwork: No interface of this host is in the network.
        OpenNetwork: Other hosts could send, and there are no keys.
        InvalidKey: A key cannot be read.
    """
    from millstream.links.host import Listening
    from millstream.links.keys import read_key
    from millstream.links.listener import Security
    from millstream.links.network import guard, preferred

    security = None if key is None else Security.read(read_key(key), producers)
    # Fail before Spark is started, which takes seconds.
    guard(preferred(network), keys=key is not None, open_without_keys=open_without_keys)
    return Listening(network, port, security, open_without_keys)


def _watch(
    running: FlowRun,
    view: _View,
    seen: threading.Event,
    *,
    until_end: bool,
    json: bool,
    terminal: Console,
) -> bool:
    """Show how a run does until it is stopped, or ends; return whether it has ended."""
    # The live table needs a terminal; a pipe gets the last table only.
    live = Live(console=terminal, auto_refresh=False) if not json and terminal.is_terminal else None
    if live is None and not json and running.address is not None:
        print(f"{running.flow.name}  inboxes {running.address}", flush=True)
    if live is None and view.page is not None:
        out = sys.stderr if json else sys.stdout
        print(f"{running.flow.name}  page {view.page[1]}", file=out, flush=True)
    ended = False
    if live:
        live.start()
    try:
        while not seen.is_set():
            ended = running.poll()
            numbers = running.statistics()
            if view.page is not None:
                view.page[0].update(numbers, ended=ended)
            if json:
                print(jsonlib.dumps(asdict(numbers)), flush=True)
            elif live:
                live.update(view.render(numbers), refresh=True)
            if ended and until_end:
                break
            seen.wait(1.0 if json else 0.5)
        if not json and not live:
            Console(width=120).print(view.render(running.statistics()))
    finally:
        if live:
            live.stop()
    if not json:
        how = "ended" if ended else "stopped; the next run continues from here"
        print(f"{running.flow.name} {how}")
    return ended


def _has_ended(planned: Plan, log: Path, *, json: bool) -> bool:
    """Tell whether a run has nothing to do, and show what it showed at its end."""
    from millstream.spark.ended import ended_before

    numbers = ended_before(planned, log.parent, __version__)
    if numbers is None:
        return False
    if json:
        print(jsonlib.dumps(asdict(numbers)), flush=True)
        return True
    name = planned.flow.name
    Console(width=120).print(_View(name, "not started", log).render(numbers))
    print(f"{name} ended")
    return True


@dataclass
class _View:
    """The table, and the history that its rates need."""

    name: str
    master: str
    log: Path
    address: Callable[[], object | None] = lambda: None
    page: tuple[SingleRun, str] | None = None
    began: float = field(default_factory=time.monotonic)
    history: deque[tuple[float, RunStatistics]] = field(default_factory=lambda: deque(maxlen=10))

    def render(self, numbers: RunStatistics, now: float | None = None) -> Group:
        now = time.monotonic() if now is None else now
        self.history.append((now, numbers))
        return Group(self._head(now), self._groups(numbers), self._foot(numbers))

    def _head(self, now: float) -> Text:
        seconds = int(now - self.began)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        at = self.address()
        inboxes = "" if at is None else f"   inboxes {at}"
        page = "" if self.page is None else f"   page {self.page[1]}"
        where = f"Spark {self.master}{inboxes}   log {self.log}{page}"
        return Text(f"{self.name}  running {clock}   {where}")

    def _groups(self, numbers: RunStatistics) -> Table:
        columns = ("in", "in/s", "out", "out/s", "batch", "lag", "watermark", "state")
        made = table(("group",), columns)
        for group in numbers.groups:
            rows_in, rows_out = self._rate(group, "rows_in"), self._rate(group, "rows_out")
            counts = f"{group.rows_in:,}", rows_in, f"{group.rows_out:,}", rows_out
            made.add_row(group.name, *counts, *group_cells(group))
        return made

    def _rate(self, group: GroupStatistics, name: str) -> str:
        then, before = self.history[0]
        now, _ = self.history[-1]
        earlier = next((one for one in before.groups if one.name == group.name), group)
        grown = getattr(group, name) - getattr(earlier, name)
        return f"{grown / (now - then):,.0f}" if now > then else "-"

    def _foot(self, numbers: RunStatistics) -> Group:
        foot = Text(f"late {numbers.late:,}   dead letters {numbers.dead:,}", style="dim")
        return Group(foot, *map(Text, numbers.notices))
