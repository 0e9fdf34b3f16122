"""The outbox: complex events on disk until every output has delivered them.

    append ──▶ queue on disk ──▶ output "stdout"     cursor 17
                             └─▶ output "webhook"    cursor 12      trimmed up to 12

One log with a cursor for each output. An entry is durable before it is acknowledged to anybody, and
a cursor moves after a delivery, so a crash loses nothing and may repeat the last deliveries. An
entry keeps its number and its sender, which is the device with the incarnation that found it: who
knows those takes it once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.actions.queue import Answer, Queue
from millstream.watch.complex_event import ComplexEvent, encoded

_MOST: Final = 256
_CURSOR: Final = "cursor."


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    sender: str
    run: str
    pattern: str
    at: int
    row: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Entry:
    """A complex event in the outbox; (sender, number) and `run` are the same at every delivery."""

    number: int
    sender: str
    run: str
    pattern: str
    at: int
    json: bytes

    @property
    def row(self) -> dict[str, Any]:
        """The columns, with times as text."""
        found: dict[str, Any] = msgspec.json.decode(self.json)
        return found


class Outbox:
    """An outbox that is open. Any thread may call."""

    def __init__(self, folder: Path, sender: str, outputs: Iterable[str]) -> None:
        """Open the outbox in a folder; those of `outputs` that it does not know begin at its end."""
        self.sender = sender
        self._queue = Queue(folder)
        self._changed = threading.Condition()
        self._closing = False
        notes = self._queue.notes
        self._done = {name: self._cursor(notes.get(_CURSOR + name)) for name in outputs}
        self._readers = {name: self._queue.read(done) for name, done in self._done.items()}
        self._ahead: dict[str, list[Entry]] = {name: [] for name in self._done}
        #: Up to here, entries may leave.
        self._released = self._queue.last
        #: Runs whose entries were here at the start: an event that was not acknowledged before a
        #: crash comes again, and finds them again.
        kept = self._queue.read(self._queue.trimmed).until(self._queue.last)
        self._left = deque((one.serial, _entry(one.serial, one.payload).run) for one in kept)
        self._known = {run for _, run in self._left}
        #: Gets the runs that all outputs have, before their cursors are moved on disk.
        self.on_delivered: Callable[[Sequence[str]], None] = lambda _runs: None
        for name, done in self._done.items():
            self._queue.note(_CURSOR + name, str(done))

    def _cursor(self, noted: str | None) -> int:
        return self._queue.last if noted is None else max(int(noted), self._queue.trimmed)

    def append(self, events: Sequence[ComplexEvent]) -> None:
        """Add complex events; they are durable when this returns, and leave after `release`."""
        fresh = [event for event in events if event.run not in self._known]
        if not fresh or not self._done:
            return
        answers = [Answer([self._stored(event)]) for event in fresh]
        with self._changed:
            first = self._queue.last + 1
            self._queue.append(answers)
            self._left += enumerate((event.run for event in fresh), first)

    def release(self) -> None:
        """Let outputs have all that was added: what the device knows of it is durable too."""
        with self._changed:
            if self._released != self._queue.last:
                self._released = self._queue.last
                self._changed.notify_all()

    def _stored(self, event: ComplexEvent) -> bytes:
        row = msgspec.Raw(encoded(event.row))
        return msgspec.json.encode(_Stored(self.sender, event.run, event.pattern, event.at, row))

    def read(self, output: str, timeout: float | None = None) -> list[Entry]:
        """Return what is next for an output; none after `timeout`, or when the outbox closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._next(output), timeout)
            ahead = self._ahead[output][:_MOST]
            return [entry for entry in ahead if entry.number <= self._released]

    def _next(self, output: str) -> bool:
        ahead = self._ahead[output]
        if not ahead:
            ahead += [_entry(one.serial, one.payload) for one in self._readers[output].read()]
        return bool(ahead) and ahead[0].number <= self._released

    def done(self, output: str, number: int) -> None:
        """Note that an output has delivered all up to a number."""
        with self._changed:
            least = min({**self._done, output: number}.values())
            runs = []
            while self._left and self._left[0][0] <= least:
                runs.append(self._left.popleft()[1])
        if runs:
            self.on_delivered(runs)
        with self._changed:
            self._ahead[output] = [one for one in self._ahead[output] if one.number > number]
            self._done[output] = number
            self._queue.note(_CURSOR + output, str(number))
            self._queue.trim(min(self._done.values()))
            self._changed.notify_all()

    def waiting(self) -> dict[str, int]:
        """Return how many entries each output has not delivered."""
        with self._changed:
            return {name: self._queue.last - done for name, done in self._done.items()}

    def drained(self, timeout: float) -> bool:
        """Wait until all outputs have delivered all; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(done == self._queue.last for done in self._done.values()), timeout
            )

    @property
    def size(self) -> int:
        """How many bytes of the disk it takes."""
        with self._changed:
            return self._queue.size

    def wake(self) -> None:
        """Let all `read` return: the outbox is about to close."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._queue.close()


def _entry(number: int, payload: bytes) -> Entry:
    one = msgspec.json.decode(payload, type=_Stored)
    return Entry(number, one.sender, one.run, one.pattern, one.at, bytes(one.row))
