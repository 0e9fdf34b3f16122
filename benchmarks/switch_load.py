"""A steady load, from a process of its own: `python -m benchmarks.switch_load (inbox ADDRESS | files FOLDER) LOG RATE`.

Every quarter of a second the rows of a tick are made and sent, with the moment at which they are
made as their event time. What a tick holds follows from its number, so that the log, a line with
number and moment for each, tells what every result has to be. It ends, with all sent, when its
standard input does.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
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
    rows = round(rate * TICK_S)
    ticks = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    found: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    for tick, at_ms in ticks:
        amount, start = amounts(tick, rows), at_ms // 1000 // window_s * window_s
        for key in range(KEYS):
            mine = amount[key::KEYS]
            found[str(_NAMES[key]), start] += (
                len(mine),
                mine[mine >= OLD].sum(),
                mine[mine >= NEW].sum(),
            )
    last = ticks[-1][1] / 1000
    return {
        (key, start): (int(one[0]), int(one[1]), int(one[2]))
        for (key, start), one in found.items()
        if start + window_s <= last
    }


def to_files(folder: Path) -> Send:
    """Write each tick as a CSV file, which is there whole or not at all."""

    def send(tick: int, rows: pa.Table) -> None:
        part, whole = folder / f".{tick:06}.part", folder / f"{tick:06}.csv"
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        pa.csv.write_csv(rows, part, options)
        part.rename(whole)

    return send


def to_inbox(client: ms.Client) -> Send:
    """Send each tick to the inbox; what is not acknowledged is sent again."""

    def send(_: int, rows: pa.Table) -> None:
        moments = pa.compute.cast(rows["at"], pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
        client.send_nowait("load.events", rows.set_column(2, "at", moments))

    return send


def produce(send: Send, log: Path, rate: int, ended: threading.Event) -> None:
    begin, rows, tick = time.monotonic(), round(rate * TICK_S), 0
    with log.open("w") as told:
        while not ended.wait(max(0.0, begin + tick * TICK_S - time.monotonic())):
            at_ms = time.time_ns() // 1_000_000
            send(tick, table(tick, at_ms, rows))
            told.write(f"{tick} {at_ms}\n")
            tick += 1


def main() -> None:
    kind, where, log, rate = sys.argv[1:5]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with contextlib.ExitStack() as stack:
        if kind == "inbox":
            send = to_inbox(stack.enter_context(ms.connect(where, timeout=300)))
        else:
            send = to_files(Path(where))
        produce(send, Path(log), int(rate), ended)


if __name__ == "__main__":
    main()
