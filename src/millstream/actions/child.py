"""A user's program as a child process: started, fed, read, and ended whatever happens.

    we ──stdin──▶ program ──stdout──▶ we        frames, both ways at once
                  program ──stderr──▶ the log   lines

The child leads a process group of its own, and all that it starts ends with it (see sandbox.py).
They are killed when it is stopped, when it has ended, and when our own process is gone, also by
kill -9 (see guard.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Final

from millstream.actions import guard, launch
from millstream.actions.log import LogLines, WriteLog
from millstream.actions.program import Program
from millstream.errors import ActionDied, ActionFailed, ActionHung, NetworkOpen, SandboxOpen

PIPE_BYTES: Final = 1 << 20
_READ: Final = 1 << 18
_GRACE_S: Final = 3.0
_PROBE_S: Final = 60.0
_NOTHING: Final = memoryview(b"")


def check_sandbox(program: Program) -> None:
    """Refuse a program whose network or sandbox has to be closed if that cannot be done here.

    Raises:
        NetworkOpen: The system does not permit to close its network.
        SandboxOpen: The system does not permit a part of its sandbox, which is strict.
    """
    if program.whitelist is None and program.sandbox != "strict":
        return
    alone = replace(program, argv=("/bin/true",), env=())
    words: list[str] = []
    child = Child(alone, Path("/"), words.append, stdin=False)
    if child.finish(_PROBE_S) == 0:
        return
    fact = f'the program "{Path(program.argv[0]).name}" cannot start here: {" ".join(words)}'
    if program.sandbox == "strict":
        raise SandboxOpen(
            fact, hint='sandbox "usual" starts it with what this system permits; see its user, too'
        )
    raise NetworkOpen(
        fact,
        hint="that takes root, or a system that permits user namespaces; "
        "without conn_whitelist the network is open",
    )


def _script(program: Program, folder: Path) -> list[str]:
    own = {"user": program.user, "whitelist": program.whitelist, "sandbox": program.sandbox}
    wanted = {**asdict(program.limits), **own}
    return [sys.executable, "-I", "-S", launch.__file__, json.dumps(wanted), *program.found(folder)]


class Child:
    """A running program. Its pipes do not block.

    To be waited for with any selector: `stdin` for writing while there is something to write,
    `stdout`, `stderr` and `ended` for reading.
    """

    def __init__(
        self, program: Program, folder: Path, write_log: WriteLog, *, stdin: bool = True
    ) -> None:
        """Start `program` in its working directory `folder`.

        Raises:
            ActionMissing: It is not there, or may not be run.
        """
        self.program = program
        self.lines = LogLines(write_log)
        if program.user is not None and os.getuid() == 0:
            shutil.chown(folder, program.user)
        self._process = subprocess.Popen(
            _script(program, folder),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(program.env),
            cwd=folder,
            start_new_session=True,
        )
        self.pid = self._process.pid
        _Guard.of_this_process().watch(self.pid)
        self.ended = os.pidfd_open(self.pid)
        self.stdin = _pipe(self._process.stdin)
        self.stdout = _pipe(self._process.stdout)
        self.stderr = _pipe(self._process.stderr)

    def write(self, data: memoryview) -> int:
        """Write what fits into the pipe, and return how much; if nobody reads it, all of it."""
        try:
            return os.write(self.stdin, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # it is about to end, and will be missed there

    def read(self) -> bytes | None:
        """Return what is there, None if that is nothing yet, empty if it is the end."""
        return _read(self.stdout)

    def read_into(self, view: memoryview) -> int | None:
        """Read into `view`; return how much, None if nothing is there yet, 0 at the end."""
        try:
            return os.readv(self.stdout, [view])
        except BlockingIOError:
            return None

    def pass_on_log(self) -> bool:
        """Pass on what the program has written to its log; False at the end of it."""
        data = _read(self.stderr)
        if data:
            self.lines.feed(data, time.monotonic())
        return data != b""

    def close_input(self) -> None:
        """Tell the program that no more comes."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.stdin = -1

    def ask_to_end(self) -> None:
        """Send it SIGTERM; what it still writes can be read."""
        self._signal(signal.SIGTERM)

    def stop(self, grace_s: float = _GRACE_S) -> int:
        """End the program and all that it started, by force after `grace_s`; return its code."""
        if self._process.returncode is None and not self._gone(0.0):
            self._signal(signal.SIGTERM)
            self._gone(grace_s)
        return self._end()

    def finish(self, timeout: float) -> int:
        """Close the program's input and let it end by itself; killed after the time limit."""
        self.close_input()
        self._gone(timeout)
        return self._end()

    def _end(self) -> int:
        # Also when it has ended: what it started may still be there.
        if self._process.returncode is None:
            guard.end(self.pid)
        _Guard.of_this_process().forget(self.pid)
        code = self._process.wait()  # from here on the number may be another's
        self._last_words()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        if self.ended >= 0:
            os.close(self.ended)
        self.stdin = self.stdout = self.stderr = self.ended = -1
        return code

    def _last_words(self) -> None:
        if self.stderr >= 0:
            # No more than fits into the pipe: someone who escaped may hold the other end.
            for _ in range(PIPE_BYTES // _READ + 1):
                if not (data := _read(self.stderr)):
                    break
                self.lines.feed(data, time.monotonic())
            self.lines.close()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:  # not waited for yet, so the number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _gone(self, timeout: float) -> bool:
        """Tell if the program has ended, waiting for it while it may write."""
        until = time.monotonic() + timeout
        poller = select.poll()
        for fd in (self.ended, self.stdout, self.stderr):
            poller.register(fd, select.POLLIN)
        while True:
            left = until - time.monotonic()
            events = poller.poll(max(0.0, left) * 1000)
            if any(fd == self.ended for fd, _ in events):
                return True
            if left <= 0:
                return False
            for fd, _ in events:
                if not (self.pass_on_log() if fd == self.stderr else self.read()):
                    poller.unregister(fd)

    def failure(self, fact: str, kind: type[ActionFailed]) -> ActionFailed:
        """Return an error that says how the program did and what it said last."""
        name = Path(self.program.argv[0]).name
        words = "".join(f"\n    {line}" for line in self.lines.tail[-8:])
        return kind(f'the program "{name}" {fact}' + (f"; it said last:{words}" if words else ""))


def exchange(
    child: Child,
    pieces: Iterator[memoryview],
    view: Callable[[], memoryview],
    take: Callable[[int], bool],
    until: float,
) -> None:
    """Write `pieces` to a program, and read until `take` has enough, both at once.

    Args:
        child: The program.
        pieces: Frames; the next piece is asked for when the program has room for it.
        view: Gives the room to read into.
        take: Called with how much was read; returns whether that is all.
        until: When to stop waiting, on the monotonic clock.

    Raises:
        ActionHung: It took too long.
        ActionDied: The program ended, or closed its output.
    """
    poller = select.poll()
    for fd in (child.stdout, child.stderr, child.ended):
        poller.register(fd, select.POLLIN)
    if data := next(pieces, _NOTHING):
        poller.register(child.stdin, select.POLLOUT)
    while True:
        left = until - time.monotonic()
        events = dict(poller.poll(max(0.0, left) * 1000))
        if left <= 0:
            raise child.failure("did not answer in time", ActionHung)
        if child.stdin in events:
            data = data[child.write(data) :] or next(pieces, _NOTHING)
            if not data:
                poller.unregister(child.stdin)
        if child.stdout in events:
            count = child.read_into(view())
            if count == 0:
                raise _death(child)
            if count is not None and take(count):
                return
        elif child.ended in events:
            raise _death(child)
        if child.stderr in events and not child.pass_on_log():
            poller.unregister(child.stderr)


def _death(child: Child) -> ActionFailed:
    code = child.stop(grace_s=0.5)
    return child.failure(describe_exit(code), ActionDied)


def describe_exit(code: int) -> str:
    """Return how a program ended, in words.

    Example:
        >>> describe_exit(-9), describe_exit(3)
        ('was ended by SIGKILL', 'ended with code 3')
    """
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal.Signals(-code).name}"


class _Guard:
    """Our end of the pipe to the guard of this process."""

    _one: _Guard | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )

    @classmethod
    def of_this_process(cls) -> _Guard:
        """Return the guard, started if there is none; a fork has one of its own."""
        with cls._lock:  # one that is replaced at once would end what it watches
            one = cls._one
            if one is None or one.owner != os.getpid() or one._process.poll() is not None:
                one = cls._one = cls()
            return one

    def watch(self, group: int) -> None:
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._say(f"-{group}\n")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        # Shorter than PIPE_BUF: whole or not at all.
        os.write(self._process.stdin.fileno(), line.encode())


def _pipe(stream: IO[bytes] | None) -> int:
    """Make one of our ends large and never waiting."""
    if stream is None:
        return -1
    fd = stream.fileno()
    os.set_blocking(fd, False)
    with suppress(OSError):  # the system's limit for users: smaller pipes do, slower
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return fd


def _read(fd: int) -> bytes | None:
    try:
        return os.read(fd, _READ)
    except BlockingIOError:
        return None
