"""The driver: the process that runs a job's flow, started by its engine as `python -m millstream.engine.driver.main`.

    engine ── stdin ──▶   {"describe": {..}}  {"declare": {..}}  {"run": {..}}  {"drain": {"flush": false}}  {"stop": {}}
                          {"compare": {..}}  {"begin": {..}}  {"give_up": {}}
    engine ◀── stdout ──  {"warm": {}}  {"described": {..}}  {"declared": {}}  {"ready": {}}  {"statistics": {..}}
                          {"planned": {..}}  {"unplanned": {..}}  {"standing": {..}}  {"switch": {..}}
                          {"drained": {}}  {"finished": {}}  {"failed": {..}}

One JSON object a line. A driver runs one flow, once, in two versions while it is switched. What it,
Spark or the user's code print goes to stderr, which the engine writes to the job's log. It ends
with its engine: when stdin closes it takes its whole process group along.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from millstream import ingest
from millstream.actions import scheme as schemes
from millstream.engine.jobs.status import Peer
from millstream.engine.jobs.switch_record import (
    Begin,
    Compare,
    Planned,
    RecoveredState,
    Share,
    SwitchReport,
)
from millstream.engine.schemes import mixing
from millstream.errors import (
    FlowError,
    GroupChanged,
    MillstreamError,
    SchemaConflict,
    UnplaceableKey,
)
from millstream.flow import binary
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.rewire import renamed
from millstream.flow.sources import Inbox
from millstream.flow.stages import Action, Source
from millstream.plan.groups import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.actions.scheme import Scheme
    from millstream.engine.driver.driver_versions import Versions
    from millstream.engine.schemes.hosting import Beside
    from millstream.spark.flow_run import FlowRun

#: Mistakes that a new start would make again.
HOPELESS: Final = (FlowError, GroupChanged, SchemaConflict, UnplaceableKey, SystemExit)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_POLL_S: Final = 0.15
_STATISTICS_S: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1


# what is said


class Nothing(msgspec.Struct, frozen=True):
    """A word that says all by itself."""


class Describe(msgspec.Struct, frozen=True):
    """Read a flow, under another name if one is given, and check it."""

    flow: str
    name: str | None = None


class Declare(msgspec.Struct, frozen=True):
    """Make the journals of the flow's inboxes in a folder."""

    folder: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Run a flow under a name, with its data in `data`/`name`."""

    flow: str
    name: str
    data: str
    root: str
    log: str
    options: dict[str, Any] = {}
    #: All engines of the cluster, by their nodes: this is the first. Empty if it is the only one.
    engines: list[Peer] = []
    #: Where runtimes send to sources of the flow.
    landings: dict[str, str] = {}
    #: Where programs that the engine keeps are, by the name that the flow has for them.
    binaries: dict[str, str] = {}
    #: Which version of the job that flow is, and the files of all that may be needed besides.
    version: str = "1"
    versions: dict[str, str] = {}


class Drain(msgspec.Struct, frozen=True):
    """Stop the sources and process the rest; with `flush`, end them."""

    flush: bool = False


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an engine tells a driver: one of these."""

    describe: Describe | None = None
    declare: Declare | None = None
    run: Run | None = None
    drain: Drain | None = None
    compare: Compare | None = None
    begin: Begin | None = None
    share: Share | None = None
    give_up: Nothing | None = None
    stop: Nothing | None = None


class Described(msgspec.Struct, frozen=True):
    """A flow's name, the partitions of each of its inboxes, and the programs of the engine's that it names.

    `hosted` if it is a scheme, whose runtimes feed those inboxes.
    """

    name: str
    inboxes: dict[str, int]
    binaries: tuple[str, ...] = ()
    hosted: bool = False


class Failed(msgspec.Struct, frozen=True):
    """What went wrong: an error of `millstream.errors` by its name, or another."""

    error: str
    message: str
    hint: str | None = None
    hopeless: bool = False
    #: Whether it was for want of room on a disk.
    full: bool = False


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver tells its engine: one of these."""

    warm: Nothing | None = None
    described: Described | None = None
    declared: Nothing | None = None
    ready: Nothing | None = None
    statistics: dict[str, Any] | None = None
    planned: Planned | None = None
    unplanned: Failed | None = None
    shared: SwitchReport | None = None
    standing: RecoveredState | None = None
    switch: SwitchReport | None = None
    drained: Nothing | None = None
    finished: Nothing | None = None
    failed: Failed | None = None


class Line:
    """The line to the engine: commands come in, reports go out, and the process ends when it is cut."""

    def __init__(self, commands: BinaryIO, reports: BinaryIO) -> None:
        self._commands, self._reports = commands, reports
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="engine", daemon=True).start()

    @classmethod
    def of_process(cls) -> Line:
        """Take over stdin and stdout, so that nobody else reads or prints there."""
        commands, reports = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(commands, reports)

    def _listen(self) -> None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            for line in self._commands:
                self._queue.put(msgspec.json.decode(line, type=Command))
        end_at_once()

    def next(self, timeout_s: float | None = None) -> Command | None:
        """Return the next command; None if there is none in time."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Let `next` return, with a command that says nothing."""
        self._queue.put(Command())

    def say(self, report: Report) -> None:
        try:
            self._reports.write(msgspec.json.encode(report) + b"\n")
            self._reports.flush()
        except OSError:
            end_at_once()


