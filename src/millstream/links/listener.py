"""The listener: one port of this host, behind which any number of inboxes stand.

It answers who has what (`Ask`), hands envelopes to inboxes, and sends their answers back when the
rows are durable. Listeners register in their process: an outbox in the same process calls its inbox
and uses no socket.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from millstream.errors import (
    BadFrame,
    InternalError,
    LinkBroken,
    LinkClosed,
    LinkError,
    MillstreamError,
    NotAllowed,
)
from millstream.ingest import Refused
from millstream.journal import Kind, journal_at
from millstream.journal.copies import ReplicaChunk
from millstream.links import envelope, follow, peers
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.feeds import Feeds
from millstream.links.hosted import HostedSources
from millstream.links.inbox import Inbox
from millstream.links.keys import KeyPair, PublicKey, producers, readable_producers
from millstream.links.metering import Metering
from millstream.links.network import Address, guard, preferred
from millstream.links.registered import REGISTERED
from millstream.links.standing import OWN, Peer, Standing
from millstream.links.transport import Reply, ServerSocket

_log = logging.getLogger(__name__)
_STAGING: Final = 32
"""How many batches may wait to be staged; a client sends some megabytes in each."""

_REMEMBERED: Final = 10_000

OnRequest = Callable[[Peer, envelope.Request, MillstreamError | None], None]


@dataclass(frozen=True, slots=True)
class Security:
    """Who we are, and whose keys we know by name."""

    keys: KeyPair
    known: Mapping[bytes, PublicKey]
    #: Where those keys lie; it is watched.
    folder: Path | None = None

    @classmethod
    def read(cls, keys: KeyPair, folder: Path | str) -> Security:
        """Know the producers whose public keys lie in a folder."""
        return cls(keys, producers(folder), Path(folder))

    def peers(self) -> dict[bytes, Peer]:
        """Return who has which key; with ours, an engine of our cluster."""
        known = {
            key: Peer(Standing.PRODUCER, one.name, one.grant) for key, one in self.known.items()
        }
        return {**known, self.keys.public: OWN}


class Listener:
    """Hosts inboxes under one port, on IPC and TCP."""

    def __init__(
        self,
        folder: Path,
        *,
        node: int = 0,
        network: str | None = None,
        port: int = 0,
        security: Security | None = None,
        open_without_keys: bool = False,
    ) -> None:
        """Listen.

        Args:
            folder: Where the IPC socket lies.
            node: The engine's node number.
            network: The network to listen on; None: this host alone.
            port: The port to take if it is free; 0: any.
            security: Keys; without them only this host may be listened on.
            open_without_keys: The network is trusted as it is.

        Raises:
            NoSuchNetwork: No interface of this host is in the network.
            OpenNetwork: The network is open to others and there are no keys.
        """
        ip = preferred(network)
        guard(ip, keys=security is not None, open_without_keys=open_without_keys)
        folder.mkdir(parents=True, exist_ok=True)
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="inbox files")
        self._room_to_stage = threading.Semaphore(_STAGING)
        self.refused_frames = 0
        #: Is called with every request and why it was refused, if it was.
        self.on_request: OnRequest | None = None
        #: The names of all keys, and what was found to be allowed.
        self._names: frozenset[str] = frozenset()
        self._authorised: set[tuple[Peer, str, str, frozenset[str]]] = set()
        self._know(security)
        self._socket = ServerSocket(
            folder.resolve(),
            ip,
            self._handle,
            self._full,
            port=port,
            keys=None if security is None else security.keys,
            known=None if security is None else security.peers(),
            watched=None if security is None else security.folder,
            on_change=None if security is None else lambda: self._known_again(security),
        )
        #: What producers with quotas have sent.
        self.metering = Metering(self._socket.open_connections)
        self._feeds = Feeds()
        self.address = Address(ip, self._socket.port, node, str(folder.resolve()))
        #: What is asked for, also by plain calls in this process.
        self.sources = HostedSources(self.address)

    def start(self) -> None:
        """Begin to answer. Host all sources before: requests for others are refused."""
        REGISTERED[self.address.port] = self
        self._socket.start()

    def serve(self, request: envelope.Request, bodies: list[Any]) -> Future[envelope.Answer]:
        """Answer a request from this process, as if it had come over a socket."""
        answer: Future[envelope.Answer] = Future()

        def reply(frames: Any) -> None:
            found = envelope.decode_answer(bytes(frames[0]))
            if isinstance(found, envelope.Refusal):
                answer.set_exception(envelope.error_of(found))
            else:
                answer.set_result(found)

        self._handle([envelope.encode(request), *bodies], OWN, reply)
        return answer

    def _know(self, security: Security | None) -> None:
        known = () if security is None else security.known.values()
        self._names = frozenset(one.name for one in known)

    def _known_again(self, security: Security) -> dict[bytes, Peer]:
        """Return who has which key, after the folder of keys has changed."""
        assert security.folder is not None
        found = Security(security.keys, readable_producers(security.folder), security.folder)
        self._know(found)
        _log.info("producers: %s", ", ".join(sorted(self._names)) or "none")
        return found.peers()

    # taking

    def _handle(self, frames: list[Any], peer: Peer, reply: Reply) -> None:
        try:
            request = envelope.decode_request(bytes(frames[0]))
        except BadFrame as error:
            self._refused_frame(error)
            return
        refused: MillstreamError | None = None
        try:
            self._authorise(peer, request)
            self._take(request, frames, peer, reply)
        except MillstreamError as error:
            refused = error
            self._refuse(request.request, error, reply)
        if self.on_request is not None:
            self.on_request(peer, request, refused)

    def _full(self, frames: list[Any], why: str, reply: Reply) -> None:
        """Let a peer wait that takes up too much: it sends its requests again."""
        try:
            request = envelope.decode_request(bytes(frames[0]))
        except BadFrame as error:
            self._refused_frame(error)
            return
        if isinstance(request, envelope.Rows | envelope.Instruct):
            answer = TakenRows(0, NOTHING, 0, why=why)
            reply(envelope.frames_of(_answer(request.request, answer)))
        else:
            self._refuse(request.request, LinkBroken(why, hint="ask again"), reply)

    def _authorise(self, peer: Peer, request: envelope.Request) -> None:
        """Let a request through that its peer may make, under a name that is its own."""
        peers.check(peer, request)
        if peer.standing is not Standing.OWN and self.sources.read(request.source):
            msg = f'"{request.source}" takes no events from outside'
            raise NotAllowed(msg, hint="its engines read it")
        sender = getattr(request, "sender", None)
        if peer.standing is not Standing.PRODUCER or sender is None:
            return
        assert peer.name is not None
        inbox = self.sources.inbox(request.source, getattr(request, "partition", 0), peer.name)
        seen = (peer, sender, inbox.name, self._names)
        if seen not in self._authorised:
            inbox.rights.authorise(sender, peer.name, peer.grant, self._names)
            if len(self._authorised) >= _REMEMBERED:
                self._authorised.clear()
            self._authorised.add(seen)

    def _take(self, request: envelope.Request, frames: list[Any], peer: Peer, reply: Reply) -> None:
        producer, size = peer.name, sum(map(len, frames))
        match request:
            case envelope.Ask() if request.sender is None:
                reply(
                    envelope.frames_of(self.sources.info(request.source, request.request, producer))
                )
            case envelope.Ask():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                self._slowly(request.request, lambda: self._claim(inbox, request, producer), reply)
            case envelope.Rows():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                rows = partial(_enqueue, inbox, request, frames)
                taken = self.metering.rows(peer, request, size, rows)
                self._taken(request.request, taken, reply)
            case envelope.Instruct():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                taken = inbox.instruct_nowait(
                    request.sender,
                    request.number,
                    Kind[request.kind],
                    request.floor,
                    after=request.after,
                    incarnation=request.incarnation,
                )
                self._taken(request.request, taken, reply)
            case envelope.PutDeadLetter():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                letters = [Refused(*letter) for letter in request.letters]
                self.metering.whole(peer, request, len(letters), size)
                self._slowly(
                    request.request, lambda: self._put_dead_letters(inbox, request, letters), reply
                )
            case envelope.Stage():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                self.metering.whole(peer, request, request.rows, size)
                self._staging(inbox, request, frames, reply)
            case envelope.Publish():
                inbox = self.sources.inbox(request.source, request.partition, producer)
                self._slowly(request.request, lambda: self._publish(inbox, request), reply)
            case follow.Follow() | follow.Level() | follow.Passed():
                inbox = self.sources.inbox(request.source, request.partition)
                self._followed(inbox, request, reply)

    def _claim(
        self, inbox: Inbox, request: envelope.Ask, producer: str | None
    ) -> envelope.SourceInfo:
        assert request.sender is not None
        mine = inbox.rights.claim(request.sender, request.incarnation)
        return self.sources.info(request.source, request.request, producer, incarnation=mine)

    def _put_dead_letters(
        self, inbox: Inbox, request: envelope.PutDeadLetter, letters: list[Refused]
    ) -> envelope.Done:
        new = inbox.put_dead_letters(request.sender, letters, incarnation=request.incarnation)
        return envelope.Done(request.request, rows=new)

    # epochs of groups elsewhere

    def _staging(
        self, inbox: Inbox, request: envelope.Stage, frames: list[Any], reply: Reply
    ) -> None:
        schemas = inbox.described(request.version).schemas
        if len(frames) != 2 or request.version >= len(schemas):
            msg = "staging needs a batch, and a schema that the journal has or had"
            raise BadFrame(msg, hint="connect again")
        batch, _ = envelope.decode_batch(frames[1], schemas[request.version], request.rows)
        if not self._room_to_stage.acquire(blocking=False):
            raise LinkBroken("too many tasks stage rows here at once", hint="ask again")

        def work() -> envelope.Answer:
            try:
                staged = inbox.epochs.stage(request.sender, request.epoch, [batch])
            finally:
                self._room_to_stage.release()
            return envelope.Done(
                request.request, envelope.staged_rows(staged), sum(item.rows for item in staged)
            )

        self._slowly(request.request, work, reply)

    def _publish(self, inbox: Inbox, request: envelope.Publish) -> envelope.Done:
        stored = inbox.epochs.publish(
            request.sender, request.epoch, envelope.staged_items(request.staged)
        )
        return envelope.Done(request.request, rows=stored)

    # engines that follow

    def _followed(
        self, inbox: Inbox, request: follow.Follow | follow.Level | follow.Passed, reply: Reply
    ) -> None:
        match request:
            case follow.Follow():
                self._feeds.follow(
                    inbox, request, lambda found: self._feed(request.request, found, reply)
                )
            case follow.Level():
                levelled = inbox.idleness.level_at(request.floor, request.position)
                reply(envelope.frames_of(envelope.Done(request.request, rows=int(levelled))))
            case follow.Passed():
                self._slowly(request.request, lambda: _passed(inbox, request), reply)

    def _feed(self, request: int, found: ReplicaChunk | BaseException, reply: Reply) -> None:
        if isinstance(found, ReplicaChunk):
            reply(envelope.frames_of(follow.Followed.of(request, found)))
        else:
            self._refuse(request, found, reply)

    # answering

    def _taken(self, request: int, pending: Future[TakenRows], reply: Reply) -> None:
        def settled(done: Future[TakenRows]) -> None:
            error = done.exception()
            if error is None:
                taken = done.result()
                reply(envelope.frames_of(_answer(request, taken)))
            else:
                self._refuse(request, error, reply)

        pending.add_done_callback(settled)

    def _slowly(self, request: int, work: Callable[[], envelope.Answer], reply: Reply) -> None:
        """Do what waits for the disk, elsewhere than on the thread that reads the sockets."""

        def settled(done: Future[envelope.Answer]) -> None:
            error = done.exception()
            if error is None:
                reply(envelope.frames_of(done.result()))
            else:
                self._refuse(request, error, reply)

        self._slow.submit(work).add_done_callback(settled)

    def _refused_frame(self, error: BadFrame) -> None:
        """Count a frame, and log it now and then: many of them must not fill the disk."""
        self.refused_frames += 1
        if self.refused_frames.bit_count() == 1:
            _log.warning("refused %d frames, the last: %s", self.refused_frames, error)

    def _refuse(self, request: int, error: BaseException, reply: Reply) -> None:
        if isinstance(error, LinkClosed):
            return  # the inbox is being closed: its sender asks again, and finds who opens it next
        if isinstance(error, BadFrame):
            self._refused_frame(error)
        reply(envelope.frames_of(_refusal(request, error)))

    def close(self) -> None:
        """Answer what is on its way, and stop listening. Close the inboxes before."""
        REGISTERED.pop(self.address.port, None)
        self._feeds.close()
        self._slow.shutdown()
        self._socket.close()


def _enqueue(
    inbox: Inbox, request: envelope.Rows, frames: list[Any], most: int | None
) -> Future[TakenRows]:
    """Hand rows to an inbox, which takes no more than `most`."""
    schemas = inbox.described(request.version).schemas
    if len(frames) not in (2, 3) or request.version >= len(schemas):
        hint = "connect again"
        raise BadFrame("rows need a batch, and a schema that the journal has or had", hint=hint)
    batch, message = envelope.decode_batch(frames[1], schemas[request.version], request.rows)
    numbers = envelope.decode_numbers(frames[2] if len(frames) == 3 else None, request)
    return inbox.enqueue_nowait(
        request.sender,
        numbers,
        batch,
        after=request.after,
        message=message,
        incarnation=request.incarnation,
        most=most,
    )


def _passed(inbox: Inbox, request: follow.Passed) -> envelope.Done:
    """Keep what the readers of a copy need, and remove what was removed there."""
    journal = journal_at(inbox.described().path)
    journal.commit_for(inbox.partition, request.readers)
    trimmed = journal.trim_to(inbox.partition, request.begin)
    return envelope.Done(request.request, rows=trimmed.positions)


def _refusal(request: int, error: BaseException) -> envelope.Refusal:
    """Log what a request has failed for, and put it as its sender can read it."""
    if not isinstance(error, MillstreamError):
        _log.error("a request failed unexpectedly", exc_info=error)
        error = InternalError(f"the inbox failed: {error!r}")
    elif isinstance(error, LinkError) and not isinstance(error, BadFrame):
        _log.warning("refused a request: %s", error)
    return envelope.Refusal(request, type(error).__name__, error.message, error.hint)


def _answer(request: int, taken: TakenRows) -> envelope.TakenAnswer:
    return envelope.TakenAnswer(
        request, taken.taken, taken.highest, taken.free, taken.repeated, taken.refused, taken.why
    )
