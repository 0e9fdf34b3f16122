"""A flow with every kind of stage. Leave it as it is: what it means is recorded beside it."""

import millstream as ms

LIMIT = 60.0


def fast(frame):
    return frame.where(f"v < {LIMIT}")


def total(state, row):
    state["n"] += 1
    return state, {"k": row["k"], "n": state["n"], "at": row["at"]}


def rising(event, so_far):
    return event["v"] > LIMIT


flow = ms.Flow("kinds")
rows = flow.source(
    "rows",
    ms.inbox("k string, v double, at timestamp"),
    time="at",
    key="k",
    lateness="5 min",
    partitions=2,
    keep_for="7 d",
)
other = flow.source(
    "other", ms.files("in/*.csv", "k string, w int, at timestamp", sep=";"), time="at"
)
ticks = flow.source("ticks", ms.rate(2.5, rows=10), time="at")
old = flow.source("old", ms.replay("old.parquet", "k string, at timestamp", speed=2), time="at")
back = flow.reads("kept", "k string, v double, at timestamp", time="at", name="back")

rows.apply("applied", fast, schema="k string, v double, at timestamp").sink(
    "applied", ms.parquet("out/applied")
)
rows.sql("asked", "select k, v + 1 as v, at from rows where v > 1").sink("asked", ms.csv("out/c"))
rows.window("tumbling", every="1 h", n="count(*)", most="max(v)").sink("tumbling", ms.console())
rows.window("sliding", every="1 min", size="1 h", by={"u": "upper(k)"}, n="count(*)").sink(
    "sliding", ms.postgres("postgresql://me:secret@h/d", table="t")
)
rows.window("session", gap="30 min", by=["k"], n="count(*)").sink("session", ms.jsonl("out/s"))
rows.window("short", gap="30 min", longest="2 h", by=[], n="count(*)").sink("short", ms.memory())
rows.merge("all", back).distinct("once", by="k", within="1 d").journal(
    "kept", partitions=3, keep_bytes=1000
)
rows.join("joined", other, on="k", within="10 min", how="left").sink("joined", ms.memory())
rows.join("inner", other, on="k", within="10 min").sink("inner", ms.memory())
rows.join("named", ms.table("names.csv", schema="k string, name string"), on="k").sink(
    "named", ms.outbox("tcp://h:1", "b.rows")
)
rows.fold("folded", total, initial={"n": 0}, output="k string, n long, at timestamp").sink(
    "folded", ms.memory()
)
rows.fold("arriving", total, initial=dict, output="k string, n long, at timestamp", order="arrival")
worse = ms.Pattern().begin("a", "v > 1").followed_by("b", "v > a.v").within("2 hours")
rows.match("matched", worse, emit="k, a.v as v").sink("matched", ms.memory())
asked = ms.Pattern().begin("a", rising).next("b", "v > a.v").singleton()
rows.match("functions", asked, by=[], shards=4).sink("functions", ms.memory())
rows.sql(
    "recognized",
    "SELECT * FROM rows MATCH_RECOGNIZE (PARTITION BY k ORDER BY at MEASURES LAST(b.v) AS v "
    "PATTERN (a b+) WITHIN INTERVAL '1' HOUR DEFINE b AS v > PREV(v))",
).sink("recognized", ms.memory())
rows.action(
    "scored",
    ["./score", "-v"],
    output="score double",
    input="k, v",
    env={"A": "b"},
    files=["m.bin"],
).window("after", every="10 min", n="avg(score)").sink("scored", ms.memory())
rows.action("plain", ["cat"], output="v double", format="msgpack", conn_whitelist=[]).sink(
    "plain", ms.memory()
)
ticks.sql("ticking", "select value, at from ticks").sink("ticks", ms.memory())
old.sink("old", ms.memory())
