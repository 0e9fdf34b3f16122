"""Devices that replicate: delay, bytes, catching up, and memory.

    python -m benchmarks.watch_replication [--full]

- *delay*: two devices over encrypted sockets of this host, with and without a disk; from the event
  that completes a run on one to the other knowing it, at a steady pace;
- *bytes*: what a SYNC has for each run that changed, sent one by one and a thousand together;
- *catching up*: a device was cut off while the other came to 10,000 live runs: the RESYNC's bytes,
  and the seconds until both know the same;
- *memory*: bytes for a live run on a device with and without peers.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

import msgspec
from benchmarks.common import save, show

from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern
from millstream.watch.choice import Periods
from millstream.watch.device import Device

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.watchers import Network, network

PATTERN: Final = (
    Pattern("door")
    .begin("opened", "kind = 'opened'")
    .followed_by("closed", "kind = 'closed' and door = opened.door")
    .within("24 hours")
    .emit("opened.door as door, opened.number as first, closed.number as last")
)
SECOND: Final = 1_000_000


def row(kind: str, number: int) -> dict[str, Any]:
    return {"kind": kind, "door": f"door-{number}", "number": number}


def delays(count: int, rate: float, *, stored: bool) -> dict[str, float]:
    """Return percentiles of the milliseconds until a peer knows of a completed run."""
    with tempfile.TemporaryDirectory() as folder, network(Path(folder), periods=Periods()) as net:
        a, b = (net.start(name, patterns=[PATTERN], stored=stored) for name in "AB")
        wait(net)
        known: dict[Any, float] = {}
        b.completed = lambda complete, _publish: known.setdefault(  # type: ignore[method-assign]
            complete.id.first, time.perf_counter()
        )
        sent: dict[Any, float] = {}
        began = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))  # a steady pace
            for place, kind in enumerate(("opened", "closed")):
                event = "sensor", 2 * number + place
                with a.replicator.lock:
                    a.device.event(event, (2 * number + place) * SECOND, row(kind, number))
                    a.replicator.save()
                if place:
                    sent["sensor", 2 * number] = time.perf_counter()
                a.replicator.wake()
        while len(known) < count:
            time.sleep(0.01)
    found = sorted((known[event] - sent[event]) * 1000 for event in sent)
    cuts = statistics.quantiles(found, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": found[-1]}


def wait(net: Network) -> None:
    while not net.agree():
        time.sleep(0.01)


def edge() -> EdgePattern:
    return EdgePattern.of(PATTERN, schema=None, time="at", key=())


def message_bytes(runs: int) -> float:
    """Return the bytes for each run that changed, in one SYNC of so many."""
    device, peer = Device([edge()], "A", "a" * 16, ["B"]), Device([edge()], "B", "b" * 16, ["A"])
    for _ in range(3):
        for name, say in device.due(0):
            device.acknowledged(name, peer.receive("A", say, 0)[0], 0)
    for number in range(runs):
        device.event(("sensor", number), number * SECOND, row("opened", number))
    ((_, say),) = device.due(0)
    assert len(say.runs) == runs
    return len(msgspec.msgpack.encode(say)) / runs


def caught_up(runs: int) -> dict[str, float]:
    """Return the seconds after which a device that was cut off knows as many live runs."""
    with tempfile.TemporaryDirectory() as folder, network(Path(folder)) as net:
        a, b = (net.start(name, patterns=[PATTERN]) for name in "AB")
        wait(net)
        net.cut("A", "B")
        for number in range(runs):
            a.device.event(("sensor", number), number * SECOND, row("opened", number))
        while not b.peer("A").away or not a.peer("B").away:
            time.sleep(0.05)
        size = len(msgspec.msgpack.encode(a.device.snapshot()))
        began = time.perf_counter()
        net.heal("A", "B")
        while len(b.device.matchers["door"].keys.get((), _none()).live) < runs:
            time.sleep(0.01)
        return {"seconds": time.perf_counter() - began, "bytes": size}


def _none() -> Any:
    from millstream.watch.matcher import KeyRuns

    return KeyRuns(())


def memory(runs: int, peers: tuple[str, ...]) -> float:
    """Return the bytes that a live run takes."""
    made = edge()
    gc.collect()
    tracemalloc.start()
    device = Device([made], "A", "a", peers, durable=bool(peers))
    for number in range(runs):
        device.event(("sensor", number), number * SECOND, row("opened", number))
        device.records()
    gc.collect()
    found = tracemalloc.get_traced_memory()[0] / runs
    tracemalloc.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="the results are kept")
    full = parser.parse_args().full
    count = 2_000 if full else 200
    found = {
        "delay in memory": delays(count, 100, stored=False),
        "delay with disks": delays(count, 100, stored=True),
        "bytes a change": {"alone": message_bytes(1), "a thousand together": message_bytes(1_000)},
        "catching up with 10,000 live runs": caught_up(10_000),
        "bytes a live run": {"alone": memory(20_000, ()), "with a peer": memory(20_000, ("B",))},
    }
    rows = [
        [title, ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())]
        for title, figures in found.items()
    ]
    show("devices that replicate, on this host", ["", "found"], rows)
    if full:
        save("watch_replication", {"runs": 10_000, "count": count}, found)


if __name__ == "__main__":
    main()
