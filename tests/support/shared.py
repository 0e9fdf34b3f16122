"""Flows whose keys are shared out between two versions while events come in, and their lives.

python -m support.shared FOLDER SEED SHARE...     lives until version 2 has had these shares, and the flow has ended
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.spark.book import Book
from millstream.spark.run import FlowRun
from millstream.switch.cut import Owners
from support.switched import DDL, END, MOST_TURNS, SECOND, START, WINDOWED, options, pause, perform, piece

#: Enough for every share to have some.
KEYS = 24
MARKED = {**WINDOWED, "made": "max(made)"}


def rising(version: str) -> ms.Flow:
    """Return a version of a flow whose results say which version made them, and are the same otherwise.

    Its windows go to a sink, and to a journal that a group reads which does not change.
    """
    rows = _rows(version)
    rows.window("sliding", every="5 s", size="15 s", **MARKED).sink("sliding", ms.jsonl("sliding"))
    noted = rows.window("tumbling", every="5 s", **MARKED).journal("noted", partitions=2, key="k")
    noted.window("kept", every="10 s", by="k", n="sum(n)", made="max(made)", also="min(made)").sink(
        "kept", ms.jsonl("kept")
    )
    return rows.flow


RISING = ("sliding", "kept")


def chained(version: str) -> ms.Flow:
    """Return a version of a flow like `rising`, with a journal between two changed groups and rows that go straight to a sink."""
    rows = _rows(version)
    rows.sink("rows", ms.jsonl("rows"))
    inside = rows.window("nested", every="5 s", size="15 s", **MARKED).journal("inside", partitions=2, key="k")
    some = inside.sql("last", f"SELECT *, '{version}' AS maker FROM inside")
    some.window("outer", every="10 s", by="k", n="sum(n)", made="max(maker)", also="min(made)").sink(
        "outer", ms.jsonl("outer")
    )
    return rows.flow


CHAINED = ("rows", "outer")


def _rows(version: str) -> ms.Stream:
    flow = ms.Flow("switched", window="10 s")
    events = flow.source("events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day")
    return events.sql("some", f"SELECT *, '{version}' AS made FROM events")


BUILDS = {"rising": rising, "chained": chained}


def lived(spark: Any, root: Path, name: str, seed: int, shares: list[float], *, until: float | None = None) -> FlowRun:
    """Let a flow live: from where it was, until version 2 has had these shares and the flow has ended.

    Or until it has a share: then the driver stops in the middle.
    """
    build = BUILDS[name]
    run = FlowRun(spark, build("1"), options(root), versions=build, version="1")
    run.start()
    try:
        turns = root / "turns"
        turn = int(turns.read_text()) if turns.exists() else 0
        while not over(run):
            assert turn < MOST_TURNS, run.history()
            perform(run, piece(seed, turn, KEYS), turn)
            turn += 1
            turns.write_text(str(turn))
            if until is not None and _settled(run, turn) == until:
                return run
            _wish(run, build("2"), shares, turn)
            pause(run, settle=turn < 2)
        perform(run, END, turn)
        assert run.wait(timeout=900), run.history()
    finally:
        run.stop()
    return run


def over(run: FlowRun) -> bool:
    """Tell whether one version has left."""
    return run.switching() is None and any(entry.phase == "retiring" for entry in run.history())


def _settled(run: FlowRun, turn: int) -> float | None:
    """Return the share that version 2 has had for a while, in event time; 0 if it has none, None before that."""
    status = run.switching()
    if status is None:
        return 0.0 if turn > 2 else None
    passed = datetime.fromtimestamp((START + turn * 3 * SECOND) / SECOND, tz=status.cut.tzinfo) if status.cut else None
    long = passed is not None and status.cut is not None and passed > status.cut + timedelta(seconds=20)
    return status.share if status.phase == "sharing" and long else None


def _wish(run: FlowRun, new: ms.Flow, shares: list[float], turn: int) -> None:
    """Ask for the next share if it is time; one that was given up is asked for again."""
    has = _settled(run, turn)
    if has is None or over(run):
        return
    if has == 0.0:
        run.switch(new, "2", share=shares[0])
    else:
        run.share(shares[shares.index(has) + 1])


def plain(root: Path, sinks: tuple[str, ...]) -> dict[str, Counter[str]]:
    """Return the results without who made them."""
    return {sink: Counter(_unmarked(row) for row in results(root, sink)) for sink in sinks}


def _unmarked(row: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in row.items() if name not in ("made", "also")}, sort_keys=True)


def results(root: Path, sink: str) -> Iterator[dict[str, Any]]:
    for file in (root / sink).glob("*.jsonl"):
        yield from map(json.loads, file.read_text().splitlines())


def owners(run: FlowRun) -> Owners:
    """Return who owns what, by the record."""
    record = Book(run.folder / "switch").read()
    assert record is not None
    return record.owners


def start_us(row: dict[str, Any]) -> int:
    """Return when a result starts."""
    return round(datetime.fromisoformat(row.get("window_start", row.get("at"))).timestamp() * SECOND)


def main() -> None:
    from millstream.spark.session import session

    root, seed, *shares = sys.argv[1:]
    spark = session("shared", master="local[2]", log=Path(root) / "spark.log")
    lived(spark, Path(root), "chained", int(seed), [float(share) for share in shares])
    spark.stop()


if __name__ == "__main__":
    main()
