"""How fast events come from a producer into a journal, durable, over a plain call, IPC and TCP.

One producer sends events of 100 bytes to one partition: Arrow batches of 1,000, lists of 1,000
dicts, dicts one by one. A turn ends when the last event is acknowledged, that is synced. The
producer and the host of the inbox are two processes, except for the plain call. In the same run,
turn by turn, peers that do less: the same bytes through pyzmq's PUSH and PULL, kept nowhere;
through `queue.Queue`; and written to a file in blocks, each synced.

Then how long a single event takes to the journal and back, beside two syncs by hand; what a
connection that nobody uses costs; and how long a new process takes to its first acknowledged event.
"""

from __future__ import annotations

import argparse
import functools
import os
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import zmq
from benchmarks.common import Timing, folder, save, show

import millstream as ms
from millstream import ingest
from millstream.flow.flow import Flow
from millstream.journal.kinds.files.reader import Reader
from millstream.links.client import Client, connect
from millstream.links.host import Host, declared_inboxes

ROWS: Final = 1_000
TARGET: Final = "bench.events"
COLUMNS: Final = "origin string, n long, text string, at timestamp"
SCHEMA: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
#: With the two texts' offsets: 4 + 8, 8, 4 + 68, 8.
ROW_BYTES: Final = 100
BLOCK: Final = 8 << 20
SMALL_BLOCK: Final = 100 << 10
BY_HAND: Final = "two syncs by hand"
REFERENCE: Final = (
    153_000  # words a second, in one process, of the implementation that ours is to be measured by
)
BEGIN_US: Final = 1_700_000_000_000_000

Batches = list[pa.RecordBatch]
Send = Callable[[], None]
"""Sends all of a turn's events; they are where they belong when it returns. Making them is not measured."""


# events


def made(rows: int) -> Batches:
    """Return batches of 1,000 events: 997 origins, a text of 68 characters, a millisecond between two."""
    chance = np.random.default_rng(1)
    origins = pa.array([f"key{n % 997:05d}" for n in range(ROWS)])
    texts = pa.array([chance.bytes(34).hex() for _ in range(ROWS)])
    found = []
    for first in range(0, rows, ROWS):
        numbers = np.arange(first, first + ROWS)
        at = pa.array(BEGIN_US + numbers * 1_000, SCHEMA.field("at").type)
        found.append(pa.record_batch([origins, pa.array(numbers), texts, at], schema=SCHEMA))
    return found


def plain(batches: Batches) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


# the host of the inbox


def declare(data: Path, partitions: int) -> None:
    flow = Flow("bench")
    flow.source("events", ms.inbox(COLUMNS), time="at", key="origin", partitions=partitions)
    ingest.declare(flow.stages["events"], data / "bench" / "journals" / "events")


def opened(data: Path) -> Host:
    return Host(data / "bench", declared_inboxes(data / "bench"))


def serve(data: Path) -> None:
    """Host the inbox until the parent is done."""
    host = opened(data)
    print(host.address, flush=True)
    sys.stdin.read()
    host.close()


