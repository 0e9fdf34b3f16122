"""Group commit: one thread writes all that is queued, with one sync of data and index each.

The queue is bounded in bytes, so a slow disk holds the senders back and memory does not grow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import WriterBroken, WriterClosed
from millstream.journal.base import Accepted
from millstream.journal.kinds.files.log import Item, PartitionLog
from millstream.journal.kinds.files.senders import Senders

QUEUE_BYTES = 32 * 2**20  # few, large syncs: a busy disk makes each of them slow
QUEUE_LENGTH = 4096


@dataclass(slots=True)
class _Queued:
    """Entries to be written, and the future that waits for them and for those before."""

    items: list[Item]
    accepted: Accepted
    future: Future[Accepted]
    size: int


class CommitQueue:
    """What waits to be written to a partition. `changed` guards it, and the drafts for it."""

    def __init__(
        self, path: Path, partition: int, log: PartitionLog, senders: Senders, *, background: bool
    ) -> None:
        self.changed = threading.Condition()
        #: The position after the last durable one.
        self.end = log.state.position
        #: Called after every commit, by whichever thread has made it.
        self.on_durable: Callable[[], None] = lambda: None
        self._path = path
        self._partition = partition
        self._log = log
        self._senders = senders
        self._background = background
        self._queue: list[_Queued] = []
        self._queued_bytes = 0
        self._busy = False
        self._closed = False
        self._broken: BaseException | None = None
        self._thread: threading.Thread | None = None

    def wait_for_room(self) -> None:
        """Wait, with `changed` held, until there is room.

        Raises:
            WriterClosed: It was closed.
            WriterBroken: The disk refused a write.
        """
        self._check_open()
        while self._background and (
            self._queued_bytes > QUEUE_BYTES or len(self._queue) > QUEUE_LENGTH
        ):
            self.changed.wait()
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._broken is not None:
            raise self._broken_error() from self._broken

    def _closed_error(self) -> WriterClosed:
        return WriterClosed(f'the writer of journal "{self._path}" is closed')

    def _broken_error(self) -> WriterBroken:
        msg = f'partition {self._partition} of journal "{self._path}" could not be written: {self._broken}'
        return WriterBroken(msg, hint="open the writer again and resend what was not acknowledged")

    def put(self, items: list[Item], accepted: Accepted) -> Future[Accepted]:
        """Queue entries, with `changed` held; the future resolves when they are durable."""
        future: Future[Accepted] = Future()
        future.set_running_or_notify_cancel()  # what is queued is written: nobody can take it back
        if not items and not self._queue and not self._busy:
            future.set_result(accepted)
            return future
        # A repeat waits too: the rows it repeats may themselves be waiting for the disk.
        size = sum(item.record.length for item in items)
        self._queue.append(_Queued(items, accepted, future, size))
        self._queued_bytes += size
        if self._background and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"journal-{self._partition}", daemon=True
            )
            self._thread.start()
        if not self._busy:
            self.changed.notify_all()
        return future

    def wait(self, future: Future[Accepted]) -> Accepted:
        """Return the answer to what was put; without a thread, this writes it."""
        if not self._background:
            self.flush()
        return future.result()

    def flush(self) -> None:
        """Wait until everything queued so far is durable."""
        if not self._background:
            while self._queue:
                self.commit_queued()
            return
        with self.changed:
            while (self._queue or self._busy) and self._broken is None:
                self.changed.wait()
            if self._broken is not None:
                raise self._broken_error() from self._broken

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._queue and not self._closed:
                    self.changed.wait()
                if not self._queue or self._broken is not None:
                    return
            self.commit_queued()

    def commit_queued(self) -> None:
        """Write all that is queued now."""
        with self.changed:
            taken, self._queue = self._queue, []
            names = self._senders.take()
            self._queued_bytes = 0
            self._busy = True
            self.changed.notify_all()
        try:
            self._senders.write(names)
            self._log.commit([item for queued in taken for item in queued.items])
        except BaseException as exc:
            self._break(taken, exc)
            if not self._background or not isinstance(exc, Exception):
                raise
            return
        with self.changed:
            self._busy = False
            self.end = self._log.state.position
            self.changed.notify_all()
        self.on_durable()
        for queued in taken:
            queued.future.set_result(queued.accepted)

    def _break(self, taken: list[_Queued], exc: BaseException) -> None:
        """Refuse all that waits and comes: only the next recovery finds out what is on the disk."""
        with self.changed:
            self._broken = exc
            self._busy = False
            waiting, self._queue = taken + self._queue, []
            self.changed.notify_all()
        for queued in waiting:
            queued.future.set_exception(self._broken_error())

    # closing

    def close(self) -> None:
        """Write what is queued and stop."""
        if self._closed:
            return
        try:
            if self._broken is None:
                self.flush()
        finally:
            self._stop()

    def abort(self) -> None:
        """Stop without writing what is queued."""
        with self.changed:
            waiting, self._queue = self._queue, []
        for queued in waiting:
            queued.future.set_exception(self._closed_error())
        self._stop()

    def _stop(self) -> None:
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
