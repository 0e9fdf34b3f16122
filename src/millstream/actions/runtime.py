"""A runtime: hosts a program outside Spark, between upstreams and downstreams, and loses nothing.

    upstreams ──messages──▶ program ──answers──▶ queue on disk ──messages──▶ downstreams
        ◀──── acks ── inputs behind what is trimmed ◀── trimmed ◀── acks of all of them ────

One thread, which waits for whatever comes first: idle, it uses no CPU. An answer is durable in the
queue before it is sent; an input is acknowledged when all that was made of it is acknowledged. What
is in memory is bounded: upstreams are not read while the program has enough to do, nor while the
queue is at its limit or the disk full.

A program that dies or hangs is started again and given what it has not answered; a message that
fails time and again goes to the dead letters of the queue's folder.
"""

from __future__ import annotations

import base64
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.actions import wire
from millstream.actions.child import Child, check_network, describe_exit
from millstream.actions.deliveries import Inputs, Outs
from millstream.actions.frames import Decoder
from millstream.actions.matching import Input, Matching
from millstream.actions.peers import Closed, Downstream, Supervisor, Upstream, listen
from millstream.actions.program import Program
from millstream.actions.queue import Answer, Queue
from millstream.actions.serials import NONE, after, before, id_of
from millstream.errors import ActionError, ActionFailed, BadBytes, Fenced, QueueFull

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE
_ENOUGH: Final = 8 << 20
_GRACE_S: Final = 5.0
_FULL_S: Final = 0.5
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a runtime hosts and whom it talks to.

    It is a source if it listens nowhere, a sink if it sends nowhere. `generation` is that of this
    node's life: whoever starts it with an empty queue gives it a higher one than before. None takes
    the queue's, or the time of its making.
    """

    name: str
    program: Program
    folder: Path
    listens: str | None = None
    outs: tuple[str, ...] = ()
    service: str | None = None
    generation: int | None = None
    #: End when a source has ended and all of it was taken.
    once: bool = False
    #: Start no program, end when all that the queue has was taken: of a source.
    drain: bool = False
    time_limit_s: float = 60.0
    attempts: int = 3
    queue_bytes: int = 1 << 30


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

    def __init__(self, settings: Settings, write_log: Callable[[str], None]) -> None:
        check_network(settings.program)
        self.settings = settings
        self._log = write_log
        self._selector = selectors.DefaultSelector()
        self._queue = Queue(settings.folder)
        self._who = wire.Hello(settings.name, self._generation())
        self._inputs = self._known_inputs()
        self._outs = Outs(self._addresses(), self._queue.trimmed)
        self._matching = Matching(
            settings.program.contract,
            attempts=settings.attempts,
            answer_bytes=settings.program.limits.answer_bytes,
        )
        self._downs = {address: Downstream(address) for address in self._outs.addresses}
        self._ups: dict[str, Upstream] = {}
        self._connections = 0
        self._child: Child | None = None
        self._start_at, self._pause_s = 0.0, _SHORTEST_S
        self._draining, self._drain_at = settings.drain, float("inf")
        self._source_ended, self._stopping = settings.drain, False
        #: Whether a source's program was told to end, and has not ended by itself.
        self.cut_short = settings.drain
        self._stop_at: float | None = None
        self._to_child = bytearray()
        self._from_child = Decoder(settings.program.limits.frame_bytes)
        self._answers: list[Answer] = []
        self._full_until = 0.0
        self._since = 0.0
        self._numbers: dict[str, int] = dict.fromkeys(
            ("received", "repeated", "made", "failed", "starts"), 0
        )
        self._open_sockets()

    def _generation(self) -> int:
        noted = self._queue.notes.get("generation")
        wanted = self.settings.generation
        if wanted is not None and noted is not None and wanted < int(noted):
            self._queue.close()
            raise Fenced(
                f'the queue of "{self.settings.name}" is of generation {noted}, not {wanted}'
            )
        generation = wanted or (int(noted) if noted else int(time.time() * 1000))
        self._queue.note("generation", str(generation))
        return generation

    def _known_inputs(self) -> Inputs:
        """Find out from the queue what was done before."""
        fences = {
            key[6:]: int(value)
            for key, value in self._queue.notes.items()
            if key.startswith("fence:")
        }
        inputs, known = Inputs(fences), self._queue.inputs
        open_: dict[str, int] = {}
        cursor = self._queue.read(NONE)
        while len(open_) < len(known) and (outputs := cursor.read()):
            for output in outputs:
                if output.sender:
                    open_.setdefault(output.sender, output.input)
        for sender, highest in known.items():
            inputs.remember(sender, highest, before(open_[sender]) if sender in open_ else highest)
        return inputs

    def _addresses(self) -> tuple[str, ...]:
        """Return whom to send to: as we were told, with the changes that came since then."""
        told = " ".join(self.settings.outs)
        if self._queue.notes.get("told") == told:
            return tuple(self._queue.notes["outs"].split())
        self._queue.note("outs", told)
        self._queue.note("told", told)
        return self.settings.outs

    def _open_sockets(self) -> None:
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._watch(self._wake_in, _READ, self._woken)
        self._listeners: list[socket.socket] = []
        self._service_listener: socket.socket | None = None
        if self.settings.service is not None:
            self._service_listener = listen(self.settings.service)
            self._watch(self._service_listener, _READ, self._accept_supervisor)
        if self.settings.listens is not None:
            listener = listen(self.settings.listens)
            self._listeners.append(listener)
            self._watch(listener, _READ, lambda: self._accept_upstream(listener))

    @property
    def source(self) -> bool:
        return self.settings.listens is None

    def statistics(self) -> Statistics:
        return Statistics(**self._numbers)

    # the loop

    def run(self) -> None:
        """Work until `stop`, or until a source that runs once is done.

        Raises:
            ActionMissing: There is no such program.
            QueueBroken: The disk failed; nothing that was acknowledged is lost.
        """
        try:
            while not self._over():
                self._step()
        finally:
            self.close()

    def stop(self) -> None:
        """End, from any thread or a signal: the program may finish what it was given."""
        self._stopping = True
        os.write(self._wake_out, b".")

    def drain(self) -> None:
        """Let a source end, from any thread or a signal: its program is told to, and all that it made is sent."""
        self._draining = True
        os.write(self._wake_out, b".")

    def _over(self) -> bool:
        if self._stopping:
            late = self._stop_at is not None and time.monotonic() >= self._stop_at
            held_back = self._queue.size >= self.settings.queue_bytes
            return (
                late
                or held_back
                or self._child is None
                or (self._matching.empty and not self.source)
            )
        last = self.settings.once or self._draining
        return last and self._source_ended and not self._answers and self._queue.oldest == NONE

    def _step(self) -> None:
        now = time.monotonic()
        self._keep_child(now)
        self._keep_downstreams(now)
        self._choose()
        for key, events in self._selector.select(self._timeout(time.monotonic())):
            key.data(events) if key.data is not None else None
        self._store()
        for down in self._downs.values():
            self._send(down)
        self._settle()
        self._feed_child()

    def _timeout(self, now: float) -> float | None:
        """Return how long to wait if nothing happens; None is for ever."""
        moments = [down.retry_at for down in self._downs.values() if down.peer is None]
        if self._child is None and not self._source_ended and not self._stopping:
            moments.append(self._start_at)
        if self._matching.outstanding:
            moments.append(self._since + self.settings.time_limit_s)
        if self._answers:
            moments.append(self._full_until)
        if self._stop_at is not None:
            moments.append(self._stop_at)
        if self._child is not None and self._drain_at < float("inf"):
            moments.append(self._drain_at)
        return max(0.0, min(moments) - now) if moments else None

    def _watch(self, what: Any, events: int, call: Callable[[], None]) -> None:
        self._selector.register(what, events, lambda _: call())

    def _forget(self, what: Any) -> None:
        if what in self._selector.get_map():
            self._selector.unregister(what)

    def _want(self, what: Any, events: int, call: Callable[[int], None]) -> None:
        """Wait for these events, or for none."""
        key = self._selector.get_map().get(what)
        if key is None and events:
            self._selector.register(what, events, call)
        elif key is not None and not events:
            self._selector.unregister(what)
        elif key is not None and key.events != events:
            self._selector.modify(what, events, call)

    def _choose(self) -> None:
        """Wait only for what could be dealt with."""
        room = not self._answers and self._queue.size < self.settings.queue_bytes
        more = room and not self._stopping and self._matching.bytes < _ENOUGH
        for up in self._ups.values():
            events = (_READ if more or up.sender is None else 0) | (_WRITE if up.unsent else 0)
            self._want(up.sock, events, lambda events, up=up: self._upstream_ready(up, events))  # type: ignore[misc]
        for down in self._downs.values():
            if down.peer is not None and down.connected:
                events = _READ | (_WRITE if down.peer.unsent else 0)
                self._want(
                    down.peer.sock,
                    events,
                    lambda events, down=down: self._downstream_ready(down, events),  # type: ignore[misc]
                )
        if self._child is not None:
            for fd in (self._child.stdout, self._child.ended):
                self._want(fd, _READ if room else 0, lambda _: self._read_child())
            if self._child.stdin >= 0:
                self._want(
                    self._child.stdin,
                    _WRITE if self._to_child else 0,
                    lambda _: self._write_child(),
                )

    def _woken(self) -> None:
        os.read(self._wake_in, 4096)
        if (
            self._draining
            and self._drain_at == float("inf")
            and self._child is not None
            and self.source
        ):
            # What it has written is read until it ends.
            self._drain_at = time.monotonic() + _GRACE_S
            self._child.ask_to_end()
        if self._stopping and self._stop_at is None:
            self._stop_at = time.monotonic() + _GRACE_S
            for listener in self._listeners:
                self._forget(listener)
            if self._child is not None and self.source:
                self._lose_child(self._child.stop(0.5))

    # upstreams

    def _accept_upstream(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        self._connections += 1
        up = Upstream(sock, self._connections, self.settings.program.limits.frame_bytes)
        self._ups[f"@{up.number}"] = up

    def _upstream_ready(self, up: Upstream, events: int) -> None:
        try:
            if events & _WRITE:
                up.push()
            if events & _READ and (data := up.read()):
                self._take(up, data)
        except (Closed, ActionError) as why:
            if not isinstance(why, Closed):
                self._log(f"connection closed: {why}")
            self._drop(up)

    def _take(self, up: Upstream, data: bytes) -> None:
        found = up.arrivals.feed(data)
        if up.sender is None and up.arrivals.sender is not None:
            self._greeted(up, up.arrivals.sender)
        inputs = []
        for message in found:
            assert up.sender is not None
            serial = self._inputs.arrived(up.sender, message.id)
            if serial is not None:
                inputs.append(Input(up.sender, serial, message.payload))
        self._numbers["received"] += len(inputs)
        self._numbers["repeated"] += len(found) - len(inputs)
        self._matching.add(inputs)

    def _greeted(self, up: Upstream, hello: wire.Hello) -> None:
        """Let a sender in: it alone of its node, and known as what it was."""
        sender = self._inputs.greet(hello, up.number)
        if hello.generation is not None:
            self._queue.note(f"fence:{hello.node}", str(hello.generation))
        for earlier in [*self._inputs.replaced(hello.node), sender]:
            if earlier in self._ups:
                self._drop(self._ups[earlier])
            if earlier != sender:
                self._inputs.forget(earlier)
                self._queue.forget_sender(earlier)
        self._ups.pop(f"@{up.number}", None)
        up.sender = sender
        self._ups[sender] = up
        done = self._inputs.done(sender)
        if done != NONE:
            up.write(wire.ack(id_of(done)))

    def _drop(self, up: Upstream) -> None:
        self._forget(up.sock)
        up.close()
        self._ups = {key: one for key, one in self._ups.items() if one is not up}
        if up.sender is not None and "@" in up.sender:
            self._inputs.forget(up.sender)
            self._queue.forget_sender(up.sender)

    # the program

    def _keep_child(self, now: float) -> None:
        """Start the program if it should run, end it if it hangs."""
        child = self._child
        if child is not None and now >= self._drain_at:
            self._lose_child(child.stop(0.0))
        if child is None and self._draining and self.source and not self._source_ended:
            self._source_ended = self.cut_short = True  # it was about to be started again
        if (
            child is not None
            and self._matching.outstanding
            and now >= self._since + self.settings.time_limit_s
        ):
            self._log("the program did not answer in time")
            self._lose_child(child.stop(0.5))
        if (
            self._child is None
            and not self._source_ended
            and not self._stopping
            and now >= self._start_at
        ):
            self._start_child()

    def _start_child(self) -> None:
        work = self.settings.folder / "work"
        work.mkdir(exist_ok=True)
        child = Child(self.settings.program, work, self._log, stdin=not self.source)
        self._child = child
        self._numbers["starts"] += 1
        self._from_child = Decoder(self.settings.program.limits.frame_bytes)
        self._watch(child.stderr, _READ, lambda: self._read_log(child))
        self._feed_child()

    def _feed_child(self) -> None:
        if self._child is None or self.source:
            return
        idle = not self._matching.outstanding
        given = self._matching.give()
        if given:
            if idle:
                self._since = time.monotonic()
            for one in given:
                self._to_child += len(one.payload).to_bytes(4, "big") + one.payload
            self._write_child()

    def _write_child(self) -> None:
        if self._child is not None and self._child.stdin >= 0 and self._to_child:
            with memoryview(self._to_child) as view:
                written = self._child.write(view)
            del self._to_child[:written]

    def _read_log(self, child: Child) -> None:
        if child is self._child and not child.pass_on_log():
            self._forget(child.stderr)

    def _read_child(self) -> None:
        child = self._child
        if child is None or self._answers:
            return
        data = child.read()
        if data is None:
            if self._has_ended(child):
                self._lose_child(child.stop(0.0))
            return
        if not data:
            self._lose_child(child.stop(1.0))
            return
        try:
            self._answered(self._from_child.feed(data))
        except (BadBytes, ActionFailed) as why:
            self._log(f"the program {why.message}")
            child.stop(0.5)
            self._lose_child(1)

    def _has_ended(self, child: Child) -> bool:
        with selectors.DefaultSelector() as one:
            one.register(child.ended, _READ)
            return bool(one.select(0))

    def _answered(self, frames: list[bytes]) -> None:
        if self.source:
            self._answers += [Answer([frame]) for frame in frames if frame]
        elif frames:
            self._answers += self._matching.answered(frames)
            self._since = time.monotonic()
        self._pause_s = _SHORTEST_S

    def _lose_child(self, code: int) -> None:
        """Deal with the end of the program."""
        child, self._child = self._child, None
        if child is None:
            return
        self._drop_dead_pipes()
        self._to_child.clear()
        if self.source and (code == 0 or self._draining):
            self._source_ended, self.cut_short = True, self._draining
            self._log("the program has ended")
            return
        if not self._stopping:
            self._log(f"the program {describe_exit(code)}; starting it again")
        given_up = self._matching.failed()
        if given_up is not None:
            self._give_up(given_up, child)
        self._start_at = time.monotonic() + self._pause_s
        self._pause_s = min(_LONGEST_S, self._pause_s * 2)

    def _drop_dead_pipes(self) -> None:
        """Stop watching pipes that are closed: their numbers may soon be those of others."""
        for fd, key in list(self._selector.get_map().items()):
            if isinstance(key.fileobj, int) and fd != self._wake_in:
                self._selector.unregister(key.fileobj)

    def _give_up(self, one: Input, child: Child) -> None:
        """Put a message aside that the program cannot do."""
        from millstream.journal import journal_at  # slow to import, seldom needed

        reason = child.failure("failed at it", ActionFailed).message
        with journal_at(self.settings.folder).dead_letters() as letters:
            letters.put(one.sender, one.serial, reason, _shown(one.payload))
        self._numbers["failed"] += 1
        self._log(f"message {id_of(one.serial)} of {one.sender} was put to the dead letters")
        self._answers.append(Answer([], one.sender, one.serial))

    # the queue

    def _store(self) -> None:
        """Make the answers durable."""
        if not self._answers or time.monotonic() < self._full_until:
            return
        last = self._queue.last
        try:
            if self._outs.addresses:
                self._queue.append([answer for answer in self._answers if answer.payloads])
        except QueueFull as full:
            if not self._full_until:
                self._log(str(full))
            self._full_until = time.monotonic() + _FULL_S
            return
        self._full_until = 0.0
        self._note(self._answers, last)
        self._answers = []

    def _note(self, answers: list[Answer], serial: int) -> None:
        """Note which inputs gave no output, and after which one that was; `serial` is the last before these answers."""
        for answer in answers:
            if answer.payloads and self._outs.addresses:
                for _ in answer.payloads:
                    serial = after(serial)
            elif answer.sender:
                self._inputs.blank(answer.sender, answer.input, serial)
            self._numbers["made"] += len(answer.payloads)

    def _settle(self) -> None:
        """Trim what every downstream has, and acknowledge the inputs behind it."""
        everywhere = self._outs.everywhere(self._queue.last)
        inputs = self._queue.trim(everywhere) if everywhere > self._queue.trimmed else {}
        for sender, serial in self._inputs.trimmed(self._queue.trimmed, inputs).items():
            up = self._ups.get(sender)
            if up is not None:
                try:
                    up.write(wire.ack(id_of(serial)))
                except Closed:
                    self._drop(up)

    # downstreams

    def _keep_downstreams(self, now: float) -> None:
        for down in self._downs.values():
            if down.peer is None and now >= down.retry_at:
                sock = down.connect()
                if sock is None:
                    down.lost(now)
                else:
                    self._watch(sock, _WRITE, lambda down=down: self._connected(down))  # type: ignore[misc]

    def _connected(self, down: Downstream) -> None:
        assert down.peer is not None
        self._forget(down.peer.sock)
        try:
            down.greet(self._who, self._queue.read(self._outs.acked(down.address)))
        except Closed:
            down.lost(time.monotonic())

    def _downstream_ready(self, down: Downstream, events: int) -> None:
        assert down.peer is not None
        try:
            if events & _WRITE:
                down.peer.push()
            if events & _READ and (data := down.peer.read()):
                for id_ in down.acks.feed(data)[-1:]:
                    self._outs.acknowledged(down.address, id_, down.sent)
        except Closed:
            self._break(down)

    def _send(self, down: Downstream) -> None:
        if down.connected and down.sent != self._queue.last:
            try:
                down.send_more()
            except Closed:
                self._break(down)

    def _break(self, down: Downstream) -> None:
        if down.peer is not None:
            self._forget(down.peer.sock)
        down.lost(time.monotonic())

    def change_out(self, old: str, new: str) -> bool:
        """Send to `new` what `old` has not acknowledged; False if we do not send to `old`."""
        if not self._outs.change(old, new):
            return False
        if old in self._downs and old != new:
            self._break(self._downs.pop(old))
            self._downs[new] = Downstream(new)
        self._queue.note("outs", " ".join(self._outs.addresses))
        self._log(f"sends to {new} instead of {old}")
        return True

    # commands

    def _accept_supervisor(self) -> None:
        assert self._service_listener is not None
        try:
            sock, _ = self._service_listener.accept()
        except OSError:
            return
        one = Supervisor(sock)
        self._watch(sock, _READ, lambda: self._commanded(one))

    def _commanded(self, one: Supervisor) -> None:
        try:
            data = one.read()
            for command in one.commands.feed(data) if data else ():
                one.write(self._answer(command))
                one.last = one.last or isinstance(command, wire.UnknownCommand)
        except BadBytes:
            one.last = True
            self._refuse(one)
        except Closed:
            one.last = True
        if one.last:
            self._forget(one.sock)
            one.close()

    def _refuse(self, one: Supervisor) -> None:
        try:
            one.write(wire.REFUSED)
        except Closed:
            return

    def _answer(self, command: wire.Command) -> bytes:
        match command:
            case wire.Ping():
                return wire.REFUSED if self._child is None else wire.pong(id_of(self._queue.oldest))
            case wire.ChangeOut(old, new):
                return wire.DONE if self.change_out(old, new) else wire.REFUSED
            case wire.UnknownCommand():
                return wire.UNKNOWN

    def close(self) -> None:
        """Let go of everything; what is in the queue stays."""
        if self._child is not None:
            self._child.stop(0.5)
            self._child = None
        for peer in [
            *self._ups.values(),
            *(down.peer for down in self._downs.values() if down.peer is not None),
        ]:
            peer.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        for listener in self._listeners:
            listener.close()
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)
        self._queue.close()


def stop_on_signals(runtime: Runtime) -> None:
    """Let SIGTERM and SIGINT end a runtime, SIGUSR1 drain it; only in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runtime.stop())
    signal.signal(signal.SIGUSR1, lambda *_: runtime.drain())


def _shown(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(payload).decode()
