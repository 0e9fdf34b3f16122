"""The pipe between an engine and a driver: JSON, one object a line, on stdin and stdout.

    engine ── commands ──▶  Describe  Declare  Run  Drain  Compare  Begin  Share  AbortSwitch  Stop
                            ReadState  ReadPatterns  ReadCheckpoints
    engine ◀── reports ───  Warm  Described  Declared  Ready  Statistics  Drained  Finished  Failed
                            SwitchPlanned  KeysShared  Refused  SwitchRecovered  SwitchMoved
                            StateRead

Each is a struct, tagged with its name. An engine starts drivers of its own version only, so either
side may change together with the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from millstream import errors
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.pattern_status import PatternRuns
from millstream.engine.jobs.spread import SpreadSource
from millstream.engine.jobs.state_status import StageStatus, StateRows
from millstream.engine.jobs.status import Peer
from millstream.engine.jobs.switch_record import Begin, Compare, Planned, RecoveredState, Share
from millstream.errors import (
    DriverFailed,
    FlowError,
    GroupChanged,
    MillstreamError,
    SchemaConflict,
    UnplaceableKey,
)
from millstream.joblog import Lease
from millstream.plan.drawing import Drawing
from millstream.switch.progress import SwitchProgress

#: Mistakes that a restarted driver would repeat.
HOPELESS: Final = (FlowError, GroupChanged, SchemaConflict, UnplaceableKey, SystemExit)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


# commands


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Read a flow, under another name if one is given, and check it."""

    flow: str
    name: str | None = None


class Declare(msgspec.Struct, frozen=True, tag=True):
    """Make the journals of the flow's inboxes in a folder, and those of sources that are spread."""

    folder: str
    spread: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
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
    #: The sources that the engines read.
    spread: tuple[str, ...] = ()
    #: Where the engine's programs are, by the name that the flow has for them.
    binaries: dict[str, str] = {}
    #: Which version of the job that flow is, and the files of all that may be needed besides.
    version: str = "1"
    versions: dict[str, str] = {}
    #: The engine's claim, if several engines may run the job.
    lease: Lease | None = None


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Stop the sources and process the rest; with `flush`, end them."""

    flush: bool = False


class AbortSwitch(msgspec.Struct, frozen=True, tag=True):
    """Abort a switch that is not past its cut."""


class ReadState(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Read the state of a stage, or list the stages that have any; `StateRead` has the number."""

    number: int
    stage: str | None = None
    key: str | None = None
    at: int | None = None
    limit: int = 100


class ReadPatterns(msgspec.Struct, frozen=True, tag=True):
    """Read where the live runs of patterns are; `StateRead` has the number."""

    number: int


class ReadCheckpoints(msgspec.Struct, frozen=True, tag=True):
    """Read the checkpoints of all groups, or verify that of one; `StateRead` has the number."""

    number: int
    verify: str | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Stop between two batches."""


#: What is read beside the batches, in whatever order it is asked for.
Question = ReadState | ReadPatterns | ReadCheckpoints
Command = Describe | Declare | Run | Drain | Compare | Begin | Share | AbortSwitch | Question | Stop


# reports


class Warm(msgspec.Struct, frozen=True, tag=True):
    """Spark is started, and has run a small flow."""


class Described(msgspec.Struct, frozen=True, tag=True):
    """A flow's name, the partitions of its inboxes, and the engine's programs that it names.

    `hosted` if it is a scheme, whose runtimes feed those inboxes. `spread` are the sources that
    several engines may read.
    """

    name: str
    inboxes: dict[str, int]
    binaries: tuple[str, ...] = ()
    hosted: bool = False
    spread: dict[str, SpreadSource] = {}
    #: The journals that the flow keeps at no address of their own.
    unplaced: tuple[str, ...] = ()


class Declared(msgspec.Struct, frozen=True, tag=True):
    """The journals of the inboxes are there."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The flow runs."""


class Statistics(msgspec.Struct, frozen=True, tag=True):
    """The numbers of the run, as `RunStatistics` has them."""

    numbers: dict[str, Any]


