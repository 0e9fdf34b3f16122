"""A runtime: hosts a program outside Spark, between upstreams and downstreams, and loses nothing.

    upstreams ──messages──▶ program ──answers──▶ queue on disk ──messages──▶ downstreams
        ◀──── acks ── inputs behind what is trimmed ◀── trimmed ◀── acks of all of them ────

One thread, which waits for whatever comes first: idle, it uses no CPU. An answer is durable in the
queue before it is sent; an input is acknowledged when all that was made of it is acknowledged. What
is in memory is bounded: upstreams are not read while the program has enough to do, nor while the
queue is at its limit or the disk full.
"""

from __future__ import annotations

import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from millstream.actions import wire
from millstream.actions.child import check_sandbox
from millstream.actions.downstreams import Downstreams
from millstream.actions.handshake import Admission, read_secret
from millstream.actions.log import WriteLog
from millstream.actions.peers import Closed, Supervisor, guard, listen
from millstream.actions.queue import Answer, Queue, set_aside
from millstream.actions.running_program import RunningProgram
from millstream.actions.serials import NONE, after, id_of
from millstream.actions.settings import RuntimeSettings
from millstream.actions.upstreams import Upstreams
from millstream.actions.watcher import READ, Watcher
from millstream.errors import BadBytes, Fenced, QueueDamaged, QueueFull

