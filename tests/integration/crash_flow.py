"""The flow of the crash test: two groups with a journal between them, and every kind of state."""

from __future__ import annotations

from typing import Any

import millstream as ms


def counted(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return state + row["v"], {"k": row["k"], "at": row["at"], "total": state + row["v"]}


flow = ms.Flow("crash")
events = flow.source(
    "events",
    ms.replay("events.parquet", "k string, v long, at timestamp", speed=3600),
    time="at",
    key="k",
    partitions=2,
)
totals = events.fold("totals", counted, initial=0, output="k string, at timestamp, total long")
minutes = totals.journal("running", partitions=2, key="k").window(
    "minutes", every="10 minutes", by="k", n="count(*)", top="max(total)"
)
minutes.sink("minutes", ms.parquet("minutes"))
minutes.sink("lines", ms.jsonl("lines"))
