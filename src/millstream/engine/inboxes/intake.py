"""Rows that come in over HTTP, on their way into the inboxes of a job.

    application/x-ndjson                        a JSON object a line; others become dead letters
    application/json                            an array of such objects
    application/vnd.apache.arrow.stream         an Arrow IPC stream

Rows are numbered by their place in what the sender has: a header has the number of the first.
What an inbox has of that sender up to that number is counted and not stored again, so a request
whose answer was lost may be repeated. A request without a name is sent under one of the engine's
own, and is new each time.
"""

from __future__ import annotations

import queue
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from millstream import ingest
from millstream.errors import Ended, NotThere, RequestRefused
from millstream.ingest import Rows
from millstream.ingest.rows import numbered
from millstream.links import envelope
from millstream.links.client import Client
from millstream.links.frame import MOST_NAME
from millstream.links.keys import KeyPair
from millstream.links.network import Address
from millstream.links.rows import to_batch

NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"

_ROWS: Final = 8192
_LOCKS: Final = 64
_MOST: Final = 1 << 32
"""Between the numbers of two requests under one of our own names; a body has fewer bytes."""
_raw: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Taken(msgspec.Struct, frozen=True):
    """What became of the rows of a request; they are durable.

    `repeated` were there already from this sender, `refused` are dead letters; the next row of this
    sender has the number `next`.
    """

    taken: int
    repeated: int
    refused: int
    sender: str
    next: int


@dataclass(frozen=True, slots=True)
class Numbering:
    """Whose rows they are, and the number of the first."""

    sender: str
    first: int


class Intake:
    """Hands rows to the inboxes behind an engine's listener. Any thread may call."""

    def __init__(
        self, address: Callable[[], Address], *, keys: KeyPair | None = None, at_once: int = 16
    ) -> None:
        """Send to `address`; with `keys`, which engines share, also to other engines."""
        self._address = address
        self._keys = keys
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        # As many names of our own as requests at once: a journal keeps the numbers of every name it
        # has ever seen.
        self._ours: queue.SimpleQueue[Numbering] = queue.SimpleQueue()
        engine = uuid.uuid4().hex
        for number in range(at_once):
            self._ours.put(Numbering(f"http:{engine}:{number}", 0))

    def take(
        self, target: str, media: str, body: bytes, numbering: Numbering | None, *, timeout: float
    ) -> Taken:
        """Put the rows of a body into the journal of "job.source".

        Raises:
            NotThere: There is no such source.
            Ended: It has ended.
            RequestRefused: The body is not of its type; nothing of it was taken.
            RowsRefused: The columns of an Arrow stream do not fit the source's; nothing of it was
                taken.
            NoAnswer: The inboxes had no room for too long; some of the rows may be there.
        """
        if len(target) > MOST_NAME or not target.isprintable():
            raise NotThere("there is no such source", hint="its name is too long, or no text")
        if numbering is None:
            with self._borrowed() as own:
                return self._send(target, media, body, own, timeout)
        if not numbering.sender.isprintable() or not 0 < len(numbering.sender) <= MOST_NAME:
            hint = f"1 to {MOST_NAME} characters that can be printed"
            raise RequestRefused("this is not a name for a sender", hint=hint)
        # Of one sender one at a time: rows that come after others of a higher number would be taken
        # for repeated.
        with self._locks[hash(numbering.sender) % _LOCKS]:
            return self._send(target, media, body, numbering, timeout)

    def connect(self, sender: str, timeout: float) -> Client:
        """Return a client of the inboxes, under a sender's name."""
        return Client(
            str(self._address()),
            sender=sender,
            key=self._keys,
            server=None if self._keys is None else self._keys.public,
            timeout=timeout,
            linger_s=0.0,
        )

    @contextmanager
    def _borrowed(self) -> Iterator[Numbering]:
        own = self._ours.get()
        try:
            yield own
        finally:
            self._ours.put(Numbering(own.sender, own.first + _MOST))

    def _send(
        self, target: str, media: str, body: bytes, numbering: Numbering, timeout: float
    ) -> Taken:
        client = self.connect(numbering.sender, timeout)
        try:
            if client.ended(target):
                hint = "deploy the job again"
                raise Ended(f'"{target}" has ended: it accepts no more events', hint=hint)
            blocks = _blocks(media, body, client.schema(target), numbering.first, target)
            taken = _Sending(client, target, numbering).all(blocks)
            client.close()
        finally:
            client.abort()
        return taken


