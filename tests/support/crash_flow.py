"""The flow of the crash test: two groups with a journal between them, and every kind of state."""

from __future__ import annotations

from typing import Any

import millstream as ms


def begun() -> dict[str, Any]:
    """Return a state that is too large for a manifest: it is kept in files."""
    return {"total": 0, "ballast": "." * 200_000}


def counted(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    state["total"] += row["v"]
    return state, {"k": row["k"], "at": row["at"], "total": state["total"]}


flow = ms.Flow("crash")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=3600),
    time="at",
    key="k",
    partitions=2,
)
totals = events.fold("totals", counted, initial=begun, output="k string, at timestamp, total long")
minutes = totals.journal("running", partitions=2, key="k").window(
    "minutes", every="10 minutes", by="k", n="count(*)", top="max(total)"
)
minutes.sink("minutes", ms.parquet("minutes"))
minutes.sink("lines", ms.jsonl("lines"))
