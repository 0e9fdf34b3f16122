"""Flows whose keys are shared out between two versions while events come in."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import millstream as ms
from millstream.spark.flow_run import FlowRun
from millstream.spark.switching.switch_log import SwitchLog
from millstream.switch.cut import WHOLE, Owners, parts
from millstream.switch.request import SwitchRequest
from support.lives import LIMIT, written
from support.recording import SECOND, START, TURN
from support.switched import WINDOWED, Build, begun

#: Enough for every share to have some.
KEYS: Final = 24
MARKED: Final = {**WINDOWED, "made": "max(made)"}


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


def chained(version: str) -> ms.Flow:
    """Return a version of a flow like `rising`, with a journal between two changed groups and rows that go straight to a sink."""
    rows = _rows(version)
    rows.sink("rows", ms.jsonl("rows"))
    inside = rows.window("nested", every="5 s", size="15 s", **MARKED).journal(
        "inside", partitions=2, key="k"
    )
    some = inside.sql("last", f"SELECT *, '{version}' AS maker FROM inside")
    some.window(
        "outer", every="10 s", by="k", n="sum(n)", made="max(maker)", also="min(made)"
    ).sink("outer", ms.jsonl("outer"))
    return rows.flow


def _rows(version: str) -> ms.Stream:
    _, events = begun()
    return events.sql("some", f"SELECT *, '{version}' AS made FROM events")


@dataclass(frozen=True, slots=True)
class Shares:
    """Version 2 gets these shares, one after the other, until one version has all keys."""

    shares: tuple[float, ...]

    def ask(self, run: FlowRun, build: Build, turns: int) -> None:
        has = settled(run, turns)
        if has is None or self.fulfilled(run, turns):
            return
        if has == 0.0:
            run.switch(build("2"), "2", SwitchRequest(share=parts(self.shares[0]), timeout=LIMIT))
        elif has != self.shares[-1]:
            wanted = parts(self.shares[self.shares.index(has) + 1])
            run.share(SwitchRequest(share=wanted or None, timeout=LIMIT))

    def fulfilled(self, run: FlowRun, turns: int) -> bool:
        return run.switching() is None and any(entry.phase == "retiring" for entry in run.history())


def settled(run: FlowRun, turns: int) -> float | None:
    """Return the share that version 2 has had for a while, in event time; 0 if it has none, None before that."""
    status = run.switching()
    if status is None:
        return 0.0 if turns > 1 else None
    if status.phase != "sharing" or status.cut_us is None or status.share is None:
        return None
    now_us = (START + turns * TURN) * 1_000_000 // SECOND
    return status.share / WHOLE if now_us > status.cut_us + 20_000_000 else None


def unmarked(root: Path, sinks: tuple[str, ...]) -> dict[str, Counter[str]]:
    """Return the results without who made them."""
    return {sink: Counter(map(_unmarked, written(root, sink))) for sink in sinks}


def _unmarked(row: dict[str, Any]) -> str:
    return json.dumps(
        {name: value for name, value in row.items() if name not in ("made", "also")}, sort_keys=True
    )


def owners(run: FlowRun) -> Owners:
    """Return who owns what, by the record."""
    record = SwitchLog(run.folder / "switch").read()
    assert record is not None
    return record.owners


def start_us(row: dict[str, Any]) -> int:
    """Return when a result starts."""
    return round(
        datetime.fromisoformat(row.get("window_start", row.get("at"))).timestamp() * SECOND
    )
