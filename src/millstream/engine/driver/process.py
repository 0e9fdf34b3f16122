"""The engine's side of driver processes: start, watch, command, end.

A driver has a session of its own, a folder for temporary files, and marks in its environment by
which everything that it has started can be found: also by a new engine, after the one before was
killed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec
import psutil

from millstream.engine.driver import protocol
from millstream.errors import DriverFailed
from millstream.storage.private import owner_only

_log = logging.getLogger(__name__)
_A = TypeVar("_A", bound=protocol.Answer)
#: What a driver process runs; tests put one without Spark in its place.
PROGRAM: tuple[str, ...] = ("-m", "millstream.engine.driver.main")
_FOLDER: Final = "MILLSTREAM_ENGINE"
_DRIVER: Final = "MILLSTREAM_DRIVER"
_LOG_BYTES: Final = 10 << 20
_EARLY_LINES: Final = 500
_KILLED_S: Final = 10.0
_LOOK_S: Final = 0.01
#: How long to wait after a spare has died, since the next one may, too; and at most after one was
#: taken, whose flow is to start first.
_REFILL_S: Final = 30.0
_FIRST_BATCHES_S: Final = 5.0
#: How long a driver is kept that was expected to be taken in a moment.
_EXPECTED_S: Final = 10.0


class DriverProcess:
    """A driver process.

    `on_report` is called for each report, and `on_exit` once, when the process is gone, from a
    thread of the driver's.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        engine: Path,
        on_report: Callable[[DriverProcess, protocol.Report], None],
        on_exit: Callable[[DriverProcess], None],
        master: str | None = None,
        storage: str | None = None,
        warm: bool = False,
        begin: bool = False,
    ) -> None:
        """Start it.

        Args:
            scratch: The folder for its temporary files.
            engine: The folder of its engine.
            on_report: Is called for each report.
            on_exit: Is called when it is gone.
            master: Where Spark runs.
            storage: Where checkpoints can be.
            warm: Whether to start Spark before there is a flow, and to run a small one.
            begin: Whether to start Java while a flow is read, since it will need Spark.
        """
        self.warm = False
        #: When its flow began to run.
        self.ready_at: float | None = None
        #: How it ended, if it reported that.
        self.failed: protocol.Failed | None = None
        self._scratch = scratch
        self._mark = uuid.uuid4().hex
        self._on_report, self._on_exit = on_report, on_exit
        self._answers: deque[protocol.Answer] = deque()
        self._states: dict[int, protocol.StateRead] = {}
        self._numbers = itertools.count(1)
        self._answered = threading.Condition()
        self._gone = False
        self._log = Log()
        scratch.mkdir(parents=True)
        options = [
            *(["--warm"] if warm else []),
            *(["--begin"] if begin else []),
            *(["--master", master] if master is not None else []),
            *(["--storage", storage] if storage is not None else []),
        ]
        self._process = subprocess.Popen(
            [sys.executable, *PROGRAM, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(scratch, engine, self._mark),
            start_new_session=True,
        )
        self._write_guard = threading.Lock()
        self._threads = [
            threading.Thread(target=work, name=f"driver {self.pid} {name}", daemon=True)
            for work, name in ((self._listen, "reports"), (self._keep_log, "log"))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._gone and self._process.poll() is None

    # talking

    def send(self, command: protocol.Command) -> None:
        """Send a command; one to a driver that is gone is lost, and `on_exit` is called."""
        assert self._process.stdin is not None
        with self._write_guard, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()

    def ask(self, command: protocol.Command, answer: type[_A], timeout: float) -> _A:
        """Send a command and return its answer.

        Raises:
            MillstreamError: What the driver has failed with, or why it refuses.
            DriverFailed: It did not answer.
        """
        self.send(command)
        with self._answered:
            if not self._answered.wait_for(
                lambda: self._answers or self._gone or self.failed, timeout
            ):
                raise DriverFailed(f"driver {self.pid} did not answer in {timeout:g} s")
            if self.failed is not None:
                raise protocol.error_of(self.failed)
            if not self._answers:
                hint = self._log.last()
                raise DriverFailed(f"driver {self.pid} ended before it answered", hint=hint)
            found = self._answers.popleft()
        if isinstance(found, protocol.Refused):
            raise protocol.error_of(found.failure)
        if not isinstance(found, answer):
            raise DriverFailed(f"driver {self.pid} sent another answer: {type(found).__name__}")
        return found

    def read_state(self, asked: protocol.Question, timeout: float) -> protocol.StateRead:
        """Ask about the state of the job; several may be asked for at once.

        Raises:
            MillstreamError: Why it cannot be read.
            DriverFailed: It did not answer.
        """
        with self._answered:
            number = next(self._numbers)
        self.send(msgspec.structs.replace(asked, number=number))
        with self._answered:
            self._answered.wait_for(
                lambda: number in self._states or self._gone or self.failed, timeout
            )
            found = self._states.pop(number, None)
        if found is None:
            raise DriverFailed(f"driver {self.pid} did not answer")
        if found.failure is not None:
            raise protocol.error_of(found.failure)
        return found

    def run(self, how: protocol.Run) -> None:
        """Run a flow; from here on what the driver prints goes to its log."""
        self._log.open(Path(how.log))
        self.send(how)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        decoder = msgspec.json.Decoder(protocol.Report)
        for line in self._process.stdout:
            try:
                report = decoder.decode(line)
            except msgspec.MsgspecError:
                _log.warning("driver %s sent an unknown report: %r", self.pid, line[:200])
                continue
            self._received(report)
        self._process.wait()
        self._sweep()
        self._close()
        with self._answered:
            self._gone = True
            self._answered.notify_all()
        self._on_exit(self)

    def _received(self, report: protocol.Report) -> None:
        with self._answered:
            match report:
                case protocol.Failed():
                    self.failed = report
                case protocol.Warm():
                    self.warm = True
                case protocol.Ready():
                    self.ready_at = time.monotonic()
                case protocol.StateRead():
                    self._states[report.number] = report
                case _ if isinstance(report, protocol.Answer):
                    self._answers.append(report)
            self._answered.notify_all()
        self._on_report(self, report)

    def _keep_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.write(line)
        self._log.close()
        self._process.stderr.close()

    # ending

    def stop(self) -> None:
        """Let it stop between two batches; `on_exit` is called when it has."""
        self.send(protocol.Stop())

    def kill(self) -> None:
        """End it, and all that it has started, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)
        self._sweep()

    def wait(self, timeout: float) -> bool:
        """Wait until it is gone, with all that it has started; return whether it is."""
        with self._answered:
            gone = self._answered.wait_for(lambda: self._gone, timeout)
        if gone:
            self._threads[-1].join(_KILLED_S)
            self._log.close()
        return gone

    def _sweep(self) -> None:
        """End what is left of a driver that died: Java and Spark's Python processes."""
        end_all(marked(_DRIVER, self._mark))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._write_guard, contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()

    @property
    def reason(self) -> str:
        """Why it is gone, in words."""
        if self.failed is not None:
            return self.failed.message
        code = self._process.poll()
        if code is not None and code < 0:
            return f"the driver was killed by {signal.Signals(-code).name}"
        return f"the driver ended with exit code {code}"


def _environment(scratch: Path, engine: Path, mark: str) -> dict[str, str]:
    place = str(scratch.resolve())
    own = shlex.quote(f"-Djava.io.tmpdir={place}")
    java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {own}".strip()
    ours = {
        _FOLDER: str(engine.resolve()),
        _DRIVER: mark,
        "TMPDIR": place,
        "SPARK_LOCAL_DIRS": place,
    }
    return {**os.environ, **ours, "JAVA_TOOL_OPTIONS": java, "PYTHONUNBUFFERED": "1"}


# what drivers leave


def marked(name: str, value: str) -> Iterator[psutil.Process]:
    """Find the processes of this user that have a mark in their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(name) == value:
                yield process


def end_all(processes: Iterable[psutil.Process]) -> int:
    """Kill processes, wait until they have ended, and return how many there were."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
            found.append(process)
    wait_until = time.monotonic() + _KILLED_S
    while not all(map(_has_ended, found)) and time.monotonic() < wait_until:
        time.sleep(_LOOK_S)
    return len(found)


def _has_ended(process: psutil.Process) -> bool:
    """Tell whether a process has let go of all that it had.

    Its entry stays until its parent asks for it. They are not our children, and a process that adopts them may never ask.
    """
    try:
        # The first thread of a program may have ended before the others, which have its files.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


class Log:
    """The log of a job: two files at most, the older one with ".1" at its end.

    What is written before it has a place is kept, up to a number of lines. A disk that is full
    costs lines, no more.
    """

    def __init__(self, most_bytes: int = _LOG_BYTES) -> None:
        self._most = most_bytes
        self._early: deque[bytes] = deque(maxlen=_EARLY_LINES)
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._guard = threading.Lock()
        self._closed = False

    def open(self, path: Path) -> None:
        """Write to a file from here on, what is kept first."""
        with self._guard:
            self._path = path
            early, self._early = list(self._early), deque(maxlen=1)
            for line in early:
                self._put(line)

    def write(self, line: bytes) -> None:
        with self._guard:
            self._early.append(line)
            if self._path is not None and not self._closed:
                self._put(line)

    def _put(self, line: bytes) -> None:
        assert self._path is not None
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self._path, "ab", opener=owner_only)  # noqa: SIM115 an opener
            self._file.write(line)
            self._file.flush()
            if self._file.tell() > self._most:
                self._file.close()
                self._file = None
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        except OSError:
            self._file = None

    def last(self) -> str | None:
        """Return the last line that was written."""
        with self._guard:
            return self._early[-1].decode(errors="replace").strip() if self._early else None

    def close(self) -> None:
        """Write no more."""
        with self._guard:
            self._closed = True
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None


class DriverPool:
    """All drivers of an engine, with spares that have Spark started already.

    Call from one thread that lives as long as the engine: the kernel ends a driver with the thread
    that started it.
    """

    def __init__(
        self,
        data: Path,
        *,
        on_report: Callable[[DriverProcess, protocol.Report], None],
        on_exit: Callable[[DriverProcess], None],
        master: str | None = None,
        storage: str | None = None,
        spares: int = 0,
    ) -> None:
        self._data = data
        self._scratch = data / "scratch"
        self._on_report, self._on_exit = on_report, on_exit
        self._master, self._storage = master, storage
        self._wanted = spares
        self._numbers = itertools.count(1)
        self._spares: list[DriverProcess] = []
        self._fill_at = self._taken_at = 0.0
        self._taken: DriverProcess | None = None
        self._expected: DriverProcess | None = None
        self._expected_until = 0.0

    def clear(self) -> int:
        """End what an engine before has left; return how many processes that were."""
        ended = end_all(marked(_FOLDER, str(self._data.resolve())))
        shutil.rmtree(self._scratch, ignore_errors=True)
        return ended

    def start(self, *, to_run: bool = True, spark: bool = False) -> DriverProcess:
        """Return a driver that has nothing to do yet: a spare one, the warmest, if there is any.

        One that is not `to_run` what it reads needs no Spark: the spares are kept. Another one
        starts Java at once if it is certain to need `spark`.
        """
        self._spares = [spare for spare in self._spares if spare.alive]
        spares = self._spares if to_run else []
        if not spark:  # that one is another job's, and its Java would be in vain
            spares = [spare for spare in spares if spare is not self._expected]
        spare = max(spares, key=lambda one: one.warm, default=None)
        if spare is None:
            return self._new(begin=to_run and spark)
        self._spares.remove(spare)
        self._taken, self._taken_at = spare, time.monotonic()
        return spare

    def expect(self) -> None:
        """Start a driver that runs a flow in a moment, unless there is a spare one for that."""
        if not any(spare.alive for spare in self._spares):
            self._expected = self._new(begin=True)
            self._expected_until = time.monotonic() + _EXPECTED_S
            self._spares.append(self._expected)

    def _busy(self) -> bool:
        """Tell whether a spare that was taken needs the cores for its first batches."""
        taken, now = self._taken, time.monotonic()
        if taken is None or not taken.alive or now > self._taken_at + _REFILL_S:
            return False
        return taken.ready_at is None or now < taken.ready_at + _FIRST_BATCHES_S

    def fill(self) -> None:
        """Start spares, one at a time, until there are as many as wanted."""
        for spare in self._spares:
            if not spare.alive:
                _log.warning("a spare driver is gone: %s", spare.reason)
                self._fill_at = time.monotonic() + _REFILL_S
        self._spares = [spare for spare in self._spares if spare.alive]
        self._drop_expected()
        if time.monotonic() < self._fill_at or self._busy():
            return
        if len(self._spares) < self._wanted and all(spare.warm for spare in self._spares):
            self._spares.append(self._new(warm=True))

    def _drop_expected(self) -> None:
        """End a driver that nobody has taken after all."""
        expected = self._expected
        if expected in self._spares and time.monotonic() > self._expected_until:
            self._spares.remove(expected)
            expected.kill()

    @property
    def warm(self) -> int:
        """How many spares could run a flow at once."""
        return sum(spare.warm and spare.alive for spare in self._spares)

    def _new(self, *, warm: bool = False, begin: bool = False) -> DriverProcess:
        return DriverProcess(
            self._scratch / str(next(self._numbers)),
            engine=self._data,
            on_report=self._on_report,
            on_exit=self._on_exit,
            master=self._master,
            storage=self._storage,
            warm=warm,
            begin=begin,
        )

    def close(self) -> None:
        """End the spares."""
        self._wanted = 0
        for spare in self._spares:
            spare.kill()
        for spare in self._spares:
            spare.wait(_KILLED_S)
        self._spares.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)
