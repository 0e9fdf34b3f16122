"""The program of a runtime: started, fed, read, and started again when it dies or hangs.

What it has not answered then is given to the next one. A message that fails time and again goes to
the dead letters of the queue's folder.
"""

from __future__ import annotations

import base64
import selectors
import time
from collections.abc import Iterator
from typing import Final

from millstream.actions.child import Child, describe_exit
from millstream.actions.frames import Decoder
from millstream.actions.log import WriteLog
from millstream.actions.matching import Input, Matching
from millstream.actions.queue import Answer
from millstream.actions.serials import id_of
from millstream.actions.settings import RuntimeSettings
from millstream.actions.watcher import READ, WRITE, Watcher
from millstream.errors import ActionFailed, BadBytes

_GRACE_S: Final = 5.0
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_NEVER: Final = float("inf")


class RunningProgram:
    """A program with what it was given and has not answered; `answers` are those to be stored."""

    def __init__(self, settings: RuntimeSettings, watcher: Watcher, log: WriteLog) -> None:
        self._settings, self._watcher, self._log = settings, watcher, log
        self.matching = Matching(
            settings.program.contract,
            attempts=settings.attempts,
            answer_bytes=settings.program.limits.answer_bytes,
        )
        self.child: Child | None = None
        self.answers: list[Answer] = []
        self.starts = self.failed = 0
        self.stopping, self.draining = False, settings.drain
        #: Whether a source has ended, and whether it was ordered to and has not by itself.
        self.ended = self.cut_short = settings.drain
        self._start_at, self._pause_s = 0.0, _SHORTEST_S
        self._drain_at = _NEVER
        self._unwritten = bytearray()
        self._decoder = Decoder(settings.program.limits.frame_bytes)
        #: When it was last idle, or last answered.
        self._since = 0.0

    def moments(self) -> Iterator[float]:
        """Yield when `keep` has something to do."""
        if self._to_be_started:
            yield self._start_at
        if self.matching.outstanding:
            yield self._since + self._settings.time_limit_s
        if self.child is not None and self._drain_at < _NEVER:
            yield self._drain_at

    @property
    def _to_be_started(self) -> bool:
        return self.child is None and not self.ended and not self.stopping

    def keep(self, now: float) -> None:
        """Start the program if it should run, end it if it hangs."""
        child = self.child
        if child is not None and now >= self._drain_at:
            self._lose(child.stop(0.0))
        if child is None and self.draining and self._settings.source and not self.ended:
            self.ended = self.cut_short = True  # it was about to be started again
        hangs = self.matching.outstanding and now >= self._since + self._settings.time_limit_s
        if child is not None and hangs:
            self._log("the program did not answer in time")
            self._lose(child.stop(0.5))
        if self._to_be_started and now >= self._start_at:
            self._start()

    def _start(self) -> None:
        work = self._settings.folder / "work"
        work.mkdir(exist_ok=True)
        child = Child(self._settings.program, work, self._log, stdin=not self._settings.source)
        self.child = child
        self.starts += 1
        self._decoder = Decoder(self._settings.program.limits.frame_bytes)
        self._watcher.watch(child.stderr, READ, lambda: self._read_log(child))
        self.feed()

    def ask_to_end(self) -> None:
        """Let the program of a source end; what it has written is read until it does."""
        if self._drain_at == _NEVER and self.child is not None and self._settings.source:
            self._drain_at = time.monotonic() + _GRACE_S
            self.child.ask_to_end()

    def stop(self) -> None:
        """End the program, whatever it does."""
        if self.child is not None:
            self._lose(self.child.stop(0.5))

    def choose(self, *, room: bool) -> None:
        """Wait for answers only if there is room for them."""
        if self.child is None:
            return
        for fd in (self.child.stdout, self.child.ended):
            self._watcher.want(fd, READ if room else 0, lambda _: self._read())
        if self.child.stdin >= 0:
            events = WRITE if self._unwritten else 0
            self._watcher.want(self.child.stdin, events, lambda _: self._write())

    # what goes in and comes out

    def feed(self) -> None:
        """Give it what it may be given now."""
        if self.child is None or self._settings.source:
            return
        idle = not self.matching.outstanding
        given = self.matching.give()
        if given:
            if idle:
                self._since = time.monotonic()
            for one in given:
                self._unwritten += len(one.payload).to_bytes(4, "big") + one.payload
            self._write()

    def _write(self) -> None:
        if self.child is not None and self.child.stdin >= 0 and self._unwritten:
            with memoryview(self._unwritten) as view:
                written = self.child.write(view)
            del self._unwritten[:written]

    def _read_log(self, child: Child) -> None:
        if child is self.child and not child.pass_on_log():
            self._watcher.forget(child.stderr)

    def _read(self) -> None:
        child = self.child
        if child is None or self.answers:
            return
        data = child.read()
        if data is None:
            if _has_ended(child):
                self._lose(child.stop(0.0))
            return
        if not data:
            self._lose(child.stop(1.0))
            return
        try:
            self._answered(self._decoder.feed(data))
        except (BadBytes, ActionFailed) as why:
            self._log(f"the program {why.message}")
            child.stop(0.5)
            self._lose(1)

    def _answered(self, frames: list[bytes]) -> None:
        if self._settings.source:
            self.answers += [Answer([frame]) for frame in frames if frame]
        elif frames:
            self.answers += self.matching.answered(frames)
            self._since = time.monotonic()
        self._pause_s = _SHORTEST_S

    # its end

    def _lose(self, code: int) -> None:
        child, self.child = self.child, None
        if child is None:
            return
        self._watcher.forget_pipes()
        self._unwritten.clear()
        if self._settings.source and (code == 0 or self.draining):
            self.ended, self.cut_short = True, self.draining
            self._log("the program has ended")
            return
        if not self.stopping:
            self._log(f"the program {describe_exit(code)}; starting it again")
        failed = self.matching.failed()
        if failed is not None:
            self._put_aside(failed, child)
        self._start_at = time.monotonic() + self._pause_s
        self._pause_s = min(_LONGEST_S, self._pause_s * 2)

    def _put_aside(self, one: Input, child: Child) -> None:
        """Put a message that the program cannot do into the dead letters."""
        from millstream.journal import journal_at  # slow to import, seldom needed

        reason = child.failure("failed at it", ActionFailed).message
        with journal_at(self._settings.folder).dead_letters() as letters:
            letters.put(one.sender, one.serial, reason, _text(one.payload))
        self.failed += 1
        self._log(f"message {id_of(one.serial)} of {one.sender} was put to the dead letters")
        self.answers.append(Answer([], one.sender, one.serial))

    def close(self) -> None:
        if self.child is not None:
            self.child.stop(0.5)
            self.child = None


def _has_ended(child: Child) -> bool:
    with selectors.DefaultSelector() as one:
        one.register(child.ended, READ)
        return bool(one.select(0))


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(payload).decode()