class _Sending:
    """One request's rows on their way."""

    def __init__(self, client: Client, target: str, numbering: Numbering) -> None:
        self._client, self._target, self._numbering = client, target, numbering
        self._next = numbering.first

    def all(self, blocks: list[Rows]) -> Taken:
        letters = buried = 0
        waiting = []
        for rows in blocks:
            # Before the rows around them: what the journal remembers of a sender covers its dead
            # letters too.
            if rows.refused:
                letters += len(rows.refused)
                buried += self._client.refuse(self._target, rows.refused)
            if len(rows):
                numbers: Any = rows.numbers
                waiting.append(self._client.send_nowait(self._target, rows.batch, numbers=numbers))
            last = [*(one.number for one in rows.refused[-1:]), *rows.numbers[-1:].tolist()]
            self._next = max([self._next, *(number + 1 for number in last)])
        self._client.flush()
        for future in waiting:
            future.result(0)
        numbers_of = self._client.statistics()
        repeated = sum(one.repeated for one in numbers_of)
        refused = sum(one.refused for one in numbers_of)
        acknowledged = sum(one.acknowledged for one in numbers_of)
        return Taken(
            taken=acknowledged - repeated - refused,
            repeated=repeated + letters - buried,
            refused=refused + buried,
            sender=self._numbering.sender,
            next=self._next,
        )


def _blocks(media: str, body: bytes, schema: pa.Schema, first: int, target: str) -> list[Rows]:
    """Return the rows of a body, all of it read before any is sent."""
    if media == ARROW:
        return _arrow(body, schema, first, target)
    lines = body.split(b"\n") if media == NDJSON else _elements(body)
    parts = [(at, lines[at : at + _ROWS]) for at in range(0, len(lines), _ROWS)]
    return [ingest.parse_rows(part, schema, first + at) for at, part in parts]


def _elements(body: bytes) -> list[bytes]:
    """Return the elements of an array, each on a line of its own."""
    try:
        # A newline in JSON lies between its parts, never inside one.
        return [bytes(one).replace(b"\n", b" ").replace(b"\r", b" ") for one in _raw.decode(body)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        hint = f"lines of JSON are {NDJSON}"
        raise RequestRefused(f"the body is not an array of JSON objects: {exc}", hint=hint) from exc


def _arrow(body: bytes, schema: pa.Schema, first: int, target: str) -> list[Rows]:
    try:
        _check_plain(body)
        with pa.ipc.open_stream(body) as stream:
            batches = [_validated(batch) for batch in stream if batch.num_rows]
    except (pa.ArrowException, OSError, ValueError, OverflowError, struct.error) as exc:
        hint = "write it with pa.ipc.new_stream"
        raise RequestRefused(f"the body is not an Arrow stream: {exc}", hint=hint) from exc
    rows = []
    for batch in batches:
        fitting = to_batch(batch, schema, source=target)
        rows += [
            numbered(fitting.slice(at, _ROWS), first + at)
            for at in range(0, fitting.num_rows, _ROWS)
        ]
        first += fitting.num_rows
    return rows


def _check_plain(body: bytes) -> None:
    """Refuse a stream that is larger once it is read than it is here.

    Raises:
        RequestRefused: It is compressed, or its texts are written once for many rows.
    """
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("schema", "record batch"):
            hint = "send its columns decoded"
            raise RequestRefused("the Arrow stream has a dictionary", hint=hint)
        if message.type == "record batch" and envelope.compressed(message):
            raise RequestRefused("the Arrow stream is compressed", hint="send it as it is")


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch
