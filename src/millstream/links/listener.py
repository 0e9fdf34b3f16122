"""The listener: one port of this host, behind which any number of inboxes stand.

It answers who has what (`Ask`), hands envelopes to inboxes, and sends their answers back when the
rows are durable. Listeners register in their process: an outbox in the same process calls its inbox
and uses no socket.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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
    NotThere,
)
from millstream.ingest import Refused
from millstream.journal import Description, Kind, journal_at
from millstream.journal.kinds.files.replica_chunk import ReplicaChunk
from millstream.links import envelope as e
from millstream.links import follow as f
from millstream.links.feeds import Feeds
from millstream.links.inbox import Inbox, InboxStatistics, Taken
from millstream.links.keys import KeyPair, producers
from millstream.links.network import Address, guard, preferred
from millstream.links.transport import Reply, ServerSocket

_log = logging.getLogger(__name__)
_STAGING: Final = 32
"""How many batches may wait to be staged; a client sends some megabytes in each."""

ENGINE: Final = "*"
"""The name of who has our own key: another engine of our cluster. No key file can have it."""

REGISTERED: Final[dict[int, Listener]] = {}
"""The listeners of this process, by port."""


@dataclass(frozen=True, slots=True)
class Security:
    """Who we are, and whose keys we know by name."""

    keys: KeyPair
    known: Mapping[bytes, str]

    @classmethod
    def read(cls, keys: KeyPair, folder: Path | str) -> Security:
        """Know the producers whose public keys lie in a folder."""
        return cls(keys, producers(folder))


@dataclass(frozen=True, slots=True)
class Hosted:
    """A source whose inboxes, or some of them, stand behind this listener."""

    description: Description
    key: str | None
    inboxes: Mapping[int, Inbox]
    places: Sequence[Address]
    allowed: frozenset[str] | None


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
        self._sources: dict[str, Hosted] = {}
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="inbox files")
        self._room_to_stage = threading.Semaphore(_STAGING)
        self.refused_frames = 0
        self._door = ServerSocket(
            folder.resolve(),
            ip,
            self._handle,
            port=port,
            keys=None if security is None else security.keys,
            known=None if security is None else {**security.known, security.keys.public: ENGINE},
        )
        self._feeds = Feeds()
        self.address = Address(ip, self._door.port, node, str(folder.resolve()))

    def start(self) -> None:
        """Begin to answer, once all sources are hosted: one that is not there yet would be refused."""
        REGISTERED[self.address.port] = self
        self._door.start()

    def host(
        self,
        source: str,
        inboxes: Iterable[Inbox],
        *,
        key: str | None = None,
        places: Sequence[Address] | None = None,
        allowed: Iterable[str] | None = None,
    ) -> None:
        """Let a source's inboxes take requests.

        Args:
            source: Its name, "flow.source".
            inboxes: Those of its partitions that are here.
            key: The column that decides a row's partition.
            places: The address of every partition's inbox; None: all are here.
            allowed: The producers that may send over TCP, by name; None: all that are known.
        """
        here = {inbox.partition: inbox for inbox in inboxes}
        description = next(iter(here.values())).described()
        found = list(places) if places is not None else [self.address] * description.partitions
        names = None if allowed is None else frozenset(allowed)
        self._sources[source] = Hosted(description, key, here, found, names)

    def withdraw(self, source: str) -> None:
        """Take no more requests for a source."""
        self._sources.pop(source, None)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def statistics(self) -> tuple[InboxStatistics, ...]:
        return tuple(
            inbox.statistics()
            for hosted in self._sources.values()
            for inbox in hosted.inboxes.values()
        )

    # asking, also by plain call

    def card(self, source: str, request: int = 0, producer: str | None = None) -> e.SourceInfo:
        """Return what a source holds and where its inboxes are.

        Raises:
            NotThere: There is no such source here.
            NotAllowed: The producer is not on its list.
        """
        hosted = self._hosted(source, producer)
        description = journal_at(hosted.description.path).describe()
        places = [
            e.Place(place.ip, place.port, place.node, place.folder) for place in hosted.places
        ]
        return e.SourceInfo(
            request=request,
            source=source,
            schema=description.schema.serialize().to_pybytes(),
            version=description.version,
            time=description.time,
            key=hosted.key,
            inboxes=places[: description.lasting],
            ended=all(inbox.progress().ended for inbox in hosted.inboxes.values()),
            later=places[description.lasting :],
        )

    def inbox(self, source: str, partition: int, producer: str | None = None) -> Inbox:
        """Return an inbox.

        Raises:
            NotThere: It is not here.
            NotAllowed: The producer is not on its list.
        """
        inbox = self._hosted(source, producer).inboxes.get(partition)
        if inbox is None:
            raise NotThere(
                f'partition {partition} of "{source}" is not at {self.address}',
                hint="ask where it is",
            )
        return inbox

    def _hosted(self, source: str, producer: str | None) -> Hosted:
        hosted = self._sources.get(source)
        if hosted is None:
            known = ", ".join(sorted(self._sources)) or "none"
            raise NotThere(
                f'there is no source "{source}" at {self.address}', hint=f"its sources: {known}"
            )
        if (
            producer not in (None, ENGINE)
            and hosted.allowed is not None
            and producer not in hosted.allowed
        ):
            raise NotAllowed(
                f'producer "{producer}" may not send to "{source}"',
                hint="ask its owner to list the key",
            )
        return hosted

    def serve(self, request: e.Request, bodies: list[Any]) -> Future[e.Answer]:
        """Answer a request from this process, as if it had come over a socket."""
        answer: Future[e.Answer] = Future()

        def reply(frames: Any) -> None:
            found = e.decode_answer(bytes(frames[0]))
            if isinstance(found, e.Refusal):
                answer.set_exception(e.error_of(found))
            else:
                answer.set_result(found)

        self._handle([e.encode(request), *bodies], None, reply)
        return answer

    # taking

    def _handle(self, frames: list[Any], producer: str | None, reply: Reply) -> None:
        try:
            request = e.decode_request(bytes(frames[0]))
        except BadFrame as error:
            self._refused_frame(error)
            return
        try:
            self._take(request, frames, producer, reply)
        except MillstreamError as error:
            self._refuse(request.request, error, reply)

    def _take(
        self, request: e.Request, frames: list[Any], producer: str | None, reply: Reply
    ) -> None:
        match request:
            case e.Ask():
                reply(e.frames_of(self.card(request.source, request.request, producer)))
            case e.Rows():
                inbox = self.inbox(request.source, request.partition, producer)
                self._taken(request.request, self._rows(inbox, request, frames), reply)
            case e.Instruct():
                inbox = self.inbox(request.source, request.partition, producer)
                taken = inbox.instruct_nowait(
                    request.sender,
                    request.number,
                    Kind[request.kind],
                    request.floor,
                    after=request.after,
                )
                self._taken(request.request, taken, reply)
            case e.PutDeadLetter():
                inbox = self.inbox(request.source, request.partition, producer)
                letters = [Refused(*letter) for letter in request.letters]
                self._slowly(request.request, lambda: self._bury(inbox, request, letters), reply)
            case e.Stage():
                inbox = self.inbox(request.source, request.partition, producer)
                self._staging(inbox, request, frames, reply)
            case e.Publish():
                inbox = self.inbox(request.source, request.partition, producer)
                self._slowly(request.request, lambda: self._publish(inbox, request), reply)
            case f.Follow() | f.Level() | f.Passed():
                self._followed(self._engines_inbox(request, producer), request, reply)

    def _rows(self, inbox: Inbox, request: e.Rows, frames: list[Any]) -> Future[Taken]:
        schemas = inbox.described(request.version).schemas
        if len(frames) not in (2, 3) or request.version >= len(schemas):
            raise BadFrame(
                "rows need a batch, and a schema that the journal has or had", hint="connect again"
            )
        batch, message = e.decode_batch(frames[1], schemas[request.version], request.rows)
        numbers = e.decode_numbers(frames[2] if len(frames) == 3 else None, request)
        return inbox.enqueue_nowait(
            request.sender, numbers, batch, after=request.after, message=message
        )

    def _bury(self, inbox: Inbox, request: e.PutDeadLetter, letters: list[Refused]) -> e.Done:
        return e.Done(request.request, rows=inbox.bury(request.sender, letters))

    # epochs of groups elsewhere

    def _staging(self, inbox: Inbox, request: e.Stage, frames: list[Any], reply: Reply) -> None:
        schemas = inbox.described(request.version).schemas
        if len(frames) != 2 or request.version >= len(schemas):
            raise BadFrame(
                "staging needs a batch, and a schema that the journal has or had",
                hint="connect again",
            )
        batch, _ = e.decode_batch(frames[1], schemas[request.version], request.rows)
        if not self._room_to_stage.acquire(blocking=False):
            raise LinkBroken("too many tasks stage rows here at once", hint="ask again")

        def work() -> e.Answer:
            try:
                staged = inbox.stage(request.sender, request.epoch, [batch])
            finally:
                self._room_to_stage.release()
            return e.Done(request.request, e.staged_rows(staged), sum(item.rows for item in staged))

        self._slowly(request.request, work, reply)

    def _publish(self, inbox: Inbox, request: e.Publish) -> e.Done:
        stored = inbox.publish(request.sender, request.epoch, e.staged_items(request.staged))
        return e.Done(request.request, rows=stored)

    # engines that follow

    def _engines_inbox(self, request: f.Follow | f.Level | f.Passed, producer: str | None) -> Inbox:
        if producer not in (None, ENGINE):
            msg = f'producer "{producer}" may not follow "{request.source}"'
            raise NotAllowed(msg, hint="the engines of a cluster do, all with the same key")
        return self.inbox(request.source, request.partition)

    def _followed(self, inbox: Inbox, request: f.Follow | f.Level | f.Passed, reply: Reply) -> None:
        match request:
            case f.Follow():
                self._feeds.follow(
                    inbox, request, lambda found: self._feed(request.request, found, reply)
                )
            case f.Level():
                levelled = inbox.level_at(request.floor, request.position)
                reply(e.frames_of(e.Done(request.request, rows=int(levelled))))
            case f.Passed():
                self._slowly(request.request, lambda: _passed(inbox, request), reply)

    def _feed(self, request: int, found: ReplicaChunk | BaseException, reply: Reply) -> None:
        if isinstance(found, ReplicaChunk):
            reply(e.frames_of(f.Followed.of(request, found)))
        else:
            self._refuse(request, found, reply)

    # answering

    def _taken(self, request: int, pending: Future[Taken], reply: Reply) -> None:
        def settled(done: Future[Taken]) -> None:
            error = done.exception()
            if error is None:
                taken = done.result()
                reply(e.frames_of(_answer(request, taken)))
            else:
                self._refuse(request, error, reply)

        pending.add_done_callback(settled)

    def _slowly(self, request: int, work: Callable[[], e.Answer], reply: Reply) -> None:
        """Do what waits for the disk, elsewhere than on the thread that reads the sockets."""

        def settled(done: Future[e.Answer]) -> None:
            error = done.exception()
            if error is None:
                reply(e.frames_of(done.result()))
            else:
                self._refuse(request, error, reply)

        self._slow.submit(work).add_done_callback(settled)

    def _refused_frame(self, error: BadFrame) -> None:
        """Count a frame, and say so now and then: who sends many shall not fill the disk with our log."""
        self.refused_frames += 1
        if self.refused_frames.bit_count() == 1:
            _log.warning("refused %d frames, the last: %s", self.refused_frames, error)

    def _refuse(self, request: int, error: BaseException, reply: Reply) -> None:
        if isinstance(error, LinkClosed):
            return  # the inbox is being closed: its sender asks again, and finds who opens it next
        if isinstance(error, BadFrame):
            self._refused_frame(error)
        if not isinstance(error, MillstreamError):
            _log.error("a request failed unexpectedly", exc_info=error)
            error = InternalError(f"the inbox failed: {error!r}")
        elif isinstance(error, LinkError) and not isinstance(error, BadFrame):
            _log.warning("refused a request: %s", error)
        reply(e.frames_of(e.Refusal(request, type(error).__name__, error.message, error.hint)))

    def close(self) -> None:
        """Answer what is on its way, and stop listening. The inboxes stay open: close them before."""
        REGISTERED.pop(self.address.port, None)
        self._feeds.close()
        self._slow.shutdown()
        self._door.close()


def _passed(inbox: Inbox, request: f.Passed) -> e.Done:
    """Keep what the readers of a copy need, and remove what was removed there."""
    journal = journal_at(inbox.described().path)
    journal.commit_for(inbox.partition, request.readers)
    trimmed = journal.trim_to(inbox.partition, request.begin)
    return e.Done(request.request, rows=trimmed.positions)


def _answer(request: int, taken: Taken) -> e.Taken:
    return e.Taken(request, taken.taken, taken.highest, taken.free, taken.repeated, taken.refused)
