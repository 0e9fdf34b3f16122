"""What a group writes to a journal, sent to runtimes in their own protocol.

    journal ──rows by position──▶ messages ──▶ runtime
       ▲                                          │
       └── committed: the least of the positions ◀┘ acks

A message's id is its row's position, so what is sent again after a crash has the same id, and our
own runtimes know it: each gets every row once. The journal is the queue: what not all downstreams
have acknowledged stays.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from pathlib import Path
from typing import Final

from millstream.actions import wire
from millstream.actions.handshake import HELLO_S, Introduction
from millstream.actions.peers import Closed, Peer, split
from millstream.actions.serials import id_of, nearest
from millstream.errors import PeerRefused
from millstream.journal import journal_at

_log = logging.getLogger(__name__)
_FULL: Final = (1 << 32) - 1
_ROWS: Final = 4096
_UNSENT: Final = 1 << 20
_LOOK_S: Final = 0.1
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 1.0
_CONNECT_S: Final = 5.0
_COMMIT_S: Final = 1.0


def serial_of(position: int) -> int:
    """Return the serial of the message at a position: no id is 0.

    Example:
        >>> serial_of(0), serial_of(2**32 - 2), serial_of(2**32 - 1) == 2**32 + 1
        (1, 4294967295, True)
    """
    return position + 1 + position // _FULL


def position_of(serial: int) -> int:
    """Return the position of a message.

    Example:
        >>> position_of(serial_of(2**33)) == 2**33
        True
    """
    return serial - 1 - (serial - 1) // (_FULL + 1)


class Egress:
    """The rows of a journal of one partition on their way to runtimes."""

    def __init__(self, name: str, path: Path, secret: bytes | None = None) -> None:
        """Send what is in the journal at `path` under the name of a node, "scheme_node".

        The runtimes have to prove the secret, if there is one.
        """
        self._path, self._reader_name = path, f"{name}.runtimes"
        self._who, self._secret = wire.Hello(name, 1), secret
        self._ways: dict[str, _Way] = {}
        self._commit_at = 0.0
        self._partition = journal_at(path).reader().partition(0)
        self._position = self._begin()

    def _begin(self) -> int:
        found = {one.reader: one.positions for one in journal_at(self._path).committed()}
        at: int = found.get(self._reader_name, {}).get(0, 0)
        journal_at(self._path).commit(self._reader_name, [at])
        return at

    def send_to(self, addresses: tuple[str, ...]) -> None:
        """Send to these: one that replaces another gets what that has not acknowledged."""
        gone = [self._ways.pop(one) for one in list(self._ways) if one not in addresses]
        fresh = [one for one in addresses if one not in self._ways]
        for number, address in enumerate(fresh):
            at = gone[number].acked if number < len(gone) else self._position
            self._ways[address] = _Way(self._who, self._secret, self._path, address, at)
        for way in gone:
            way.stop()

    def step(self) -> None:
        """Note, every moment, what all have acknowledged."""
        if self._ways and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT_S
            everywhere = min(way.acked for way in self._ways.values())
            if everywhere > self._position:
                self._position = everywhere
                journal_at(self._path).commit(self._reader_name, [everywhere])

    @property
    def idle(self) -> bool:
        """Whether all downstreams have acknowledged all rows."""
        end = self._partition.end
        return all(way.acked >= end for way in self._ways.values())

    def close(self) -> None:
        """Stop; what is not acknowledged is sent again by the next one."""
        for way in self._ways.values():
            way.stop()
        self._commit_at = 0.0
        self.step()


class _Way(threading.Thread):
    """The way to one runtime; connected again whenever the connection breaks."""

    def __init__(
        self, who: wire.Hello, secret: bytes | None, path: Path, address: str, acked: int
    ) -> None:
        super().__init__(name=f"egress to {address}", daemon=True)
        self.acked = acked
        self._who, self._secret, self._address = who, secret, address
        self._partition = journal_at(path).reader().partition(0)
        self._sent = acked
        #: The position after the last row that was sent; instructions are not sent.
        self._last = acked
        self._stopped = threading.Event()
        self.start()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = _SHORTEST_S
        while not self._stopped.is_set():
            with contextlib.suppress(OSError, Closed):
                sock = socket.create_connection(split(self._address), timeout=_CONNECT_S)
                with contextlib.closing(Peer(sock)) as peer:
                    try:
                        self._introduce(peer)
                        pause = _SHORTEST_S
                        self._talk(peer)
                    except PeerRefused as why:
                        _log.warning("%s does not send to %s: %s", self._who, self._address, why)
                        pause = _LONGEST_S
            self._stopped.wait(pause)
            pause = min(_LONGEST_S, 2 * pause)

    def _introduce(self, peer: Peer) -> None:
        """Say who we are, and see that the other side is the right one.

        Raises:
            PeerRefused: It does not have our secret.
        """
        ours, until = Introduction(str(self._who), self._secret), time.monotonic() + HELLO_S
        peer.write(ours.hello)
        while not ours.over:
            if self._stopped.is_set() or time.monotonic() >= until:
                raise Closed("it did not answer our hello")
            if select.select([peer.sock], [], [], _LOOK_S)[0]:
                peer.write(ours.feed(peer.read() or b"")[0])

    def _talk(self, peer: Peer) -> None:
        acks = wire.Acks()
        self._sent = self._last = self.acked
        while not self._stopped.is_set():
            more = self._sent < self._partition.end
            if more and peer.unsent < _UNSENT:
                self._send(peer)
            waits = 0.0 if more and peer.unsent < _UNSENT else _LOOK_S
            readable, writable, _ = select.select(
                [peer.sock], [peer.sock] if peer.unsent else [], [], waits
            )
            if writable:
                peer.push()
            if readable and (data := peer.read()):
                for id_ in acks.feed(data)[-1:]:
                    self._acknowledged(id_)
            if self.acked >= self._last:
                self.acked = self._sent

    def _send(self, peer: Peer) -> None:
        stop = min(self._sent + _ROWS, self._partition.end)
        for part in self._partition.read(self._sent, stop, ["value"]):
            if part.batch is not None:
                payloads = part.batch.column(0).to_pylist()
                ids = (id_of(serial_of(part.position + at)) for at in range(len(payloads)))
                peer.write(
                    wire.messages(zip(ids, (bytes(one or b"") for one in payloads), strict=True))
                )
                self._last = part.position + len(payloads)
        self._sent = stop

    def _acknowledged(self, id_: int) -> None:
        serial = nearest(id_, serial_of(max(0, self._sent - 1)))
        position = position_of(serial) + 1
        if id_ and self.acked < position <= self._last:
            self.acked = position
