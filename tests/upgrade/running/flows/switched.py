"""A flow whose versions give the same results: windows between two groups, and state that is handed over."""

import millstream as ms

VERSION = 1


def add(total, row):
    total += row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


flow = ms.Flow("switched", window="10 s")
events = flow.source(
    "events",
    ms.inbox("k string, v long, at timestamp"),
    time="at",
    lateness="3 s",
    key="k",
    partitions=2,
    idle="1 day",
)
rows = events.sql("some", f"SELECT * FROM events WHERE v > -{VERSION}")

windows = rows.window("windows", every="5 s", n="count(*)", total="sum(v)")
windows.journal("noted", partitions=2, key="k").window(
    "kept", every="10 s", by="k", n="sum(n)"
).sink("kept", ms.jsonl("out/kept"))
rows.fold("summed", add, initial=0, output="k string, at timestamp, total long", by="k").sink(
    "totals", ms.jsonl("out/totals")
)
