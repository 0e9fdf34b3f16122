"""Landings: where chains of runtimes end in a source of a job.

    runtime ── hello, messages ──▶ landing ── rows ──▶ inboxes ──▶ journal
            ◀───────── acks ────── when they are durable

A message is a row. Its sender is a node in one of its lives, and its id, unwrapped to 64 bits, the
row's number: what comes again is in the journal once, whoever was killed, and neither a wrap of ids
nor a spare that begins at 1 is taken for a repetition. A life that was replaced is fenced
permanently. A sender without a generation cannot be recognised: what it sends again after its
connection broke is there twice.

Runtimes prove the secret of the job (actions/handshake). A message that is no row becomes a dead
letter of the source, and is acknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from millstream.actions import wire
from millstream.actions.bounds import MOST_NODES, MOST_SENDERS, overdrawn, surplus
from millstream.actions.handshake import Admission, secret_of
from millstream.actions.log import Seldom
from millstream.actions.peers import Closed, Upstream, listen, local
from millstream.actions.serials import NONE, nearest
from millstream.clock import Clock, SystemClock
from millstream.engine.inboxes.fences import Fences
from millstream.engine.inboxes.payloads import rows_of
from millstream.errors import Ended, InvalidAddress, MillstreamError, PeerRefused
from millstream.ingest import SourceSettings
from millstream.links.client import Client
from millstream.links.host import Host, declared_inboxes
from millstream.links.inbox import Inbox
from millstream.links.keys import KeyPair
from millstream.links.network import Address

_log = logging.getLogger(__name__)
_READ: Final = 1 << 18
_LIMIT: Final = 64 << 20
#: How long inboxes may take nothing before a runtime is disconnected, to come again.
_PATIENCE_S: Final = 300.0
_ACK_S: Final = 15
_CLOSING_S: Final = 2.0

Connect = Callable[[str], Client]
"""Makes the client of a sender, by the sender's name."""