@contextmanager
def child(*args: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start this file in another process; give what it says first."""
    asked = [sys.executable, "-m", "benchmarks.links", *args]
    with subprocess.Popen(
        asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


@contextmanager
def hosted(data: Path, transport: str, partitions: int = 1) -> Iterator[tuple[str, psutil.Process]]:
    """Have an inbox hosted, reached as `transport` says; give its address and the process that hosts it."""
    declare(data, partitions)
    if transport == "local":
        host = opened(data)
        yield str(host.address), psutil.Process()
        host.close()
        return
    with child("--serve", str(data)) as (address, process):
        if transport == "tcp":
            # A host that shares no files with us: where the IPC socket cannot be found, TCP is
            # used.
            for file in (data / "bench").glob("inbox_*"):
                file.rename(data / file.name)
        yield address, process


@contextmanager
def connected(
    data: Path, transport: str, partitions: int = 1
) -> Iterator[tuple[Client, psutil.Process]]:
    with hosted(data, transport, partitions) as (address, process), connect(address) as client:
        client.schema(TARGET)
        used = {one.transport for one in client.statistics()}
        assert used == {transport}, used
        yield client, process


# what is measured

Open = Callable[[Path, Batches], AbstractContextManager[Send]]


def checked(data: Path, partitions: int, rows: int) -> None:
    journal = Reader(data / "bench" / "journals" / "events")
    found = sum(journal.partition(n).end for n in range(partitions))
    assert found == rows, f"{found} events are in the journal, {rows} were sent"


def in_batches(transport: str, partitions: int = 1) -> Open:
    @contextmanager
    def way(path: Path, batches: Batches) -> Iterator[Send]:
        def send() -> None:
            for batch in batches:
                client.send_nowait(TARGET, batch)
            client.flush()

        with connected(path, transport, partitions) as (client, _):
            yield send
            checked(path, partitions, len(batches) * ROWS)

    return way


def in_lists(transport: str) -> Open:
    @contextmanager
    def way(path: Path, batches: Batches) -> Iterator[Send]:
        lists = [batch.to_pylist() for batch in batches]

        def send() -> None:
            for rows in lists:
                client.send_nowait(TARGET, rows)
            client.flush()

        with connected(path, transport) as (client, _):
            yield send
            checked(path, 1, len(batches) * ROWS)

    return way


def one_by_one(transport: str) -> Open:
    @contextmanager
    def way(path: Path, batches: Batches) -> Iterator[Send]:
        rows = plain(batches)

        def send() -> None:
            for row in rows:
                client.send_nowait(TARGET, row)
            client.flush()

        with connected(path, transport) as (client, _):
            yield send
            checked(path, 1, len(rows))

    return way


# peers


def pull(endpoint: str, count: int) -> None:
    """Receive so many messages, then say so; keeps none of them."""
    context = zmq.Context()
    source, said = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    source.bind(endpoint)
    said.bind(f"{endpoint}-done" if endpoint.startswith("ipc") else endpoint)
    print(source.last_endpoint.decode(), said.last_endpoint.decode(), flush=True)
    for _ in range(count):
        source.recv(copy=False)
    said.send(b"")
    sys.stdin.read()
    context.destroy(linger=0)


def pushed(transport: str, *, batched: bool) -> Open:
    @contextmanager
    def way(path: Path, batches: Batches) -> Iterator[Send]:
        whole = [batch.serialize().to_pybytes() for batch in batches]
        messages = whole if batched else [bytes(ROW_BYTES)] * (len(batches) * ROWS)
        path.mkdir(parents=True)
        endpoint = f"ipc://{path}/pull" if transport == "ipc" else "tcp://127.0.0.1:*"
        context = zmq.Context()
        sink, said = context.socket(zmq.PUSH), context.socket(zmq.PULL)

        def send() -> None:
            for message in messages:
                sink.send(message, copy=not batched)
            said.recv()

        with child("--pull", endpoint, str(len(messages))) as (found, _):
            for sock, where in zip((sink, said), found.split(), strict=True):
                sock.connect(where)
            yield send
        context.destroy(linger=0)

    return way


def queued(*, batched: bool) -> Open:
    @contextmanager
    def way(_: Path, batches: Batches) -> Iterator[Send]:
        items: Sequence[Any] = batches if batched else plain(batches)
        waiting: queue.Queue[Any] = queue.Queue(10_000)

        def take() -> None:
            for _ in items:
                waiting.get()

        def send() -> None:
            taker = threading.Thread(target=take)
            taker.start()
            for item in items:
                waiting.put(item)
            taker.join()

        yield send

    return way


def written(block: int) -> Open:
    @contextmanager
    def way(path: Path, batches: Batches) -> Iterator[Send]:
        path.mkdir(parents=True)
        message = memoryview(b"".join(batch.serialize().to_pybytes() for batch in batches))
        fd = os.open(path / "plain", os.O_WRONLY | os.O_CREAT)

        def send() -> None:
            for begin in range(0, len(message), block):
                os.write(fd, message[begin : begin + block])
                os.fdatasync(fd)

        yield send
        os.close(fd)

    return way


# How each is opened, and how large a part of a turn's events it gets: the slow ones would take
# minutes.
IN_BATCHES: dict[str, tuple[Open, float]] = {
    "links, local": (in_batches("local"), 1.0),
    "links, IPC": (in_batches("ipc"), 1.0),
    "links, TCP": (in_batches("tcp"), 1.0),
    "links, IPC, 4 partitions by key": (in_batches("ipc", partitions=4), 1.0),
    "links, local, lists of dicts": (in_lists("local"), 0.2),
    "links, IPC, lists of dicts": (in_lists("ipc"), 0.2),
    "pyzmq, IPC": (pushed("ipc", batched=True), 1.0),
    "pyzmq, TCP": (pushed("tcp", batched=True), 1.0),
    "queue.Queue": (queued(batched=True), 1.0),
    "file, blocks of 8 MB": (written(BLOCK), 1.0),
    "file, blocks of 100 KB": (written(SMALL_BLOCK), 0.1),
}
ONE_BY_ONE: dict[str, tuple[Open, float]] = {
    "links, local": (one_by_one("local"), 0.2),
    "links, IPC": (one_by_one("ipc"), 0.2),
    "links, TCP": (one_by_one("tcp"), 0.2),
    "pyzmq, IPC": (pushed("ipc", batched=False), 0.2),
    "pyzmq, TCP": (pushed("tcp", batched=False), 0.2),
    "queue.Queue": (queued(batched=False), 0.2),
}
#: What a batch over each transport can at best be: the slower of these.
LIMITS: Final = {
    "links, local": ("file, blocks of 8 MB",),
    "links, IPC": ("pyzmq, IPC", "file, blocks of 8 MB"),
    "links, TCP": ("pyzmq, TCP", "file, blocks of 8 MB"),
}


def rates(
    ways: dict[str, tuple[Open, float]], rows: int, turns: int, only: str | None
) -> dict[str, Any]:
    batches = made(rows)
    order = [name for name in ways if only is None or only in name]
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(turns):
        order.append(
            order.pop(0)
        )  # nobody always comes after the same one, whose pages are still being written
        for name in order:
            way, part = ways[name]
            seconds[name].append(seconds_a_row(way, batches[: max(1, int(len(batches) * part))]))
    return {name: _rate(Timing(tuple(seconds[name]))) for name in ways if name in seconds}


def seconds_a_row(way: Open, batches: Batches) -> float:
    with folder("links") as path, way(path / "it", batches) as send:
        began = time.perf_counter()
        send()
        return (time.perf_counter() - began) / (len(batches) * ROWS)


def _rate(timing: Timing) -> dict[str, Any]:
    return {
        "rows_per_s": round(1 / timing.median),
        "spread": round(timing.spread, 3),
        "each_rows_per_s": [round(1 / s) for s in timing.seconds],
        "load_1min": round(os.getloadavg()[0], 2),
    }


# a single event


def latencies(count: int) -> dict[str, Any]:
    """Return percentiles of the time from `send` of one event to its return, beside two syncs by hand.

    All are open at once and take turns, event by event: the disk is as busy for one as for the
    others.
    """
    row, chance = plain(made(ROWS))[0], random.Random(1)
    calls: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        for transport in ("local", "ipc", "tcp"):
            path = stack.enter_context(folder("links"))
            client, _ = stack.enter_context(connected(path / "it", transport))
            calls[transport] = functools.partial(client.send, TARGET, row)
        calls[BY_HAND] = stack.enter_context(by_hand(stack.enter_context(folder("links"))))
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        for _ in range(count):
            for name in chance.sample(list(calls), len(calls)):
                time.sleep(0.001)  # single events do not come back to back
                began = time.perf_counter()
                calls[name]()
                times[name].append(time.perf_counter() - began)
    return {name: percentiles(found) for name, found in times.items()}


@contextmanager
def by_hand(path: Path) -> Iterator[Callable[[], None]]:
    """Append an event to one file and sync it, then 128 bytes to another: what a journal does for an event alone."""
    message = made(ROWS)[0][:1].serialize().to_pybytes()
    files = [os.open(path / name, os.O_WRONLY | os.O_CREAT) for name in ("data", "index")]

    def append() -> None:
        for fd, data in zip(files, (message, bytes(128)), strict=True):
            os.write(fd, data)
            os.fdatasync(fd)

    yield append
    for fd in files:
        os.close(fd)


def percentiles(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=1000)
    return {
        "p50_ms": round(cuts[499] * 1e3, 3),
        "p90_ms": round(cuts[899] * 1e3, 3),
        "p99_ms": round(cuts[989] * 1e3, 3),
        "p999_ms": round(cuts[998] * 1e3, 3),
        "events": len(times),
    }


# nobody sends


def idle(seconds: float) -> dict[str, Any]:
    """Return the CPU that a host and a client use after one event, while no more come."""
    found: dict[str, Any] = {"seconds": seconds}
    for transport in ("ipc", "tcp"):
        with (
            folder("links") as path,
            connected(path / "it", transport, partitions=4) as (client, host),
        ):
            client.send(TARGET, plain(made(ROWS)))
            time.sleep(1)
            before = [_used(host), _used(psutil.Process())]
            time.sleep(seconds)
            after = [_used(host), _used(psutil.Process())]
        for name, begin, end in zip(("host", "client"), before, after, strict=True):
            found[f"{transport}, {name}"] = {
                "cpu_percent": round((end[0] - begin[0]) / seconds * 100, 3),
                "switches_per_s": round((end[1] - begin[1]) / seconds, 1),
            }
    return found


def _used(process: psutil.Process) -> tuple[float, int]:
    times, switches = process.cpu_times(), _switches(process.pid)
    return times.user + times.system, switches


def _switches(pid: int) -> int:
    """Return how often the threads of a process went to sleep: a thread that polls is seen here at once."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found += sum(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if "ctxt_switches" in line
        )
    return found


