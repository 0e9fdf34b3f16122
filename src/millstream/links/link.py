"""Links: from this process to a listener, by plain call or by socket, with the same methods.

All of a link happens on the thread of its loop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from millstream.errors import (
    BadFrame,
    LinkBroken,
    LinkClosed,
    MillstreamError,
    NoAnswer,
    NotAllowed,
)
from millstream.journal import Kind
from millstream.links import envelope
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.keys import KeyPair
from millstream.links.network import Address, Transport, choose, own_ips
from millstream.links.registered import REGISTERED
from millstream.links.transport import Loop, Loss, Wire
from millstream.links.window import Send

if TYPE_CHECKING:
    from millstream.links.listener import Listener

_log = logging.getLogger(__name__)
_GREETINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction on its way, a piece's payload as rows are."""

    kind: Kind
    floor: int | None = None

    def __getitem__(self, _: slice) -> Instruction:
        return self  # it is one event: there is nothing to cut off


@dataclass(frozen=True, slots=True)
class Route:
    """From whom to which inbox."""

    source: str
    partition: int
    sender: str
    version: int
    incarnation: int = 0


OnAnswer = Callable[["TakenRows | MillstreamError"], None]


class Link(Protocol):
    """A listener, as seen from here."""

    @property
    def transport(self) -> Transport: ...

    def enqueue(self, route: Route, order: Send, on_answer: OnAnswer) -> None:
        """Hand rows or an instruction to an inbox. The answer may come late, or never."""
        ...

    def call(
        self, make: Callable[[int], envelope.Request], *bodies: Any
    ) -> Future[envelope.Answer]:
        """Ask something; any thread may. The future may never resolve: give it a time limit.

        NoAnswer: the link was lost; what was asked for may have been done.
        """
        ...

    def on_lost(self, call_back: Callable[[MillstreamError | None], None]) -> None:
        """Call this when the peer is gone (None), or refuses us permanently."""
        ...

    def renew(self) -> None:
        """Connect again to a peer that does not answer."""
        ...

    def close(self) -> None: ...


class LocalLink:
    """A listener in this process: its inboxes are called. When it goes, another is looked for."""

    def __init__(
        self, loop: Loop, where: Callable[[], Address], port: int, open_socket: Callable[[], Link]
    ) -> None:
        """Call the listener at `port`; when it is gone, `open_socket` connects to `where`."""
        self._loop = loop
        self._where = where
        self._port = port
        self._open_socket = open_socket
        self._then: Link | None = None
        self._lost_calls: list[Callable[[MillstreamError | None], None]] = []

    @property
    def transport(self) -> Transport:
        return Transport.LOCAL if self._then is None else self._then.transport

    def _listener(self) -> Listener:
        found = REGISTERED.get(self._port)
        if found is None:
            raise LinkBroken(f"the listener at port {self._port} of this process is closed")
        return found

    def enqueue(self, route: Route, order: Send, on_answer: OnAnswer) -> None:
        if self._then is not None:
            self._then.enqueue(route, order, on_answer)
            return
        try:
            inbox = self._listener().sources.inbox(route.source, route.partition)
            payload, numbers = order.piece.payload, order.piece.numbers
            if isinstance(payload, Instruction):
                pending = inbox.instruct_nowait(
                    route.sender,
                    int(numbers[0]),
                    payload.kind,
                    payload.floor,
                    after=order.after,
                    incarnation=route.incarnation,
                )
            else:
                pending = inbox.enqueue_nowait(
                    route.sender, numbers, payload, after=order.after, incarnation=route.incarnation
                )
        except (LinkBroken, LinkClosed):
            # Nobody is there now: the outbox asks again after a pause.
            self._loop.soon(self.renew)
            self._loop.soon(lambda: on_answer(TakenRows(0, NOTHING, 0)))
            return
        except MillstreamError as error:
            refused = error
            self._loop.soon(lambda: on_answer(refused))
            return
        pending.add_done_callback(lambda done: self._loop.soon(lambda: on_answer(_result(done))))

    def call(
        self, make: Callable[[int], envelope.Request], *bodies: Any
    ) -> Future[envelope.Answer]:
        if self._then is not None:
            return self._then.call(make, *bodies)
        try:
            return self._listener().serve(make(0), list(bodies))
        except LinkBroken as error:
            answer: Future[envelope.Answer] = Future()
            answer.set_exception(NoAnswer(error.message))
            return answer

    def on_lost(self, call_back: Callable[[MillstreamError | None], None]) -> None:
        self._lost_calls.append(call_back)
        if self._then is not None:
            self._then.on_lost(call_back)

    def renew(self) -> None:
        if self._then is not None:
            self._then.renew()
        elif self._port not in REGISTERED:
            self._look()

    def _look(self) -> None:
        try:
            port = self._where().port
        except (MillstreamError, OSError) as error:
            _log.warning("it is not known who listens now: %s", error)
            return
        self._port = port
        if port not in REGISTERED:
            self._then = self._open_socket()
            for call_back in self._lost_calls:
                self._then.on_lost(call_back)

    def close(self) -> None:
        if self._then is not None:
            self._then.close()