class Landing:
    """Listens for the runtimes that send to one source; `tick` opens it, again while that fails."""

    def __init__(
        self,
        target: str,
        settings: SourceSettings,
        folder: Path,
        *,
        connect: Connect,
        highest: Callable[[str], int],
        clock: Clock,
        secret: bytes,
        open_without_keys: bool = False,
    ) -> None:
        """Take messages for `target`, "job.source", whose journal is in `folder`.

        Args:
            target: The source.
            settings: Where to listen, and what messages hold.
            folder: Where the fences are kept.
            connect: Makes the client of a sender.
            highest: Returns the highest number that is durable here of a sender, or -1.
            clock: Tells when a message has come.
            secret: What runtimes prove. The plain protocol, without proof, is for this host alone
                and for sources that do not name their nodes.
            open_without_keys: The network is trusted as it is: the plain protocol is for all.
        """
        assert settings.runtimes is not None
        self.target, self.at, self.format = target, settings.runtimes, settings.format
        self.error: str | None = None
        self.clock = clock
        nodes = None if settings.nodes is None else frozenset(settings.nodes)
        plain = open_without_keys or (local(self.at) and nodes is None)
        self.admission = Admission(secret, plain, nodes)
        self._refused = Seldom(_log.warning)
        self._connect, self._highest = connect, highest
        self._fences = Fences(folder / "runtimes.json")
        self._guard = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._senders: dict[str, _Sender] = {}
        #: Names for senders without a generation, with the next number of each.
        self._names: dict[str, list[tuple[str, int]]] = {}
        self._life = uuid.uuid4().hex
        self._numbers = 0
        self._accepting = self._closed = False

    @property
    def open(self) -> bool:
        return self._listener is not None

    def bind(self) -> None:
        """Take the address, if we have not yet: who connects waits until `tick`."""
        with self._guard:
            if self._closed or self._listener is not None:
                return
            try:
                self._listener = listen(self.at)
            except (InvalidAddress, OSError) as error:
                if self.error is None:
                    _log.warning("runtimes cannot send to %s: %s", self.target, error)
                self.error = str(error)
                return
            self.error = None
            self._listener.setblocking(True)
            host, port = self._listener.getsockname()[:2]
            if self.at.endswith(":0"):
                self.at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def tick(self) -> None:
        """Listen, if we do not yet."""
        self.bind()
        with self._guard:
            if self._listener is not None and not self._accepting:
                self._accepting = True
                accept, name = partial(self._accept, self._listener), f"landing {self.target}"
                threading.Thread(target=accept, name=name, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, from_ = listener.accept()
            except OSError:
                return
            with self._guard:
                if self._closed:
                    sock.close()
                    return
                self._numbers += 1
                one = _Connection(self, sock, self._numbers, str(from_[0]))
                self._connections.add(one)
                waiting = sorted(
                    (one for one in self._connections if one.sender is None),
                    key=lambda one: one.number,
                )
                too_much = surplus({one: one.host for one in waiting})
                if too_much is not None:
                    self._connections.discard(too_much)
                    too_much.close()
            one.start()

    def refused(self, why: object) -> None:
        """Say that a runtime was disconnected; not more often than a log can bear."""
        with self._guard:
            self._refused.write(
                f"disconnected a runtime that sends to {self.target}: {why}", time.monotonic()
            )

    def bound(self) -> None:
        """Disconnect the slowest one if unfinished messages take too much memory together."""
        with self._guard:
            one = overdrawn({one: one.unfinished for one in self._connections}, 2 * _LIMIT)
        if one is not None:
            self.refused("unfinished messages take too much memory")
            one.close()

    # senders

    def greeted(self, one: _Connection, hello: wire.Hello) -> _Sender:
        """Let a sender in: it alone of its node, and known as what it was.

        Raises:
            Fenced: It was replaced by a later life.
            PeerRefused: There are too many.
        """
        with self._guard:
            if sum(one.sender is not None for one in self._connections) >= MOST_SENDERS:
                raise PeerRefused(f"{MOST_SENDERS} runtimes are connected")
        if hello.generation is None:
            return self._unknown(one, hello.node)
        with self._guard:
            most = MOST_NODES if self.admission.nodes is None else None
            self._fences.pass_(hello.node, hello.generation, most=most)
            name = f"runtime:{hello}"
            ours = [key for key in self._senders if key.startswith(f"runtime:{hello.node}#")]
            gone = [self._senders.pop(key) for key in ours if key != name]
            known = self._senders.get(name)
            if known is not None and known.failed is not None:
                gone.append(self._senders.pop(name))
                known = None
            if known is None:
                anchor = max(NONE, self._highest(name))
                known = _Sender(self, name, self._connect(name), anchor)
                self._senders[name] = known
        for other in gone:
            other.end()
        known.connect(one)
        return known

    def _unknown(self, one: _Connection, node: str) -> _Sender:
        with self._guard:
            free = self._names.setdefault(node, [])
            name, first = free.pop() if free else (f"runtime:{node}@{self._life}:{one.number}", 1)
        sender = _Sender(self, name, self._connect(name), NONE, first)
        sender.node = node
        sender.connect(one)
        return sender

    def left(self, one: _Connection) -> None:
        """Forget a connection, and its sender if that cannot come again or has failed."""
        sender = one.sender
        with self._guard:
            self._connections.discard(one)
            if sender is None:
                return
            over = sender.disconnect(one) and (sender.node is not None or sender.failed is not None)
            if over and sender.node is not None:
                self._names[sender.node].append((sender.name, sender.next))
            if over and self._senders.get(sender.name) is sender:
                del self._senders[sender.name]
        if over:
            sender.end()

    def close(self) -> None:
        """Take nothing more; what is not acknowledged will be sent again."""
        with self._guard:
            self._closed = True
            listener, self._listener = self._listener, None
            connections, senders = list(self._connections), list(self._senders.values())
            self._senders.clear()
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for one in connections:
            one.close()
        for sender in [*senders, *(one.sender for one in connections if one.sender is not None)]:
            sender.end()
        for one in connections:
            one.join(_CLOSING_S)


class _Connection(threading.Thread):
    """One runtime that is connected."""

    def __init__(self, landing: Landing, sock: socket.socket, number: int, host: str) -> None:
        super().__init__(name=f"landing {landing.target} {number}", daemon=True)
        self.number, self.host = number, host
        self.sender: _Sender | None = None
        self._landing = landing
        self._upstream = Upstream(sock, number, _LIMIT, landing.admission)
        sock.setblocking(True)
        # One that does not read its acknowledgements is disconnected.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _ACK_S, 0))

    def run(self) -> None:
        try:
            while data := self._read():
                self._take(data)
        except OSError:
            pass  # it is gone, and comes again
        except (MillstreamError, Closed) as why:
            self._landing.refused(why)
        except Exception:  # noqa: BLE001 (one runtime's trouble is not the others')
            _log.exception("disconnected a runtime that sends to %s", self._landing.target)
        finally:
            self.close()
            self._landing.left(self)
            self._upstream.close()

    def _read(self) -> bytes:
        sock = self._upstream.sock
        if self.sender is None:  # only so long
            sock.settimeout(max(0.001, self._upstream.greet_by - time.monotonic()))
        return sock.recv(_READ)

    @property
    def unfinished(self) -> tuple[float, int]:
        """Since when it has completed no message, and what is here of one."""
        return self._upstream.since, self._upstream.arrivals.unfinished

    def _take(self, data: bytes) -> None:
        messages = self._upstream.feed(data)
        if self._upstream.arrivals.unfinished:
            self._landing.bound()
        if self.sender is None and self._upstream.arrivals.sender is not None:
            self.sender = self._landing.greeted(self, self._upstream.arrivals.sender)
            self._upstream.sock.settimeout(None)
        if messages:
            assert self.sender is not None
            self.sender.take(messages)

    def acknowledge(self, id_: int) -> None:
        try:
            self._upstream.sock.sendall(wire.ack(id_))
        except OSError:
            self.close()

    def close(self) -> None:
        """End the connection; its thread does the rest."""
        with contextlib.suppress(OSError):
            self._upstream.sock.shutdown(socket.SHUT_RDWR)


class _Sender:
    """A node in one of its lives: what was handed on of it, and what is to be acknowledged."""

    def __init__(
        self, landing: Landing, name: str, client: Client, anchor: int, first: int | None = None
    ) -> None:
        """Number messages by their ids, near `anchor`; with `first` count from there instead."""
        self.name = name
        self.node: str | None = None
        self.failed: BaseException | None = None
        self._landing, self._client = landing, client
        self._anchor, self._taken = anchor, NONE
        self.next = first or 0
        self._counted = first is not None
        self._guard = threading.Lock()
        self._pending: deque[tuple[Future[int], int]] = deque()
        self._done = NONE
        self._connection: _Connection | None = None
        self._ended = False

    def connect(self, one: _Connection) -> None:
        """Acknowledge to this connection from here on; one before it is over."""
        with self._guard:
            before, self._connection, done = self._connection, one, self._done
        if before is not None:
            before.close()
        if done != NONE:
            one.acknowledge(done)

    def _repeat(self) -> None:
        """Acknowledge again: when we did so before, it may not have sent so much yet."""
        with self._guard:
            one, done = self._connection, self._done
        if one is not None and done != NONE:
            one.acknowledge(done)

    def disconnect(self, one: _Connection) -> bool:
        """Forget a connection; False if there is another one by now."""
        with self._guard:
            if self._connection is not one:
                return False
            self._connection = None
            return True

    def take(self, messages: Sequence[wire.Message]) -> None:
        """Hand on what is new.

        Raises:
            LinkError: The inboxes refuse it.
        """
        fresh = [(number, one) for one in messages if (number := self._number(one.id)) is not None]
        if len(fresh) < len(messages):
            self._repeat()
        if not fresh:
            return
        try:
            sent = self._send([one.payload for _, one in fresh], [number for number, _ in fresh])
        except BaseException as error:
            # What was numbered and not sent would be taken for repeated when it comes again.
            self.failed = error
            raise
        with self._guard:
            self._pending.append((sent, fresh[-1][1].id))
        sent.add_done_callback(self._settled)

    def _send(self, payloads: list[bytes], numbers: list[int]) -> Future[int]:
        target, client = self._landing.target, self._client
        if client.ended(target):
            raise Ended(f'"{target}" has ended: it takes no more messages')
        schema, now = client.schema(target), self._landing.clock.now_us()
        rows = rows_of(payloads, numbers, schema, self._landing.format, now)
        # Before the rows around them: what the journal remembers of a sender covers its dead
        # letters too.
        if rows.refused:
            client.refuse(target, rows.refused)
        if len(rows):
            handed: Any = rows.numbers
            return client.send_nowait(target, rows.batch, numbers=handed)
        nothing: Future[int] = Future()
        nothing.set_result(0)
        return nothing

    def _number(self, id_: int) -> int | None:
        """Return the number of a message; None if it was handed on before."""
        if self._counted:
            self.next += 1
            return self.next - 1
        # The anchor is near the number of the id; whether a row is there, its inbox knows.
        serial = nearest(id_, max(self._taken, self._anchor))
        if serial <= self._taken:
            return None
        self._taken = serial
        return serial

    def _settled(self, _: Future[int]) -> None:
        with self._guard:
            before, done = self._done, self._done
            while self._pending and self._pending[0][0].done():
                sent, id_ = self._pending[0]
                self.failed = self.failed or sent.exception()
                if self.failed is not None:
                    break
                self._pending.popleft()
                done = id_
            self._done = done
            one = self._connection
        if one is None:
            return
        if done != before:
            one.acknowledge(done)
        if self.failed is not None:
            one.close()

    def end(self) -> None:
        """Hand on nothing more."""
        with self._guard:
            one, ended, self._ended = self._connection, self._ended, True
        if one is not None:
            one.close()
        if not ended:
            self._client.abort()


def landings_of(
    host: Host, folder: Path, keys: KeyPair | None = None, *, open_without_keys: bool = False
) -> list[Landing]:
    """Open the landings of the flow whose inboxes `host` has, with its data in `folder`."""
    opened = []
    for name, (description, settings) in declared_inboxes(folder).items():
        if settings.runtimes is not None:
            inboxes = [host.inbox(name, number) for number in range(description.partitions)]
            landing = Landing(
                f"{folder.name}.{name}",
                settings,
                description.path,
                connect=connecting(host.address, keys),
                highest=partial(_highest, inboxes),
                clock=SystemClock(),
                secret=secret_of(folder),
                open_without_keys=open_without_keys,
            )
            landing.tick()
            opened.append(landing)
    return opened


def _highest(inboxes: Sequence[Inbox], sender: str) -> int:
    return max((inbox.highest(sender) for inbox in inboxes), default=-1)


def connecting(address: Address, keys: KeyPair | None) -> Connect:
    """Return what makes the clients of senders, for inboxes at an address."""
    server = None if keys is None else keys.public

    def connect(sender: str) -> Client:
        return Client(
            address, sender=sender, key=keys, server=server, timeout=_PATIENCE_S, linger_s=0.0
        )

    return connect
