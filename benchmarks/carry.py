"""A switch that carries the state of a fold over: how long results pause, for a number of keys.

    python -m benchmarks.carry
    python -m benchmarks.carry --keys 1000000

A flow fills the state of all keys, and is switched to a version whose fold has another function, or
whose states get another column. The pause begins when the old version has emitted its last result, and ends
with the first result of the new one. Most of it is the copy of the state; the rest is a batch.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.common import folder, save, show

import millstream as ms
from millstream.journal import journal_at
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import end_session, session
from millstream.spark.switching import carry

SCHEMA = pa.schema([("key", pa.string()), ("v", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
OUTPUT = "key string, at timestamp, events long"
FILLED = 250_000
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
CHANGES = ("function", "column")


def counting(by: int) -> Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]]:
    def counted(state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        state["events"] += by
        result = {"key": row["key"], "at": row["at"], "events": state["events"]}
        return state, result if state["events"] > 1 else None

    return counted


def flow(version: int, change: str) -> ms.Flow:
    made = ms.Flow("kept", switch_every="10 s")
    source = made.source(
        "events", ms.inbox("key string, v double, at timestamp"), time="at", key="key"
    )
    initial = {"events": 0}
    if version > 1 and change == "column":
        initial["more"] = 0
    source.fold("counts", counting(version), initial=initial, output=OUTPUT).sink(
        "out", ms.memory()
    )
    return made


def send(run: FlowRun, numbers: np.ndarray[Any, Any], at: int) -> None:
    with journal_at(run.journal("events")).writer(timeout=60) as writer:
        for begin in range(0, len(numbers), FILLED):
            some = numbers[begin : begin + FILLED]
            columns = [
                pa.array([f"key-{number:09d}" for number in some]),
                pa.array(some.astype("float64")),
                pa.array(np.full(len(some), at), pa.int64()).cast(SCHEMA.field("at").type),
            ]
            writer.append(f"bench-{at}", begin, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def until(run: FlowRun, true: Callable[[], bool]) -> None:
    while not true():
        run.poll()
        time.sleep(0.02)


def cut_of(run: FlowRun) -> int | None:
    found = [re.match(r"cut at (\d+) us", one.text) for one in run.history()]
    return next((int(one[1]) for one in found if one), None)


def measured(spark: Any, data: Path, keys: int, change: str) -> dict[str, float]:
    options = Options(data, data, rows_per_batch=FILLED, hosting=False)
    run = FlowRun(spark, flow(1, change), options, version="1")
    moments: list[float] = []
    own = carry.advance

    def advance(*given: Any) -> bool:
        moments.append(time.monotonic())
        done = own(*given)
        moments.append(time.monotonic())
        return done

    carry.advance = advance
    run.start()
    try:
        send(run, np.arange(keys), START)
        send(run, np.arange(1), START + 5 * SECOND)
        until(run, run.caught_up)
        run.switch(flow(2, change), "2")
        until(run, lambda: cut_of(run) is not None)
        cut = cut_of(run) or 0
        send(run, np.arange(0, keys, 100), cut + SECOND)
        send(run, np.arange(1), cut + 60 * SECOND)
        until(run, lambda: len(run.memory["out"].rows()) > 1)
        ended = time.monotonic()
        until(run, lambda: run.switching() is None)
        events = {row["events"] for row in run.memory["out"].rows()}
    finally:
        carry.advance = own
        run.stop()
    assert {2, 3, 4} <= events <= {2, 3, 4, 6}, events
    return {
        "carried_s": round(moments[-1] - moments[0], 2),
        "pause_s": round(ended - moments[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="10000,1000000")
    given = parser.parse_args()
    spark, sizes = session("carry"), [int(one) for one in given.keys.split(",")]
    found: dict[str, dict[str, float]] = {}
    try:
        with folder("carry") as place:
            for keys in sizes:
                for change in CHANGES:
                    name = f"{keys:,} keys, another {change}"
                    found[name] = measured(spark, place / f"{keys}-{change}", keys, change)
    finally:
        end_session(spark)
    rows = [(name, *numbers.values()) for name, numbers in found.items()]
    show("a switch that carries state over", ("state", "carried s", "pause s"), rows)
    save("carry", {"keys": sizes}, found)


if __name__ == "__main__":
    main()
