"""A steady load, from a process of its own: `python -m benchmarks.switch_load (inbox ADDRESS | files FOLDER) LOG RATE [SENDER]`.

Every quarter of a second the rows of a tick are made and sent, with the moment at which they are
made as their event time. What a tick holds follows from its number, so that the log, a line with
number and moment for each, tells what every result has to be. It ends, with all sent, when its
standard input does.

With the name of a sender it may be killed: the next process of that name goes on after the last
line of the log, and first sends again what may not have arrived, under the same numbers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import millstream as ms

TICK_S = 0.25
KEYS = 100
#: The sum takes amounts from here on, before the switch and after it.
OLD, NEW = 10, 20
_NAMES = np.array([f"k{number}" for number in range(KEYS)])

Send = Callable[[int, pa.Table], None]
#: Rows, and the sums of the old and the new version.
Sums = tuple[int, int, int]


def amounts(tick: int, rows: int) -> np.ndarray:
    return (np.arange(rows) * 7 + tick * 13) % 101


def table(tick: int, at_ms: int, rows: int) -> pa.Table:
    """Return the rows of a tick."""
    moments = pa.array(np.full(rows, at_ms), pa.int64())
    return pa.table(
        {"k": _NAMES[np.arange(rows) % KEYS], "amount": amounts(tick, rows), "at": moments}
    )


def expected(log: Path, rate: int, window_s: int) -> dict[tuple[str, int], Sums]:
    """Return what there should be by key and start of the window; the last windows, which may be open, are not in it."""
    last = logged(log)[-1][1] / 1000
    found = whole(log, rate, window_s)
    return {key: sums for key, sums in found.items() if key[1] + window_s <= last}


def whole(log: Path, rate: int, window_s: int) -> dict[tuple[str, int], Sums]:
    """Return what there should be by key and start of the window, once the load has ended."""
    rows = round(rate * TICK_S)
    found: dict[int, np.ndarray] = defaultdict(lambda: np.zeros((KEYS, 3), dtype=np.int64))
    for tick, at_ms in logged(log):
        found[at_ms // 1000 // window_s * window_s] += _by_key(tick % 101, rows)
    return {
        (str(_NAMES[key]), start): (int(one[0]), int(one[1]), int(one[2]))
        for start, sums in found.items()
        for key, one in enumerate(sums)
        if one[0]
    }


def logged(log: Path) -> list[tuple[int, int]]:
    """Return number and moment of the ticks; a line that a kill has cut off was not sent."""
    lines = [line.split() for line in log.read_text().splitlines(keepends=True) if line[-1] == "\n"]
    return [(int(tick), int(at_ms)) for tick, at_ms in lines]


@lru_cache(maxsize=256)
def _by_key(tick: int, rows: int) -> np.ndarray:
    """Return rows and sums by key; the amounts repeat after 101 ticks."""
    amount = amounts(tick, rows)
    by_key = [amount[key::KEYS] for key in range(KEYS)]
    return np.array([(len(one), one[one >= OLD].sum(), one[one >= NEW].sum()) for one in by_key])


def to_files(folder: Path) -> Send:
    """Write each tick as a CSV file, which is there whole or not at all."""

    def send(tick: int, rows: pa.Table) -> None:
        part, whole = folder / f".{tick:06}.part", folder / f"{tick:06}.csv"
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        pa.csv.write_csv(rows, part, options)
        part.rename(whole)

    return send


def to_inbox(client: ms.Client, acknowledged: Path | None = None) -> Send:
    """Send each tick to the inbox; what is not acknowledged is sent again.

    A client with a name numbers its rows by their ticks, and notes how many ticks have arrived;
    its rows are 100 bytes long, with a text that nobody reads.
    """

    def send(tick: int, rows: pa.Table) -> None:
        moments = pa.compute.cast(rows["at"], pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
        rows = rows.set_column(2, "at", moments)
        if acknowledged is None:
            client.send_nowait("load.events", rows)
            return
        first, text = tick * rows.num_rows, pa.repeat("x" * 80, rows.num_rows)
        rows = rows.append_column("text", text)
        sent = client.send_nowait("load.events", rows, numbers=range(first, first + rows.num_rows))
        sent.add_done_callback(lambda done: _note(done, acknowledged, tick + 1))

    return send


def _note(done: Future[int], acknowledged: Path, ticks: int) -> None:
    """Note how many ticks have arrived: ticks arrive in their order."""
    if done.exception() is None:
        part = acknowledged.with_suffix(".noted")
        part.write_text(str(ticks))
        part.rename(acknowledged)


def produce(send: Send, log: Path, rate: int, ended: threading.Event) -> None:
    begin, rows, tick = time.monotonic(), round(rate * TICK_S), 0
    with log.open("w") as told:
        while not ended.wait(max(0.0, begin + tick * TICK_S - time.monotonic())):
            at_ms = time.time_ns() // 1_000_000
            send(tick, table(tick, at_ms, rows))
            told.write(f"{tick} {at_ms}\n")
            tick += 1


def go_on(send: Send, log: Path, rate: int, ended: threading.Event, arrived: int) -> None:
    """Send again what may not have arrived, then produce, with a line of the log before each tick."""
    before, rows = logged(log) if log.exists() else [], round(rate * TICK_S)
    # A line that was cut off goes, so that the next one does not become a part of it.
    part = log.with_suffix(".part")
    part.write_text("".join(f"{tick} {at_ms}\n" for tick, at_ms in before))
    part.rename(log)
    for tick, at_ms in before[arrived:]:
        send(tick, table(tick, at_ms, rows))
    begin, first = time.monotonic(), len(before)
    with log.open("a", buffering=1) as told:
        tick = first
        while not ended.wait(max(0.0, begin + (tick - first) * TICK_S - time.monotonic())):
            at_ms = time.time_ns() // 1_000_000
            told.write(f"{tick} {at_ms}\n")
            send(tick, table(tick, at_ms, rows))
            tick += 1


def main() -> None:
    kind, where, log, rate = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    sender = sys.argv[5] if len(sys.argv) > 5 else None
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with contextlib.ExitStack() as stack:
        if kind == "files":
            produce(to_files(Path(where)), log, rate, ended)
            return
        client = stack.enter_context(ms.connect(where, sender=sender, timeout=300))
        if sender is None:
            produce(to_inbox(client), log, rate, ended)
            return
        acknowledged = log.with_suffix(".acknowledged")
        arrived = int(acknowledged.read_text()) if acknowledged.exists() else 0
        go_on(to_inbox(client, acknowledged), log, rate, ended, arrived)


if __name__ == "__main__":
    main()