def end_at_once() -> None:
    """End this process and all that it has started, Java first of all."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def die_with_parent() -> None:
    """Let the kernel end this process if the thread that started it does, whatever this one is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# what is done


def described(flow: Flow) -> Described:
    """Check a flow as far as that goes without Spark, and say what an engine must know of it."""
    flow.check()
    plan(flow)
    named = {stage.argv[0]: None for stage in flow.stages.values() if isinstance(stage, Action)}
    inboxes = {name: stage.partitions for name, stage in _inboxes(flow).items()}
    return Described(
        flow.name, inboxes, tuple(text for text in named if binary.parse(text) is not None)
    )


def _inboxes(flow: Flow) -> dict[str, Source]:
    sources = {name: stage for name, stage in flow.stages.items() if isinstance(stage, Source)}
    return {name: stage for name, stage in sources.items() if isinstance(stage.origin, Inbox)}


class Driver:
    """One flow, run once, as the engine says."""

    def __init__(self, line: Line, *, master: str | None = None) -> None:
        self._line = line
        self._master = master
        self._spark: SparkSession | None = None
        self._flow: Flow | None = None
        #: What the flow calls itself; the job may have another name.
        self._own = ""
        self._scheme: Scheme | None = None
        self._beside: Beside | None = None
        self._draining: Drain | None = None
        self._versions: Versions | None = None
        self._told_at = 0.0

    def serve(self, *, warm: bool = False) -> int:
        """Do what the engine says until there is nothing left to do; return the exit code.

        With `warm`, Spark is started before there is anything to run.
        """
        try:
            if warm:
                self._start_spark()
                self._line.say(Report(warm=Nothing()))
            while not self._done(self._line.next()):
                pass
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a driver tells its engine whatever happens)
            traceback.print_exc()
            self._line.say(Report(failed=failure(error)))
            return 1
        finally:
            if self._spark is not None:
                self._spark.stop()
        return 0

    def _done(self, command: Command | None) -> bool:
        if command is None or command.stop is not None:
            return True
        if command.describe is not None:
            self._line.say(Report(described=self._describe(command.describe)))
        elif command.declare is not None:
            self._declare(Path(command.declare.folder))
        elif command.run is not None:
            self._read(command.run.flow, command.run.name)
            if self._flow is None:
                self._host(command.run)
            else:
                self._run(command.run)
            return True
        return False

    def _read(self, file: str, name: str | None) -> None:
        """Read a flow, or a scheme, whose stages in Spark, if it has any, are a flow."""
        if not schemes.described_in(Path(file)):
            self._flow = self._flow or self._load(file, name)
            return
        from millstream.engine.schemes import hosting

        self._scheme = hosting.loaded(Path(file), name)
        self._flow = mixing.flow_of(self._scheme)

    def _load(self, file: str, name: str | None) -> Flow:
        flow = load(file)
        self._own = flow.name
        return flow if name is None or name == flow.name else renamed(flow, name)

    def _describe(self, asked: Describe) -> Described:
        self._read(asked.flow, asked.name)
        found = (
            Described(self._scheme.name, {})
            if self._flow is None and self._scheme
            else described(self._known)
        )
        if self._scheme is None:
            return found
        from millstream.engine.schemes import hosting

        return msgspec.structs.replace(found, binaries=hosting.binaries(self._scheme), hosted=True)

    @property
    def _known(self) -> Flow:
        assert self._flow is not None
        return self._flow

    def _host(self, how: Run) -> None:
        from millstream.engine.schemes import hosting

        assert self._scheme is not None
        last = hosting.SchemeRun(self._line, self._scheme, how).run()
        if last is not None:
            self._line.say(last)

    def _declare(self, folder: Path) -> None:
        if self._scheme is not None:
            from millstream.engine.schemes import hosting

            hosting.declare(folder)
        if self._flow is None:
            self._line.say(Report(declared=Nothing()))
            return
        for name, stage in _inboxes(self._flow).items():
            ingest.declare(stage, folder / "journals" / name)
        self._line.say(Report(declared=Nothing()))
        # The engine will say "run" in a moment: what that needs takes a second to load.
        import millstream.spark.flow_run  # noqa: F401

    def _start_spark(self) -> SparkSession:
        from millstream.spark.session.session import session

        if self._spark is None:
            self._spark = session("driver", master=self._master)
        return self._spark

    def _run(self, how: Run) -> None:
        from rich.console import Console

        from millstream.engine.driver.driver_versions import Versions
        from millstream.spark.flow_run import FlowRun, Options
        from millstream.spark.run.query import ship_modules

        flow = self._known
        binaries = {name: Path(file) for name, file in how.binaries.items()}
        files = {**how.versions, how.version: how.flow}
        versions = self._versions = Versions(how.name, files, binaries, ship_modules)
        versions.took(how.version, self._own or flow.name)
        options = Options(
            Path(how.data),
            Path(how.root),
            log=Path(how.log),
            hosting=False,
            binaries=binaries,
            **how.options,
        )
        spark = self._start_spark()
        # The flow's modules are those of the package, wherever its paths count from.
        ship_modules(Path(how.flow).parent)
        terminal = Console(stderr=True, width=200)
        running = FlowRun(
            spark, flow, options, terminal=terminal, versions=versions.flow, version=how.version
        )
        running.start()
        try:
            self._begin_beside(how)
            self._line.say(Report(standing=versions.standing(running)))
            self._line.say(Report(ready=Nothing()))
            last = self._watched(running)
        finally:
            if self._beside is not None:
                self._beside.close()
            running.stop()
        if last is not None:
            self._line.say(last)

    def _begin_beside(self, how: Run) -> None:
        """Start the runtimes beside the stages of a scheme."""
        if self._scheme is not None:
            from millstream.engine.schemes.hosting import Beside

            self._beside = Beside(self._scheme, how)

    def _watched(self, running: FlowRun) -> Report | None:
        """Watch over a run until it ends; return what there is to say about it once it has stopped."""
        while True:
            command = self._line.next(_POLL_S)
            if command is not None and command.stop is not None:
                return None
            if command is not None:
                self._heard(command, running)
            if self._beside is not None:
                self._beside.step()
            delivered = self._beside is None or self._beside.delivered
            ended = running.poll() and delivered
            self._tell_switch(running)
            drained = (
                not ended
                and self._draining is not None
                and not self._draining.flush
                and running.drained()
            )
            drained = drained and delivered
            self._tell(running, last=ended or drained)
            if ended:
                return Report(finished=Nothing())
            if drained:
                return Report(drained=Nothing())

    def _heard(self, command: Command, running: FlowRun) -> None:
        if command.drain is not None:
            running.drain(flush=command.drain.flush)
            if self._beside is not None and command.drain.flush:
                self._beside.flush()
            self._draining = command.drain
        elif command.compare is not None and self._scheme is not None:
            from millstream.engine.schemes import hosting

            self._line.say(Report(unplanned=failure(hosting.no_switch(self._scheme))))
        elif command.compare is not None:
            self._line.say(self._planned(command.compare, running))
        elif command.begin is not None:
            self._begin(command.begin, running)
        elif command.share is not None:
            self._line.say(self._shared(command.share, running))
        elif command.give_up is not None:
            with contextlib.suppress(
                MillstreamError
            ):  # it is past its cut, or over: the reports say so
                running.give_up()

    def _planned(self, asked: Compare, running: FlowRun) -> Report:
        assert self._versions is not None
        try:
            return Report(planned=self._versions.plan(running, asked, described))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the flow that runs has nothing to do with it)
            return Report(unplanned=failure(error))

    def _shared(self, asked: Share, running: FlowRun) -> Report:
        assert self._versions is not None
        try:
            return Report(shared=self._versions.share(running, asked))
        except MillstreamError as error:
            return Report(unplanned=failure(error))

    def _begin(self, asked: Begin, running: FlowRun) -> None:
        assert self._versions is not None
        try:
            refused = self._versions.begin(running, asked)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the flow that runs has nothing to do with it)
            refused = SwitchReport(asked.version, ended="refused", why=failure(error).message)
        if refused is not None:
            self._line.say(Report(switch=refused))

    def _tell_switch(self, running: FlowRun) -> None:
        assert self._versions is not None
        news = self._versions.news(running)
        if news is not None:
            self._line.say(Report(switch=news))

    def _tell(self, running: FlowRun, *, last: bool) -> None:
        now = time.monotonic()
        if last or now >= self._told_at + _STATISTICS_S:
            self._told_at = now
            numbers = msgspec.to_builtins(running.statistics())
            if self._beside is not None:
                numbers["runtimes"] = msgspec.to_builtins(self._beside.status())
            self._line.say(Report(statistics=numbers))


def failure(error: BaseException) -> Failed:
    """Return an error as it is told."""
    full = disk_was_full(error)
    hopeless = isinstance(error, HOPELESS) and not full
    if isinstance(error, MillstreamError):
        where = getattr(error, "where", None)
        # The user knows the file by its name, not by where it was unpacked.
        message = (
            error.message
            if where is None
            else f"{error.message}\n{replace(where, file=Path(where.file).name)}"
        )
        return Failed(type(error).__name__, message, error.hint, hopeless, full)
    return Failed(type(error).__name__, f"{type(error).__name__}: {error}", None, hopeless, full)


def disk_was_full(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it came from, says that a disk is full: Java's can be told by their words alone."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        if any(os.strerror(number) in str(error) for number in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> int:
    """Serve an engine: `--warm` starts Spark at once, `--master` says which."""
    die_with_parent()
    line = Line.of_process()
    arguments = sys.argv[1:]
    master = arguments[arguments.index("--master") + 1] if "--master" in arguments else None
    driver = Driver(line, master=master)
    # Ctrl-C on a terminal reaches the engine, which says what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return driver.serve(warm="--warm" in arguments)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Threads of the user's, or Spark's, do not keep a driver that is done.
    os._exit(code)