class Drawn(msgspec.Struct, frozen=True, tag=True):
    """The graph of the version that runs."""

    drawing: Drawing


class Drained(msgspec.Struct, frozen=True, tag=True):
    """The rest is processed, and the sources can go on."""


class Finished(msgspec.Struct, frozen=True, tag=True):
    """All sources have ended, and everything is processed."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """What went wrong: an error of `millstream.errors` by its name, or another."""

    error: str
    message: str
    hint: str | None = None
    hopeless: bool = False
    #: Whether a disk was full.
    full: bool = False


class SwitchPlanned(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Compare`."""

    plan: Planned


class KeysShared(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Share`: how the switch stands now."""

    switch: SwitchProgress


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `Compare` or `Share` that cannot be: the flow runs on."""

    failure: Failed


class SwitchRecovered(msgspec.Struct, frozen=True, tag=True):
    """How the record of switches stands when a driver comes up."""

    state: RecoveredState


class SwitchMoved(msgspec.Struct, frozen=True, tag=True):
    """A switch has begun, advanced or ended."""

    switch: SwitchProgress


class StateRead(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to a `Question`, in whatever order these come: one of these."""

    number: int
    stages: list[StageStatus] | None = None
    rows: StateRows | None = None
    patterns: list[PatternRuns] | None = None
    checkpoints: list[CheckpointStatus] | None = None
    verified: VerifiedCheckpoint | None = None
    failure: Failed | None = None


#: What answers a command that was asked with `DriverProcess.ask`.
Answer = Described | Declared | SwitchPlanned | KeysShared | Refused
Report = (
    Answer
    | Warm
    | Ready
    | Statistics
    | Drawn
    | Drained
    | Finished
    | Failed
    | SwitchRecovered
    | SwitchMoved
    | StateRead
)


class Line:
    """The driver's end of the pipe. The process ends when it is cut."""

    def __init__(self, commands: BinaryIO, reports: BinaryIO) -> None:
        self._commands, self._reports = commands, reports
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        threading.Thread(target=self._listen, name="engine", daemon=True).start()

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(Command)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            for line in self._commands:
                self._queue.put(decoder.decode(line))
        end_at_once()

    def next(self, timeout: float | None = None) -> Command | None:
        """Return the next command; None if there is none in time, or `wake` was called."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    @property
    def waiting(self) -> bool:
        """Whether there is a command that nobody has taken yet."""
        return not self._queue.empty()

    def wake(self) -> None:
        """Let `next` return without a command."""
        self._queue.put(None)

    def report(self, report: Report) -> None:
        """Report something; any thread may."""
        try:
            with self._guard:
                self._reports.write(msgspec.json.encode(report) + b"\n")
                self._reports.flush()
        except OSError:
            end_at_once()


def end_at_once() -> None:
    """End this process and everything that it has started, Java included."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


# errors


def failure(error: BaseException) -> Failed:
    """Return an error as it is reported."""
    full = disk_was_full(error)
    hopeless = isinstance(error, HOPELESS) and not full
    if isinstance(error, MillstreamError):
        where = getattr(error, "where", None)
        # The user knows the file by its name, not by where it was unpacked.
        if where is None:
            message = error.message
        else:
            message = f"{error.message}\n{replace(where, file=Path(where.file).name)}"
        return Failed(type(error).__name__, message, error.hint, hopeless, full)
    return Failed(type(error).__name__, f"{type(error).__name__}: {error}", None, hopeless, full)


def disk_was_full(error: BaseException | None) -> bool:
    """Tell whether an error or one of its causes means a full disk; Java's by their text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        if any(os.strerror(number) in str(error) for number in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def error_of(failed: Failed) -> MillstreamError:
    """Return the error that a driver has raised."""
    kind = getattr(errors, failed.error, None)
    if isinstance(kind, type) and issubclass(kind, MillstreamError):
        return kind(failed.message, hint=failed.hint)
    return DriverFailed(failed.message, hint=failed.hint)