# a new process


def first(address: str) -> None:
    row = {"origin": "key", "n": 0, "text": "first", "at": datetime.now(UTC)}
    with connect(address) as client:
        client.send(TARGET, row)


def starts(turns: int) -> dict[str, Any]:
    """Return how long a new process takes from its start to its first acknowledged event and its end."""
    seconds, bare = [], []
    with folder("links") as path, hosted(path / "it", "ipc") as (address, _):
        code = f"from datetime import *; import millstream as ms; c = ms.connect({address!r}); "
        code += f"c.send({TARGET!r}, dict(origin='key', n=0, text='first', at=datetime.now(UTC))); c.close()"
        for _ in range(turns):
            for asked, into in ((code, seconds), ("import pyarrow, numpy", bare)):
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", asked], check=True)
                into.append(time.perf_counter() - began)
    return {
        "connect, send, close": Timing(tuple(seconds)).plain(),
        "import pyarrow, numpy": Timing(tuple(bare)).plain(),
    }


# the report


def judged(rates: dict[str, Any]) -> dict[str, Any]:
    """Return each way in batches against what its transport and the disk allow, and against the reference."""
    found = {}
    for name, peers in LIMITS.items():
        if name in rates and all(peer in rates for peer in peers):
            limit = min(peers, key=lambda peer: rates[peer]["rows_per_s"])
            found[name] = {
                "limit": limit,
                "of_limit": round(rates[name]["rows_per_s"] / rates[limit]["rows_per_s"], 3),
                "times_reference": round(rates[name]["rows_per_s"] / REFERENCE, 1),
            }
    return found


