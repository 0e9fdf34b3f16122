"""Those who send messages to a runtime."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from millstream.actions import wire
from millstream.actions.bounds import MOST_NODES, MOST_SENDERS, overdrawn, surplus
from millstream.actions.deliveries import Inputs
from millstream.actions.handshake import Admission
from millstream.actions.log import Seldom, WriteLog
from millstream.actions.matching import Input
from millstream.actions.peers import Closed, Upstream
from millstream.actions.queue import Queue
from millstream.actions.serials import NONE, before, id_of
from millstream.actions.watcher import READ, WRITE, Watcher
from millstream.errors import ActionError, PeerRefused

_MOST_UNSENT: Final = 1 << 20

#: Called with what has arrived.
Take = Callable[[list[Input]], None]


class Upstreams:
    """Their connections, by sender; one that is not known yet has a number."""

    def __init__(
        self,
        queue: Queue,
        watcher: Watcher,
        take: Take,
        frame_bytes: int,
        log: WriteLog,
        admission: Admission,
    ) -> None:
        self.inputs = known_inputs(queue)
        self.received = self.repeated = 0
        self._queue, self._watcher, self._take_inputs = queue, watcher, take
        self._frame_bytes, self._log, self._admission = frame_bytes, Seldom(log), admission
        self._peers: dict[str, Upstream] = {}
        self._connections = 0

    def accept(self, listener: socket.socket) -> None:
        try:
            sock, from_ = listener.accept()
        except OSError:
            return
        self._connections += 1
        self._peers[f"@{self._connections}"] = Upstream(
            sock, self._connections, self._frame_bytes, self._admission, str(from_[0])
        )
        one = surplus({up.number: up.host for up in self._waiting()})
        if one is not None:
            self._refuse(self._peers[f"@{one}"], "too many do not say who they are")

    def _waiting(self) -> list[Upstream]:
        return [up for up in self._peers.values() if up.sender is None]

    def moments(self) -> Iterator[float]:
        """Yield when to wait no longer for a hello."""
        return (up.greet_by for up in self._waiting())

    def keep(self, now: float) -> None:
        """Close those who do not say in time who they are."""
        for up in self._waiting():
            if now >= up.greet_by:
                self._refuse(up, "it did not say in time who it is")

    def _refuse(self, up: Upstream, why: object) -> None:
        self._log.write(f"connection closed: {why}", time.monotonic())
        self._drop(up)

    def choose(self, *, more: bool) -> None:
        """Wait for messages only if there is room for `more`."""
        for up in self._peers.values():
            events = (READ if more or up.sender is None else 0) | (WRITE if up.unsent else 0)
            self._watcher.want(up.sock, events, partial(self._ready, up))

    def _ready(self, up: Upstream, events: int) -> None:
        try:
            if events & WRITE:
                up.push()
            if events & READ and (data := up.read()):
                self._take(up, data)
        except Closed:
            self._drop(up)
        except ActionError as why:
            self._refuse(up, why)

    def _take(self, up: Upstream, data: bytes) -> None:
        found = up.feed(data)
        if up.sender is None and up.arrivals.sender is not None:
            self._greet(up, up.arrivals.sender)
        inputs = []
        for message in found:
            assert up.sender is not None
            serial = self.inputs.arrived(up.sender, message.id)
            if serial is not None:
                inputs.append(Input(up.sender, serial, message.payload))
        self.received += len(inputs)
        self.repeated += len(found) - len(inputs)
        self._take_inputs(inputs)
        if len(inputs) < len(found):
            self._repeat(up)
        if up.arrivals.unfinished:
            self._bound()

    def _repeat(self, up: Upstream) -> None:
        """Acknowledge again: when we did so before, it may not have sent so much yet."""
        done = NONE if up.sender is None else self.inputs.done(up.sender)
        if done != NONE:
            up.write(wire.ack(id_of(done)))

    def _bound(self) -> None:
        unfinished = {key: (up.since, up.arrivals.unfinished) for key, up in self._peers.items()}
        one = overdrawn(unfinished, 2 * self._frame_bytes)
        if one is not None:
            self._refuse(self._peers[one], "unfinished messages take too much memory")

    def _greet(self, up: Upstream, hello: wire.Hello) -> None:
        """Let a sender in: it alone of its node, and known as what it was.

        Raises:
            PeerRefused: There are too many.
            Fenced: It was replaced by a later life.
        """
        self._check_room(hello)
        sender = self.inputs.greet(hello, up.number)
        if hello.generation is not None:
            self._queue.note(f"fence:{hello.node}", str(hello.generation))
        for earlier in [*self.inputs.replaced(hello.node), sender]:
            if earlier in self._peers:
                self._drop(self._peers[earlier])
            if earlier != sender:
                self._forget(earlier)
        self._peers.pop(f"@{up.number}", None)
        up.sender = sender
        self._peers[sender] = up
        self._repeat(up)

    def _check_room(self, hello: wire.Hello) -> None:
        if len(self._peers) - len(self._waiting()) >= MOST_SENDERS:
            raise PeerRefused(f"{MOST_SENDERS} senders are connected")
        fresh = hello.generation is not None and hello.node not in self.inputs.fences
        if fresh and self._admission.nodes is None and len(self.inputs.fences) >= MOST_NODES:
            msg = f"{MOST_NODES} nodes have sent here, and none of them was expected"
            raise PeerRefused(msg, hint="name those that may send: --from NODE")

    def acknowledge(self, done: Mapping[str, int]) -> None:
        """Acknowledge inputs, by sender, to those who are connected."""
        for sender, serial in done.items():
            up = self._peers.get(sender)
            if up is not None:
                try:
                    up.write(wire.ack(id_of(serial)))
                except Closed:
                    self._drop(up)
                if up.unsent > _MOST_UNSENT:
                    self._refuse(up, f"{sender} does not read its acknowledgements")

    def _drop(self, up: Upstream) -> None:
        self._watcher.forget(up.sock)
        up.close()
        self._peers = {key: one for key, one in self._peers.items() if one is not up}
        if up.sender is not None and "@" in up.sender:
            self._forget(up.sender)

    def _forget(self, sender: str) -> None:
        self.inputs.forget(sender)
        self._queue.forget_sender(sender)

    def close(self) -> None:
        for up in self._peers.values():
            up.close()


def known_inputs(queue: Queue) -> Inputs:
    """Return what a queue knows of the inputs that were taken before."""
    fences = {
        key.removeprefix("fence:"): int(value)
        for key, value in queue.notes.items()
        if key.startswith("fence:")
    }
    inputs, known = Inputs(fences), queue.inputs
    open_: dict[str, int] = {}
    cursor = queue.read(NONE)
    while len(open_) < len(known) and (outputs := cursor.read()):
        for output in outputs:
            if output.sender:
                open_.setdefault(output.sender, output.input)
    for sender, highest in known.items():
        inputs.remember(sender, highest, before(open_[sender]) if sender in open_ else highest)
    return inputs
