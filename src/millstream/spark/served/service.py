"""The service in the driver's process: reads journals for executors, and writes for them.

It does what the driver has offered, and nothing else: journals that a query reads (`allow`), and
pieces of work (`offered`). Whoever has no key of this run gets no connection.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.errors import PositionUnwritten
from millstream.journal import JournalReader, PartitionReader, journal_at
from millstream.links.keys import passing_keys
from millstream.links.standing import Peer, Standing
from millstream.links.transport import ServerSocket
from millstream.spark.served import messages
from millstream.spark.served.messages import Describe, Finish, Ping, Put, Read, Refused, framed
from millstream.spark.served.place import ServedPlace
from millstream.spark.served.runs import Reply, Run, Work

#: How many requests are read for at once: the page cache is quicker than the network.
_READERS: Final = 4
#: How many runs go on at once; further ones wait.
_RUNS: Final = 64
_SWEEP_S: Final = 5.0


class Service:
    """Serves executors until it is closed; any thread may call."""

    def __init__(self, host: str, ip: str, port: int = 0) -> None:
        """Listen on `ip`; executors connect to `host`."""
        keys, theirs = passing_keys("driver"), passing_keys("executors")
        self._id = uuid.uuid4().hex
        self._journals: set[str] = set()
        self._works: dict[str, Work] = {}
        self._runs: dict[tuple[str, str], Run] = {}
        self._guard = threading.Lock()
        self._sweep_at = 0.0
        self._own = threading.local()
        self._readers = ThreadPoolExecutor(_READERS, "served read")
        self._writers = ThreadPoolExecutor(_RUNS, "served run")
        known = {theirs.public: Peer(Standing.PRODUCER, theirs.name)}
        self._socket = ServerSocket(
            None, ip, self._take, self._full, port=port, keys=keys, known=known
        )
        self.place = ServedPlace(host, self._socket.port, keys.public, theirs.public, theirs.secret)
        self._socket.start()

    def allow(self, journal: Path | str) -> None:
        """Let executors read a journal."""
        self._journals.add(str(journal))

    def offer(self, work: Work) -> str:
        """Let executors run a piece of work; return its name."""
        name = uuid.uuid4().hex
        self._works[name] = work
        return name

    def withdraw(self, name: str) -> None:
        """Offer a piece of work no longer; runs of it that go on fail."""
        self._works.pop(name, None)
        with self._guard:
            left = [key for key in self._runs if key[0] == name]
            for key in left:
                self._runs.pop(key).abandon()

    @contextmanager
    def offered(self, work: Work) -> Iterator[str]:
        """Offer a piece of work for a while."""
        name = self.offer(work)
        try:
            yield name
        finally:
            self.withdraw(name)

    def close(self) -> None:
        """Let go of executors, and of what they have not finished."""
        self._socket.close()
        for name in list(self._works):
            self.withdraw(name)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writers.shutdown(wait=False, cancel_futures=True)

    # requests

    def _take(self, frames: list[Any], peer: Peer, reply: Reply) -> None:
        if peer.standing is not Standing.PRODUCER:
            return
        try:
            request = messages.request(frames[0])
        except msgspec.MsgspecError:
            return  # there is no number to answer to
        match request:
            case Ping():
                self._touch(request.runs)
                reply([framed(messages.Pong(request.request, self._id))])
            case Describe() | Read():
                self._readers.submit(self._guarded, request.request, reply, self._read, request)
            case Put() | Finish():
                # The frame is a buffer of the socket's: it lives as long as the rows do.
                data = frames[1] if len(frames) > 1 else b""
                self._guarded(request.request, reply, self._run, request, data, reply)

    def _full(self, frames: list[Any], _why: str, reply: Reply) -> None:
        reply([framed(messages.Busy(messages.request(frames[0]).request))])

    def _guarded(
        self, number: int, reply: Reply, do: Callable[..., bytes | None], *given: Any
    ) -> None:
        """Answer with what is done, or with why it is not."""
        try:
            answer = do(*given)
        except Exception as error:  # noqa: BLE001 (who gets no answer would ask for ever)
            answer = framed(Refused.because(number, error))
        if answer is not None:
            reply([answer])

    # reading

    def _read(self, asked: Describe | Read) -> bytes:
        if asked.journal not in self._journals:
            raise PositionUnwritten(f'journal "{asked.journal}" is not offered to executors')
        if isinstance(asked, Describe):
            schema = journal_at(asked.journal).describe().schema
            return framed(messages.Done(asked.request), schema.serialize())
        view = self._view(asked)
        slices = list(messages.bounded(view.read(asked.start, asked.stop, list(asked.columns))))
        rows = [one.batch for one in slices if one.batch is not None]
        data = messages.to_arrow(rows[0].schema, rows) if rows else b""
        done = messages.Done(asked.request, messages.parts_of(slices))
        return framed(done, messages.fitting(data))

    def _view(self, asked: Read) -> PartitionReader:
        """Return a reader that sees all that is asked for: it belongs to this thread alone."""
        readers: dict[str, JournalReader] = self._own.__dict__.setdefault("readers", {})
        reader = readers.get(asked.journal)
        if reader is not None and asked.partition < reader.description.partitions:
            view = reader.partition(asked.partition)
            if view.end >= asked.stop and not set(asked.columns) - set(
                reader.description.schema.names
            ):
                return view
        reader = readers[asked.journal] = journal_at(asked.journal).reader()
        view = reader.partition(asked.partition)
        if view.end < asked.stop:
            msg = f"partition {asked.partition} of journal {asked.journal} ends at {view.end}"
            raise PositionUnwritten(f"{msg}, and {asked.stop} was asked for")
        return view

    # running

    def _run(self, asked: Put | Finish, data: Any, reply: Reply) -> bytes | None:
        run = self._known(asked)
        if run is None:
            reason = "the driver does not know this run: its work has ended, or it began elsewhere"
            return framed(Refused(asked.request, reason))
        if isinstance(asked, Finish):
            run.finish(asked.request, asked.number, reply)
        else:
            run.put(asked.request, asked.number, messages.from_arrow(data), reply)
        return None

    def _known(self, asked: Put | Finish) -> Run | None:
        """Return the run of a message; its first rows begin it."""
        key = (asked.work, asked.run)
        with self._guard:
            self._sweep()
            run = self._runs.get(key)
            if run is None and isinstance(asked, Put) and asked.number == 0:
                work = self._works.get(asked.work)
                if work is not None:
                    run = self._runs[key] = Run(work)
                    self._writers.submit(run.execute)
            return run

    def _touch(self, runs: Sequence[str]) -> None:
        wanted = set(runs)
        with self._guard:
            for (_, name), run in self._runs.items():
                if name in wanted:
                    run.touch()

    def _sweep(self) -> None:
        """Forget runs that have ended, or whose executors have."""
        now = time.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_S
        for key in [key for key, run in self._runs.items() if run.silent(now)]:
            self._runs.pop(key).abandon()