def _result(done: Future[TakenRows]) -> TakenRows | MillstreamError:
    error = done.exception()
    if error is None:
        return done.result()
    return (
        error if isinstance(error, MillstreamError) else LinkBroken(f"an inbox failed: {error!r}")
    )


class SocketLink:
    """A listener in another process, over IPC or TCP."""

    def __init__(
        self,
        loop: Loop,
        where: Callable[[], Address],
        *,
        keys: KeyPair | None = None,
        server: bytes | None = None,
    ) -> None:
        """Connect to the address that `where` returns, again whenever the link is lost."""
        self._loop = loop
        self._where = where
        self._keys, self._server = keys, server
        self._ids = itertools.count()
        self._waiting: dict[int, Callable[[envelope.Answer], None]] = {}
        self._calls: dict[int, Future[envelope.Answer]] = {}
        self._lost_calls: list[Callable[[MillstreamError | None], None]] = []
        self._address = where()
        self._transport = choose(self._address, own_ips=own_ips(), registered=())
        self._wire: Wire | None = None
        self._closed = False
        self._refused = False
        self._ungreeted = 0
        loop.soon(self._connect)

    @property
    def transport(self) -> Transport:
        return self._transport

    def _connect(self) -> None:
        if self._closed:
            return
        folder = self._address.folder if self._transport is Transport.IPC else None
        self._wire = Wire(
            self._loop,
            ip=self._address.ip,
            port=self._address.port,
            folder=folder,
            keys=self._keys,
            server=self._server,
            on_answer=self._answered,
            on_lost=self._lost,
        )

    # asking

    def enqueue(self, route: Route, order: Send, on_answer: OnAnswer) -> None:
        if self._refused:
            self.renew()
        number = next(self._ids)
        self._waiting[number] = lambda answer: _pass_on(answer, on_answer)
        payload, numbers = order.piece.payload, order.piece.numbers
        if isinstance(payload, Instruction):
            header: envelope.Request = envelope.Instruct(
                number,
                route.source,
                route.partition,
                route.sender,
                order.after,
                int(numbers[0]),
                payload.kind.name,  # type: ignore[arg-type]  # an instruction is one of the three
                payload.floor,
                route.incarnation,
            )
            self._send(envelope.frames_of(header))
            return
        header = envelope.Rows(
            number,
            route.source,
            route.partition,
            route.sender,
            order.after,
            int(numbers[0]),
            len(numbers),
            route.version,
            route.incarnation,
        )
        self._send(
            envelope.frames_of(header, payload.serialize(), envelope.encode_numbers(numbers))
        )

    def call(
        self, make: Callable[[int], envelope.Request], *bodies: Any
    ) -> Future[envelope.Answer]:
        answer: Future[envelope.Answer] = Future()
        answer.set_running_or_notify_cancel()
        self._loop.soon(lambda: self._call(make, bodies, answer))
        return answer

    def _call(
        self,
        make: Callable[[int], envelope.Request],
        bodies: tuple[Any, ...],
        answer: Future[envelope.Answer],
    ) -> None:
        if self._refused:  # the wire is dead; but by now they may know us
            self.renew()
        number = next(self._ids)

        def settle(found: envelope.Answer) -> None:
            del self._calls[number]
            if isinstance(found, envelope.Refusal):
                answer.set_exception(envelope.error_of(found))
            else:
                answer.set_result(found)

        self._calls[number] = answer
        self._waiting[number] = settle
        self._send(envelope.frames_of(make(number), *bodies))

    def _send(self, frames: Any) -> None:
        if self._wire is not None:
            self._wire.send(frames)

    # hearing

    def _answered(self, frame: bytes) -> None:
        self._ungreeted = 0
        try:
            answer = envelope.decode_answer(frame)
        except BadFrame as error:
            _log.warning("passed over an answer from %s: %s", self._address, error)
            return
        if isinstance(answer, envelope.Refusal) and self._nearer(answer):
            self.renew()
            return
        waiting = self._waiting.pop(answer.request, None)
        if waiting is not None:
            waiting(answer)

    def _nearer(self, refusal: envelope.Refusal) -> bool:
        """Tell whether the UNIX socket, which was not there before, may do what TCP may not."""
        if refusal.error != NotAllowed.__name__ or self._transport is not Transport.TCP:
            return False
        return choose(self._address, own_ips=own_ips(), registered=()) is Transport.IPC

    def on_lost(self, call_back: Callable[[MillstreamError | None], None]) -> None:
        self._lost_calls.append(call_back)

    def _lost(self, loss: Loss) -> None:
        if loss is Loss.AWAY:
            if self._found() != self._address:
                self.renew()
            return
        if loss is Loss.UNGREETED:
            self._ungreeted += 1
        error = None
        if loss is Loss.REFUSED or (self._keys is not None and self._ungreeted >= _GREETINGS):
            self._refused = (
                True  # until it is tried again: the next event says only that the peer is gone
            )
            error = NotAllowed(
                f"{self._address} does not let us in",
                hint="it may not know our key, or its own is not the one we were given",
            )
        self._give_up(error or NoAnswer(f"the link to {self._address} was lost"))
        if self._found() != self._address:
            self.renew()
        for call_back in self._lost_calls:
            call_back(error)

    def _found(self) -> Address:
        try:
            return self._where()
        except (MillstreamError, OSError) as error:
            _log.warning("it is not known where %s has gone: %s", self._address, error)
            return self._address

    def _give_up(self, error: MillstreamError) -> None:
        """Forget what no answer will come to: rows are sent again, calls fail."""
        self._waiting.clear()
        calls, self._calls = self._calls, {}
        for future in calls.values():
            future.set_exception(error)

    def renew(self) -> None:
        if self._closed:
            return
        self._refused = False
        self._give_up(NoAnswer(f"{self._address} did not answer"))
        wire, self._wire = self._wire, None  # not to be used if the next one cannot be made
        if wire is not None:
            wire.close()
        self._address = self._found()
        self._transport = choose(self._address, own_ips=own_ips(), registered=())
        self._connect()
        for call_back in self._lost_calls:
            call_back(None)

    def close(self) -> None:
        self._closed = True
        self._give_up(NoAnswer("the client was closed"))
        if self._wire is not None:
            self._wire.close()


def _pass_on(answer: envelope.Answer, on_answer: OnAnswer) -> None:
    if isinstance(answer, envelope.TakenAnswer):
        on_answer(
            TakenRows(
                answer.taken,
                answer.highest,
                answer.free,
                answer.repeated,
                answer.refused,
                answer.why,
            )
        )
    elif isinstance(answer, envelope.Refusal):
        on_answer(envelope.error_of(answer))


def open_link(
    loop: Loop,
    where: Callable[[], Address],
    *,
    keys: KeyPair | None = None,
    server: bytes | None = None,
) -> Link:
    """Return the link to a listener: a plain call if it is in this process, else IPC or TCP."""
    address = where()

    def open_socket() -> Link:
        return SocketLink(loop, where, keys=keys, server=server)

    if choose(address, own_ips=own_ips(), registered=REGISTERED) is Transport.LOCAL:
        return LocalLink(loop, where, address.port, open_socket)
    return open_socket()


def schema_of(info: envelope.SourceInfo) -> pa.Schema:
    """Return the columns that a source has."""
    return pa.ipc.read_schema(pa.py_buffer(info.schema))
