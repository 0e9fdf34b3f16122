"""Those whom a runtime sends messages to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from millstream.actions import wire
from millstream.actions.deliveries import Outs
from millstream.actions.log import Seldom
from millstream.actions.peers import Closed, Downstream
from millstream.actions.queue import Queue
from millstream.actions.watcher import READ, WRITE, Watcher
from millstream.errors import PeerRefused


class Downstreams:
    """Their connections, and how far each has acknowledged what is in the queue."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        who: wire.Hello,
        queue: Queue,
        watcher: Watcher,
        *,
        secret: bytes | None = None,
        log: Callable[[str], None],
    ) -> None:
        self.outs = Outs(addresses, queue.trimmed)
        self._who, self._queue, self._watcher = who, queue, watcher
        self._secret, self._log = secret, Seldom(log)
        self._peers = {address: Downstream(address) for address in self.outs.addresses}

    def moments(self) -> Iterator[float]:
        """Yield when to connect again, or to wait no longer for an answer to our hello."""
        for down in self._peers.values():
            if down.peer is None:
                yield down.retry_at
            elif down.connected and not down.introduced:
                yield down.greet_by

    def keep(self, now: float) -> None:
        """Connect to those that it is time for."""
        for down in self._peers.values():
            if down.connected and not down.introduced and now >= down.greet_by:
                self._log.write(f"{down.address} does not answer our hello: has it a secret?", now)
                self._break(down)
            if down.peer is None and now >= down.retry_at:
                sock = down.connect()
                if sock is None:
                    down.lost(now)
                else:
                    self._watcher.watch(sock, WRITE, partial(self._connected, down))

    def _connected(self, down: Downstream) -> None:
        assert down.peer is not None
        self._watcher.forget(down.peer.sock)
        try:
            cursor = self._queue.read(self.outs.acked(down.address))
            down.greet(self._who, self._secret, cursor, time.monotonic())
        except Closed:
            down.lost(time.monotonic())

    def choose(self) -> None:
        for down in self._peers.values():
            if down.peer is not None and down.connected:
                events = READ | (WRITE if down.peer.unsent else 0)
                self._watcher.want(down.peer.sock, events, partial(self._ready, down))

    def _ready(self, down: Downstream, events: int) -> None:
        assert down.peer is not None
        try:
            if events & WRITE:
                down.peer.push()
            for id_ in down.read()[-1:] if events & READ else ():
                self.outs.acknowledged(down.address, id_, down.sent)
        except (Closed, PeerRefused) as why:
            if isinstance(why, PeerRefused):
                self._log.write(f"does not send to {down.address}: {why}", time.monotonic())
            self._break(down)

    def send(self) -> None:
        """Send what is new in the queue, as much as the connections take."""
        for down in self._peers.values():
            if down.introduced and down.sent != self._queue.last:
                try:
                    down.send_more()
                except Closed:
                    self._break(down)

    def change(self, old: str, new: str) -> bool:
        """Send to `new` what `old` has not acknowledged; False if we do not send to `old`."""
        if not self.outs.change(old, new):
            return False
        if old in self._peers and old != new:
            self._break(self._peers.pop(old))
            self._peers[new] = Downstream(new)
        self._queue.note("outs", " ".join(self.outs.addresses))
        return True

    def _break(self, down: Downstream) -> None:
        if down.peer is not None:
            self._watcher.forget(down.peer.sock)
        down.lost(time.monotonic())

    def close(self) -> None:
        for down in self._peers.values():
            if down.peer is not None:
                down.peer.close()
