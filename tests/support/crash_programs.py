"""Eight small programs as one flow, and a window with sinks in files.

Each program ends in a journal, where the rows of a key are in order. Tests copy this file beside
two recordings: `numbers` has 1, 2, 3 ... for each key, `others` has -1, -2, -3 ...
"""

from __future__ import annotations

from typing import Any

import millstream as ms

Row = dict[str, Any]
DDL = "k string, n long, at timestamp"


def begun() -> dict[str, Any]:
    """Return a state that is too large for a manifest: it is kept in files."""
    return {"seen": 0, "ballast": "." * 200_000}


def count(state: dict[str, Any], row: Row) -> tuple[dict[str, Any], Row]:
    state["seen"] += 1
    return state, row | {"seen": state["seen"]}


def add(total: int, row: Row) -> tuple[int, Row]:
    total += row["seen"]
    return total, {"k": row["k"], "n": row["n"], "at": row["at"], "total": total}


flow = ms.Flow("crash")
numbers, others = (
    flow.source(
        name,
        ms.replay(f"{name}.parquet", DDL, speed=3600),
        time="at",
        key="k",
        partitions=3,
    )
    for name in ("numbers", "others")
)

# As they come; each three times; with their running count; with the running sum of that.
numbers.journal("passed", partitions=3)
threefold = "SELECT k, n, copy, at FROM numbers LATERAL VIEW explode(array(0, 1, 2)) AS copy"
numbers.sql("threefold", threefold).journal("copied", partitions=3)
counts = numbers.fold("counts", count, initial=begun, output=f"{DDL}, seen long")
counted = counts.journal("counted", partitions=3)
counted.fold("sums", add, initial=0, output=f"{DDL}, total long").journal("chained", partitions=3)

# Two streams as one; one stream by another key.
numbers.merge("both", others).journal("merged", partitions=3)
digits = numbers.sql("digits", "SELECT n % 10 AS digit, n, at FROM numbers")
digits.journal("regrouped", key="digit", partitions=3)

# Each number with its opposite, kept in RocksDB until they cannot meet any more.
opposites = others.sql("opposites", "SELECT k, -n AS n, n AS other, at FROM others")
numbers.join("pairs", opposites, on=["k", "n"], within="10 minutes").journal("paired", partitions=3)

# A cycle: odd numbers come in, each becomes the next one, and even ones go round again.
rounds = flow.reads("rounds", DDL, time="at", name="back")
odd = numbers.sql("odd", "SELECT * FROM numbers WHERE n % 2 = 1")
even = rounds.sql("even", "SELECT * FROM back WHERE n % 2 = 0")
following = odd.merge("going", even).sql("following", "SELECT k, n + 1 AS n, at FROM going")
following.journal("rounds", key="k", partitions=3)

windows = counted.window("windows", every="10 minutes", by="k", n="count(*)", top="max(seen)")
windows.sink("tables", ms.parquet("tables"))
windows.sink("lines", ms.jsonl("lines"))
