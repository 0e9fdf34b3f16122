"""Runs: the rows of one attempt of a task, on their way into a piece of work on the driver.

    Put 0, Put 1, ..     each taken once, in order; its answer waits while the queue is full
    Finish n             answered when the work is done, as often as it is asked for

A message that was answered before is answered again and does nothing. A run that is not known (the
service is a new one) is refused: the task fails, and Spark runs it again as another run. A run from which nothing comes for `SILENT_S` ends: the work sees an error from its rows and
removes what it has begun, as it does when a task dies.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
from msgspec.structs import replace

from millstream.errors import LinkBroken
from millstream.spark.served.messages import (
    Answer,
    Busy,
    Done,
    Refused,
    fitting,
    framed,
    to_arrow,
    unframed,
)

#: Batches of a run that wait for its work.
QUEUED: Final = 2
#: A run from which nothing comes for so long has no task any more.
SILENT_S: Final = 90.0

Reply = Callable[[Sequence[bytes]], None]


class Work(Protocol):
    """What a task would do with its rows on its own disk."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows here, and yield what the task answers to the driver."""
        ...


class Run:
    """One attempt; any thread may call."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._queue: deque[list[pa.RecordBatch]] = deque()
        #: Puts that are queued and not answered, because there was no room.
        self._held: deque[tuple[int, Reply]] = deque()
        self._taken = 0
        self._complete = False
        self._answer: bytes | None = None
        self._asking: list[tuple[int, Reply]] = []
        self._heard_at = time.monotonic()

    # messages

    def put(self, request: int, number: int, batches: list[pa.RecordBatch], reply: Reply) -> None:
        """Take rows, or find that they were taken before."""
        with self._changed:
            self._heard_at = time.monotonic()
            if number > self._taken:
                # Those before it had to wait and are sent again.
                reply([framed(Busy(request))])
                return
            if number < self._taken:
                self._again(request, number, reply)
                return
            if self._answer is not None:
                # It has failed before all rows were there.
                reply([renumbered(self._answer, request)])
                return
            if len(self._queue) > QUEUED:
                # Its sender has more under way than agreed.
                reply([framed(Busy(request))])
                return
            self._taken += 1
            self._queue.append(batches)
            self._held.append((request, reply))
            self._release()
            self._changed.notify_all()

    def _again(self, request: int, number: int, reply: Reply) -> None:
        """Answer a message that was sent again; if the first one still waits, so does this."""
        first = self._taken - len(self._held)
        if number < first:
            reply([framed(Done(request))])
        else:
            self._held[number - first] = (request, reply)

    def _release(self) -> None:
        """Answer those whose rows do not wait in the queue beyond its size."""
        while self._held and (len(self._queue) < QUEUED or self._answer is not None):
            request, reply = self._held.popleft()
            reply([framed(Done(request))])

    def finish(self, request: int, number: int, reply: Reply) -> None:
        """Answer when the work is done."""
        with self._changed:
            self._heard_at = time.monotonic()
            if number != self._taken and self._answer is None:
                reply([framed(Refused(request, f"{self._taken} of {number} batches were taken"))])
                return
            self._complete = True
            self._asking.append((request, reply))
            self._reply_all()
            self._changed.notify_all()

    def touch(self) -> None:
        """Its executor is alive."""
        self._heard_at = time.monotonic()

    def silent(self, now: float) -> bool:
        """Tell whether nothing has come for too long."""
        return now - self._heard_at > SILENT_S

    def abandon(self) -> None:
        """Let the work fail, if it is not done."""
        with self._changed:
            self._heard_at = -SILENT_S * 1e6
            self._changed.notify_all()

    # work

    def execute(self) -> None:
        """Do the work, on a thread of its own."""
        try:
            answers = [one for one in self._work.write(self._batches()) if one.num_rows]
            data = to_arrow(answers[0].schema, answers) if answers else b""
            self._end(Done(0), fitting(data, "an answer"))
        except Exception as error:  # noqa: BLE001 (it is the task's error, which Spark reports)
            self._end(Refused.because(0, error), b"")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                while not self._queue:
                    if self._complete:
                        return
                    if self.silent(time.monotonic()):
                        raise LinkBroken("nothing comes from the executor any more")
                    self._changed.wait(1.0)
                batches = self._queue.popleft()
                self._release()
            yield from batches

    def _end(self, answer: Answer, data: bytes | pa.Buffer) -> None:
        with self._changed:
            self._answer = framed(answer, data)
            self._queue.clear()
            self._release()
            self._reply_all()

    def _reply_all(self) -> None:
        if self._answer is not None:
            for request, reply in self._asking:
                reply([renumbered(self._answer, request)])
            self._asking = []

    @property
    def done(self) -> bool:
        return self._answer is not None


def renumbered(answer: bytes, request: int) -> bytes:
    """Return an answer for another request."""
    head, data = unframed(answer)
    return framed(replace(head, request=request), data)