_ENOUGH: Final = 8 << 20
_GRACE_S: Final = 5.0
_FULL_S: Final = 0.5
_MOST_SUPERVISORS: Final = 16
_MOST_UNREAD: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a runtime has done since it was started."""

    received: int = 0
    repeated: int = 0
    made: int = 0
    failed: int = 0
    starts: int = 0


class Runtime:
    """A runtime that is open; `run` does its work."""

    def __init__(self, settings: RuntimeSettings, write_log: WriteLog) -> None:
        check_sandbox(settings.program)
        _guard(settings)
        secret = None if settings.secret is None else read_secret(settings.secret)
        self.settings = settings
        self._log = write_log
        self._queue = self._opened()
        who = wire.Hello(settings.name, self._generation())
        self._watcher = Watcher(self._woken)
        self._program = RunningProgram(settings, self._watcher, write_log)
        take, most = self._program.matching.add, settings.program.limits.frame_bytes
        admission = Admission.of(secret, settings.nodes)
        self._ups = Upstreams(self._queue, self._watcher, take, most, write_log, admission)
        self._downs = Downstreams(
            self._addresses(), who, self._queue, self._watcher, secret=secret, log=write_log
        )
        self._stop_at: float | None = None
        self._full_until = 0.0
        self._made = 0
        self._listener = None if settings.listens is None else listen(settings.listens)
        self._supervisors: list[Supervisor] = []
        service = None if settings.service is None else listen(settings.service)
        if service is not None:
            self._watcher.watch(service, READ, lambda: self._accept_supervisor(service))
        if (listener := self._listener) is not None:
            self._watcher.watch(listener, READ, lambda: self._ups.accept(listener))

    def _opened(self) -> Queue:
        """Open the queue; one that is damaged is set aside, where a new one can take its place.

        The upstreams send again what was not acknowledged, so a runtime without a supervisor
        continues. With one it ends, and is started again as the next generation: downstreams would
        take the first messages of a new queue for those they had.

        Raises:
            QueueDamaged: It is damaged.
        """
        try:
            return Queue(self.settings.folder)
        except QueueDamaged as damaged:
            self._set_aside(damaged)
            if self.settings.source or self.settings.generation is not None:
                raise
            return Queue(self.settings.folder)

    def _set_aside(self, damaged: QueueDamaged) -> None:
        """Put a damaged queue aside; that of a source has messages that nobody sends again."""
        if not self.settings.source:
            place = set_aside(self.settings.folder)
            self._log(f"{damaged}; the queue is set aside in {place}, upstreams send again")

    def _generation(self) -> int:
        noted = self._queue.notes.get("generation")
        wanted = self.settings.generation
        if wanted is not None and noted is not None and wanted < int(noted):
            self._queue.close()
            msg = f'the queue of "{self.settings.name}" is of generation {noted}, not {wanted}'
            raise Fenced(msg)
        generation = wanted or (int(noted) if noted else int(time.time() * 1000))
        self._queue.note("generation", str(generation))
        return generation

    def _addresses(self) -> tuple[str, ...]:
        """Return whom to send to: as the settings say, with the changes that came since then."""
        told = " ".join(self.settings.outs)
        if self._queue.notes.get("told") == told:
            return tuple(self._queue.notes["outs"].split())
        self._queue.note("outs", told)
        self._queue.note("told", told)
        return self.settings.outs

    @property
    def cut_short(self) -> bool:
        """Whether a source's program was ordered to end, and has not ended by itself."""
        return self._program.cut_short

    def statistics(self) -> Statistics:
        ups, program = self._ups, self._program
        return Statistics(ups.received, ups.repeated, self._made, program.failed, program.starts)

    # the loop

    def run(self) -> None:
        """Work until `stop`, or until a source that runs once is done.

        Raises:
            ActionMissing: There is no such program.
            QueueBroken: The disk failed; nothing that was acknowledged is lost.
            QueueDamaged: The queue is damaged, and set aside unless it is that of a source.
        """
        try:
            self._work()
        except QueueDamaged as damaged:
            self._set_aside(damaged)
            raise

    def _work(self) -> None:
        try:
            while not self._over():
                self._step()
        finally:
            self.close()

    def stop(self) -> None:
        """End, from any thread or a signal: the program may finish what it was given."""
        self._program.stopping = True
        self._watcher.wake()

    def drain(self) -> None:
        """Let a source end, from any thread or a signal; all that its program made is sent."""
        self._program.draining = True
        self._watcher.wake()

    def _over(self) -> bool:
        program = self._program
        if program.stopping:
            late = self._stop_at is not None and time.monotonic() >= self._stop_at
            idle = program.matching.empty and not self.settings.source
            return late or self._full or program.child is None or idle
        last = self.settings.once or program.draining
        return last and program.ended and not program.answers and self._queue.oldest == NONE

    @property
    def _full(self) -> bool:
        return self._queue.size >= self.settings.queue_bytes

    def _step(self) -> None:
        now = time.monotonic()
        self._program.keep(now)
        self._downs.keep(now)
        self._ups.keep(now)
        self._choose()
        self._watcher.wait(self._timeout(time.monotonic()))
        self._store()
        self._downs.send()
        self._settle()
        self._program.feed()

    def _timeout(self, now: float) -> float | None:
        """Return how long to wait if nothing happens; None is for ever."""
        moments = [*self._downs.moments(), *self._ups.moments(), *self._program.moments()]
        if self._program.answers:
            moments.append(self._full_until)
        if self._stop_at is not None:
            moments.append(self._stop_at)
        return max(0.0, min(moments) - now) if moments else None

    def _choose(self) -> None:
        """Wait only for what could be dealt with."""
        program = self._program
        room = not program.answers and not self._full
        self._ups.choose(more=room and not program.stopping and program.matching.bytes < _ENOUGH)
        self._downs.choose()
        program.choose(room=room)

    def _woken(self) -> None:
        if self._program.draining:
            self._program.ask_to_end()
        if self._program.stopping and self._stop_at is None:
            self._stop_at = time.monotonic() + _GRACE_S
            if self._listener is not None:
                self._watcher.forget(self._listener)
            if self.settings.source:
                self._program.stop()

    # the queue

    def _store(self) -> None:
        """Make the answers durable."""
        answers = self._program.answers
        if not answers or time.monotonic() < self._full_until:
            return
        last = self._queue.last
        try:
            if self._downs.outs.addresses:
                self._queue.append([answer for answer in answers if answer.payloads])
        except QueueFull as full:
            if not self._full_until:
                self._log(str(full))
            self._full_until = time.monotonic() + _FULL_S
            return
        self._full_until = 0.0
        self._note(answers, last)
        self._program.answers = []

    def _note(self, answers: list[Answer], serial: int) -> None:
        """Note which inputs gave no output; `serial` is the last output before these answers."""
        for answer in answers:
            if answer.payloads and self._downs.outs.addresses:
                for _ in answer.payloads:
                    serial = after(serial)
            elif answer.sender:
                self._ups.inputs.blank(answer.sender, answer.input, serial)
            self._made += len(answer.payloads)

    def _settle(self) -> None:
        """Trim what every downstream has, and acknowledge the inputs behind it."""
        everywhere = self._downs.outs.everywhere(self._queue.last)
        inputs = self._queue.trim(everywhere) if everywhere > self._queue.trimmed else {}
        self._ups.acknowledge(self._ups.inputs.trimmed(self._queue.trimmed, inputs))

    # commands

    def _accept_supervisor(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        one = Supervisor(sock)
        self._supervisors.append(one)
        self._watcher.watch(sock, READ, lambda: self._obey(one))
        if len(self._supervisors) > _MOST_SUPERVISORS:
            self._leave(self._supervisors[0])

    def _obey(self, one: Supervisor) -> None:
        try:
            data = one.read()
            for command in one.commands.feed(data) if data else ():
                one.write(self._answer(command))
                one.last = one.last or isinstance(command, wire.UnknownCommand)
            one.last = one.last or one.unsent > _MOST_UNREAD
        except BadBytes:
            one.last = True
            with suppress(Closed):
                one.write(wire.REFUSED)
        except Closed:
            one.last = True
        if one.last:
            self._leave(one)

    def _leave(self, one: Supervisor) -> None:
        self._supervisors.remove(one)
        self._watcher.forget(one.sock)
        one.close()

    def _answer(self, command: wire.Command) -> bytes:
        match command:
            case wire.Ping():
                runs = self._program.child is not None
                return wire.pong(id_of(self._queue.oldest)) if runs else wire.REFUSED
            case wire.ChangeOut(old, new):
                return wire.DONE if self.change_out(old, new) else wire.REFUSED
            case wire.UnknownCommand():
                return wire.UNKNOWN

    def change_out(self, old: str, new: str) -> bool:
        """Send to `new` what `old` has not acknowledged; False if we do not send to `old`."""
        changed = self._downs.change(old, new)
        if changed:
            self._log(f"sends to {new} instead of {old}")
        return changed

    def close(self) -> None:
        """Release everything; what is in the queue stays."""
        self._program.close()
        self._ups.close()
        self._downs.close()
        self._watcher.close()
        if self._listener is not None:
            self._listener.close()
        self._queue.close()


def _guard(settings: RuntimeSettings) -> None:
    """Refuse to listen where anybody could send or command, unless that is wanted.

    Raises:
        OpenNetwork: Other hosts can reach us.
    """
    wanted = settings.open_without_secret
    if settings.listens is not None:
        has = settings.secret is not None
        guard(settings.listens, secret=has, open_without_secret=wanted)
    if settings.service is not None:  # commands have no proof
        guard(settings.service, secret=False, open_without_secret=wanted)


def stop_on_signals(runtime: Runtime) -> None:
    """Let SIGTERM and SIGINT end a runtime, SIGUSR1 drain it; only in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runtime.stop())
    signal.signal(signal.SIGUSR1, lambda *_: runtime.drain())
