"""The producers of a listener whose keys have quotas: what they have sent, and how often they wait.

A producer that is over its quota is slowed down: its rows are not taken yet, as if the inbox were
full, and its client sends them again. Nothing is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from millstream.errors import LinkBroken
from millstream.links import envelope
from millstream.links.admission import NOTHING, TakenRows
from millstream.links.quotas import UNLIMITED, Allowance, Quota
from millstream.links.standing import Peer, Standing


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer that has a quota: rows and bytes that were taken, requests that had to wait."""

    name: str
    quota: Quota
    #: Those that are open, if their number is limited.
    connections: int
    rows: int
    bytes: int
    waits: int
    sources: frozenset[str]


@dataclass(slots=True)
class _Meter:
    quota: Quota
    allowance: Allowance
    rows: int = 0
    bytes: float = 0.0
    waits: int = 0
    sources: set[str] = field(default_factory=set)


class Metering:
    """Meters by the names of keys. Any thread may call."""

    def __init__(
        self, connections: Callable[[str], int], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._connections, self._now = connections, now
        self._guard = threading.Lock()
        self._meters: dict[str, _Meter] = {}

    def rows(
        self,
        peer: Peer,
        request: envelope.Rows,
        size: int,
        enqueue: Callable[[int | None], Future[TakenRows]],
    ) -> Future[TakenRows]:
        """Let an inbox take as many rows of a request as the quota allows now."""
        if not _metered(peer):
            return enqueue(None)
        most, each = self._take(peer, request.source, request.rows, size, whole=False)
        answer: Future[TakenRows] = Future()
        if not most:
            answer.set_result(TakenRows(0, NOTHING, 0, why=_why(peer)))
            return answer

        def settled(done: Future[TakenRows]) -> None:
            error = done.exception()
            taken = TakenRows(0, NOTHING, 0) if error is not None else done.result()
            unused = most - (taken.taken - taken.repeated)
            free = self._give_back(peer, unused, unused * each)
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(_bounded(taken, free, peer))

        try:
            enqueue(most).add_done_callback(settled)
        except BaseException:
            self._give_back(peer, most, most * each)
            raise
        return answer

    def whole(self, peer: Peer, request: envelope.Request, rows: int, size: int) -> None:
        """Count what is taken as a whole.

        Raises:
            LinkBroken: The producer has to wait, and ask again.
        """
        if _metered(peer) and not self._take(peer, request.source, rows, size, whole=True)[0]:
            raise LinkBroken(_why(peer), hint="ask again")

    def statistics(self) -> tuple[ProducerStatistics, ...]:
        """Return the numbers of all producers with a quota that have sent something."""
        with self._guard:
            return tuple(
                ProducerStatistics(
                    name,
                    one.quota,
                    self._connections(name),
                    one.rows,
                    int(one.bytes),
                    one.waits,
                    frozenset(one.sources),
                )
                for name, one in sorted(self._meters.items())
            )

    def _meter(self, peer: Peer) -> _Meter:
        """Return a producer's meter as it is now; with another quota it begins with a full one."""
        assert peer.name is not None
        now, quota = self._now(), peer.grant.quota
        meter = self._meters.setdefault(peer.name, _Meter(quota, Allowance.full(quota, now)))
        if meter.quota != quota:
            meter.quota, meter.allowance = quota, Allowance.full(quota, now)
        meter.allowance = meter.allowance.filled(now)
        return meter

    def _take(
        self, peer: Peer, source: str, rows: int, size: int, *, whole: bool
    ) -> tuple[int, float]:
        """Return how many rows may be taken, which are counted, and how many bytes each has."""
        each = size / max(1, rows)
        with self._guard:
            meter = self._meter(peer)
            meter.sources.add(source)
            most = meter.allowance.fitting(max(1, rows), size)
            if most < rows:
                meter.waits += 1
            if whole and most:
                most = max(1, rows)
            self._count(meter, most, most * each)
            return most, each

    def _give_back(self, peer: Peer, rows: int, size: float) -> int | None:
        """Take back what was counted and not sent; return how many rows may come next."""
        with self._guard:
            meter = self._meter(peer)
            self._count(meter, -rows, -size)
            return meter.allowance.free

    def _count(self, meter: _Meter, rows: int, size: float) -> None:
        meter.rows += rows
        meter.bytes += size
        meter.allowance = meter.allowance.less(rows, size)


def _metered(peer: Peer) -> bool:
    return peer.standing is Standing.PRODUCER and peer.grant.quota != UNLIMITED


def _bounded(taken: TakenRows, free: int | None, peer: Peer) -> TakenRows:
    if free is None or free >= taken.free:
        return taken
    return replace(taken, free=free, why=taken.why or (None if free else _why(peer)))


def _why(peer: Peer) -> str:
    quota = peer.grant.quota
    limits = [
        f"{rate:,} {what} a second"
        for rate, what in ((quota.rows_per_second, "rows"), (quota.bytes_per_second, "bytes"))
        if rate is not None
    ]
    return f'producer "{peer.name}" may send {" and ".join(limits)}'