def report(results: dict[str, Any]) -> None:
    for what, title in (
        ("in_batches", "1,000 events of 100 bytes a batch"),
        ("one_by_one", "Events one by one"),
    ):
        rows = [
            (
                name,
                f"{one['rows_per_s']:,}",
                f"{one['rows_per_s'] * ROW_BYTES / 1e6:,.0f}",
                f"{one['spread']:.0%}",
            )
            for name, one in results.get(what, {}).items()
        ]
        if rows:
            show(title, ("", "rows/s", "MB/s", "spread"), rows)
    judged = results.get("judged")
    if judged:
        rows = [
            (name, one["limit"], one["of_limit"], one["times_reference"])
            for name, one in judged.items()
        ]
        show(
            "Batches against what is possible", ("", "limit", "part of it", "times 153,000/s"), rows
        )
    if "latency" in results:
        columns = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")
        rows = [(name, *(one[c] for c in columns)) for name, one in results["latency"].items()]
        show(
            "One event to the journal and back", ("", *(c.replace("_", " ") for c in columns)), rows
        )
    if "idle" in results:
        rows = [
            (n, one["cpu_percent"], one["switches_per_s"])
            for n, one in results["idle"].items()
            if n != "seconds"
        ]
        show("Idle, 4 partitions", ("", "CPU %", "switches/s"), rows)
    if "start" in results:
        show(
            "A new process",
            ("", "s"),
            [(name, one["median_s"]) for name, one in results["start"].items()],
        )


PARTS: Final = ("in_batches", "one_by_one", "latency", "idle", "start")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="keep the results under the name of the large sizes"
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="events a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this alone")
    parser.add_argument("--only", help="the ways whose name has this in it")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pull", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
    elif args.pull is not None:
        pull(args.pull[0], int(args.pull[1]))
    else:
        measure(args)


def measure(args: argparse.Namespace) -> None:
    parts = args.part or PARTS
    results: dict[str, Any] = {
        "message_bytes": int(made(ROWS)[0].serialize().size),
        "load_before": os.getloadavg(),
    }
    if "in_batches" in parts:
        results["in_batches"] = rates(IN_BATCHES, args.rows, args.turns, args.only)
        results["judged"] = judged(results["in_batches"])
    if "one_by_one" in parts:
        results["one_by_one"] = rates(ONE_BY_ONE, args.rows, args.turns, args.only)
    if "latency" in parts:
        results["latency"] = latencies(500 * args.turns)
    if "idle" in parts:
        results["idle"] = idle(10.0)
    if "start" in parts:
        results["start"] = starts(args.turns)
    report(results)
    if args.only is None:
        name = "links-full" if args.full else "links"
        save(
            "-".join([name, *(args.part or ())]),
            {
                "rows_a_turn": args.rows,
                "turns": args.turns,
                "rows_a_batch": ROWS,
                "bytes_a_row": ROW_BYTES,
            },
            results,
        )


if __name__ == "__main__":
    main()
