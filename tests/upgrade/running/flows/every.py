"""A flow with every kind of stage that keeps state, and every kind of file that it can write."""

import millstream as ms


def add(total, row):
    total += row["v"]
    return total, {"k": row["k"], "at": row["at"], "total": total}


flow = ms.Flow("every", window="10 s")
events = flow.source(
    "events",
    ms.inbox("k string, v long, at timestamp"),
    time="at",
    lateness="3 s",
    key="k",
    partitions=2,
    idle="1 day",
)
rows = events.sql("some", "SELECT * FROM events WHERE v >= 0")

noted = rows.window("tumbling", every="5 s", n="count(*)", total="sum(v)").journal(
    "noted", partitions=2, key="k"
)
noted.window("kept", every="10 s", by="k", n="sum(n)").sink("kept", ms.jsonl("out/kept"))

rows.window("sessions", gap="2 s", n="count(*)").sink("sessions", ms.parquet("out/sessions"))

even = rows.sql("even", "SELECT k, v, at FROM some WHERE v % 2 = 0")
odd = rows.sql("odd", "SELECT k, v AS other, at FROM some WHERE v % 2 = 1")
even.join("joined", odd, on="k", within="5 s", how="left").sink("joined", ms.csv("out/joined"))

once = rows.distinct("once", by=["k", "v"], within="30 s")
once.fold("summed", add, initial=0, output="k string, at timestamp, total long", by="k").sink(
    "totals", ms.jsonl("out/totals")
)

rise = ms.Pattern().begin("a", "v < 50").followed_by("b", "v > a.v + 20").within("6 s")
rows.match("risen", rise, emit="k, a.v as low, b.v as high").sink("risen", ms.jsonl("out/risen"))

rows.action("doubled", ["./double"], input="v", output="twice long").sink(
    "acted", ms.jsonl("out/acted")
)
