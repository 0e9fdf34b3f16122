"""The state of a watcher as data: for `millstream watch status`, the page and Prometheus."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING

import msgspec

from millstream.watch.delivery import Delivery
from millstream.watch.replicator import PeerStatus

if TYPE_CHECKING:
    from millstream.watch.watcher import Watcher


class PatternStatus(msgspec.Struct, frozen=True):
    """A pattern: its live runs, and the complex events that this device published."""

    name: str
    live: int
    found: int
    digest: str


class InputStatus(msgspec.Struct, frozen=True):
    """An input, and whether it has ended."""

    name: str
    running: bool


class OutputStatus(msgspec.Struct, frozen=True):
    """An output: how many complex events wait for it, and why, if it does not work."""

    name: str
    waiting: int
    delivered: int
    trouble: str | None = None


class WatcherStatus(msgspec.Struct, frozen=True):
    """A watcher: what it watches for, whom it works with, and what it has done since its start."""

    device: str
    incarnation: str
    digest: str
    pid: int
    uptime_seconds: float
    memory_bytes: int
    events: int
    rejected: int
    #: Events of sensors that another device takes.
    elsewhere: int
    log_bytes: int
    patterns: list[PatternStatus] = []
    peers: list[PeerStatus] = []
    inputs: list[InputStatus] = []
    outputs: list[OutputStatus] = []
    #: Runs that some peers do not know, as their outputs name them, with those peers: the newest.
    unknown: dict[str, list[str]] = {}
    #: Why the disk does not take the state.
    unwritten: str | None = None
    #: How many messages of unknown devices were refused, and why the last one.
    strangers: tuple[int, str] | None = None


def of(
    watcher: Watcher,
    threads: Mapping[str, Thread],
    deliveries: Sequence[Delivery],
    uptime: float,
) -> WatcherStatus:
    """Return the state of a watcher, given its inputs' threads and its outputs' deliveries."""
    node, counts = watcher.node, watcher.node.counts
    live, replication, unknown = node.live(), node.replication(), node.unknown()
    waiting = {} if node.outbox is None else node.outbox.waiting()
    return WatcherStatus(
        device=watcher.device,
        incarnation=watcher.incarnation,
        digest=replication.digest,
        pid=os.getpid(),
        uptime_seconds=uptime,
        memory_bytes=memory_bytes(),
        events=counts.events,
        rejected=watcher.rejected,
        elsewhere=counts.elsewhere,
        log_bytes=replication.log_bytes,
        patterns=[
            PatternStatus(one.name, live[one.name], counts.found.get(one.name, 0), one.digest)
            for one in watcher.patterns
        ],
        peers=list(replication.peers),
        inputs=[InputStatus(name, thread.is_alive()) for name, thread in threads.items()],
        outputs=[
            OutputStatus(d.output.name, waiting[d.output.name], d.delivered, d.trouble)
            for d in deliveries
        ],
        unknown=unknown,
        unwritten=replication.unwritten,
        strangers=replication.strangers,
    )


def memory_bytes() -> int:
    """Return how much memory this process takes."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (no Path for a pseudo-file)
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
