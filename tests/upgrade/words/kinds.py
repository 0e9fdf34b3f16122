"""A flow with every kind of stage, source and sink."""

from __future__ import annotations

from typing import Any

import millstream as ms


def add(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total += row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


def same(frame: Any) -> Any:
    return frame


COLUMNS = "k string, v long, at timestamp"
flow = ms.Flow("kinds")
events = flow.source("events", ms.inbox(COLUMNS), time="at", lateness="3 s", key="k", partitions=2)
recorded = flow.source("recorded", ms.files("recorded/*.jsonl", COLUMNS), time="at")
ticks = flow.source("ticks", ms.rate(10, rows=100), time="at")
played = flow.source("played", ms.replay("played.parquet", COLUMNS, speed=2), time="at")

rows = events.sql("some", "SELECT k, v, at FROM events WHERE v > 0")
rows.sink("rows", ms.parquet("out/rows"))
both = rows.merge("both", recorded, played)
both.apply("same", same, COLUMNS).sink("both", ms.jsonl("out/both"))
ticks.sink("ticks", ms.csv("out/ticks"))
rows.window("sliding", every="5 s", size="15 s", by="k", n="count(*)").sink("sliding", ms.console())
rows.window("sessions", gap="2 s", longest="1 min", n="count(*)").sink("sessions", ms.memory())
other = rows.sql("other", "SELECT k, v AS other, at FROM some")
rows.join("joined", other, on="k", within="5 s", how="left").sink(
    "joined", ms.postgres("postgresql://user:secret@host/database", table="joined")
)
rows.join("looked_up", ms.table("names.csv", schema="k string, name string"), on="k").sink(
    "looked_up", ms.outbox("tcp://10.0.0.1:1", "other.events")
)
once = rows.distinct("once", by=["k", "v"], within="30 s")
once.fold("summed", add, initial=0, output="k string, at timestamp, total long", by="k").sink(
    "totals", ms.jsonl("out/totals")
)
rows.distinct("keyed", by="upper(k) as code", within="30 s").sink("keyed", ms.memory())
rise = ms.Pattern().begin("a", "v < 50").followed_by("b", "v > a.v + 20").within("6 s")
rows.match("risen", rise, emit="k, a.v as low, b.v as high").sink("risen", ms.jsonl("out/risen"))
rows.sql(
    "recognized",
    """
    SELECT * FROM some MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY at MEASURES A.v AS low, LAST(B.v) AS high
        PATTERN (A B+) WITHIN INTERVAL '6' SECOND DEFINE B AS B.v > A.v
    )
    """,
).sink("recognized", ms.jsonl("out/recognized"))
rows.action("doubled", ["./double", "-x"], input="v", output="twice long", env={"A": "b"}).sink(
    "acted", ms.jsonl("out/acted")
)
again = flow.reads("round", COLUMNS, time="at")
rows.merge("around", again).sql("less", "SELECT k, v - 1 AS v, at FROM around WHERE v > 1").journal(
    "round", partitions=2, key="k"
)
