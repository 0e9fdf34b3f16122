"""The executors' side: rows of journals from the driver, and rows to what the driver writes.

One connection for each Python worker, kept between tasks. While something is waited for, or a run
goes on, the worker asks every `PING_S` whether the service is there, and says which runs it has.
A connection that is lost is made again and what is not answered is sent again; if nothing has come
for `AWAY_S`, the task fails, and Spark runs it again.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

import msgspec
import pyarrow as pa

from millstream.errors import InternalError, NoAnswer
from millstream.journal import Slice
from millstream.links.keys import KeyPair
from millstream.links.transport import Loop, Loss, Wire
from millstream.spark.served import messages
from millstream.spark.served.messages import Busy, Describe, Done, Finish, Ping, Put, Read, Refused
from millstream.spark.served.place import ServedPlace

#: How long a task waits for a service that does not answer.
AWAY_S: Final = 60.0
PING_S: Final = 2.0
#: What is not answered for so long is sent again: an answer may be lost without a connection.
AGAIN_S: Final = 15.0
_BUSY_S: Final = 0.2
#: Batches of a run that are sent and not answered.
_UNDER_WAY: Final = 2

Answered = tuple[Done, memoryview]
_Make = Callable[[int], messages.Request]


@dataclass(slots=True)
class _Asked:
    frames: list[bytes | pa.Buffer]
    answer: Future[Answered]
    send_at: float


class Link:
    """A connection to a service; any thread may ask."""

    def __init__(self, place: ServedPlace) -> None:
        self._place = place
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self.runs: set[str] = set()
        self._service: str | None = None
        self._heard_at = time.monotonic()
        self._ping_at = 0.0
        self._loop = Loop("served")
        self._loop.turn = self._turn
        self._wire: Wire | None = None
        self._renew = False
        self._loop.start()

    def ask(self, make: _Make, data: pa.Buffer | None = None) -> Future[Answered]:
        """Send a request; its answer comes, or an error."""
        number = next(self._numbers)
        frames: list[bytes | pa.Buffer] = [msgspec.msgpack.encode(make(number))]
        if data is not None:
            frames.append(data)
        asked = _Asked(frames, Future(), 0.0)

        def add() -> None:
            if not self._asked and not self.runs:
                self._heard_at = time.monotonic()
            self._asked[number] = asked

        self._loop.soon(add)
        return asked.answer

    def close(self) -> None:
        self._loop.soon(self._disconnect)
        self._loop.stop()

    # on the loop's thread

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _turn(self, now: float) -> float | None:
        if not self._asked and not self.runs:
            self._heard_at = now
            return None
        if now - self._heard_at > AWAY_S:
            self._give_up()
            return None
        wire = self._connected()
        for asked in self._asked.values():
            if asked.send_at <= now:
                asked.send_at = now + AGAIN_S
                wire.send(asked.frames)
        if self._ping_at <= now:
            self._ping_at = now + PING_S
            wire.send([msgspec.msgpack.encode(Ping(0, tuple(self.runs)))])
        return min([self._ping_at, *(asked.send_at for asked in self._asked.values())])

    def _connected(self) -> Wire:
        if self._wire is None:
            key = KeyPair("executors", self._place.public, self._place.secret)
            self._wire = Wire(
                self._loop,
                ip=self._place.host,
                port=self._place.port,
                folder=None,
                on_answer=self._on_answer,
                on_lost=self._on_lost,
                keys=key,
                server=self._place.server,
            )
        elif self._renew:
            self._wire.renew()
        self._renew = False
        return self._wire

    def _on_lost(self, loss: Loss) -> None:
        if loss is not Loss.AWAY:  # a wire goes on trying by itself
            self._again()
            self._renew = True

    def _again(self) -> None:
        """Send everything again that is not answered, in a moment."""
        soon = time.monotonic() + _BUSY_S
        for asked in self._asked.values():
            asked.send_at = soon
        self._ping_at = soon

    def _on_answer(self, frame: bytes) -> None:
        answer, data = messages.unframed(frame)
        self._heard_at = time.monotonic()
        if isinstance(answer, messages.Pong):
            if self._service not in (None, answer.service):
                self._again()
            self._service = answer.service
            return
        asked = self._asked.get(answer.request)
        if asked is None:
            return  # answered twice
        if isinstance(answer, Busy):
            asked.send_at = time.monotonic() + _BUSY_S
            return
        del self._asked[answer.request]
        if isinstance(answer, Refused):
            asked.answer.set_exception(answer.raised())
        else:
            asked.answer.set_result((answer, data))

    def _give_up(self) -> None:
        waiting, self._asked = list(self._asked.values()), {}
        self._heard_at = time.monotonic()
        msg = f"no response from the driver's service at {self._place} for {AWAY_S:.0f} s"
        hint = "executors must reach the driver's host on this port; see --serve-port"
        for asked in waiting:
            asked.answer.set_exception(NoAnswer(msg, hint=hint))


_links: dict[tuple[int, ServedPlace], Link] = {}
_making = threading.Lock()


def link_to(place: ServedPlace) -> Link:
    """Return this process's connection to a service."""
    key = (os.getpid(), place)
    with _making:
        if key not in _links:
            _links[key] = Link(place)
        return _links[key]


# reading


def schema_at(place: ServedPlace, journal: str) -> pa.Schema:
    """Return the schema of a journal."""
    _, data = link_to(place).ask(lambda number: Describe(number, journal)).result()
    return pa.ipc.read_schema(pa.py_buffer(data))


def slices_at(
    place: ServedPlace,
    journal: str,
    partition: int,
    start: int,
    stop: int,
    columns: Sequence[str],
) -> Iterator[Slice]:
    """Yield what lies in [start, stop) of a partition, as a reader on the driver's host does.

    The next piece is on its way while one is used; no more than that is held.
    """
    link, wanted = link_to(place), tuple(columns)

    def ask(at: int) -> Future[Answered]:
        return link.ask(lambda number: Read(number, journal, partition, at, stop, wanted))

    waiting = ask(start) if start < stop else None
    while waiting is not None:
        answer, data = waiting.result()
        reached = answer.parts[-1].stop if answer.parts else start
        if reached <= start:
            raise InternalError(f"the driver's service reads nothing of {journal} at {start}")
        start = reached
        waiting = ask(start) if start < stop else None
        yield from messages.slices_from(answer.parts, messages.from_arrow(data))


# writing


def _put(work: str, run: str, number: int, request: int) -> Put:
    return Put(request, work, run, number)


def run_at(
    place: ServedPlace, work: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Send rows to a piece of work on the driver's host, and yield what it answers.

    Without rows it is not run at all.
    """
    link, run, sent = link_to(place), uuid.uuid4().hex, 0
    under_way: deque[Future[Answered]] = deque()
    link.runs.add(run)
    try:
        for batch in messages.in_pieces(batches):
            data = messages.fitting(messages.to_arrow(batch.schema, [batch]))
            # A run has begun when its first rows are taken.
            while len(under_way) >= (_UNDER_WAY if sent > 1 else 1):
                under_way.popleft().result()
            under_way.append(link.ask(partial(_put, work, run, sent), data))
            sent += 1
        if not sent:
            return
        while under_way:
            under_way.popleft().result()
        _, answers = link.ask(lambda n: Finish(n, work, run, sent)).result()
    finally:
        link.runs.discard(run)
    yield from messages.from_arrow(answers)
