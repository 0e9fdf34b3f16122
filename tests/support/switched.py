"""Flows whose versions differ and give the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import millstream as ms
from support.actions import PYTHON, SDK
from support.recording import DDL, TIMELESS_DDL

WINDOWED: Final = {"n": "count(*)", "total": "sum(v)"}
Build = Callable[[str], ms.Flow]


def begun() -> tuple[ms.Flow, ms.Stream]:
    """Return a flow, and what comes into it."""
    flow = ms.Flow("switched", window="10 s")
    events = flow.source(
        "events", ms.inbox(DDL), time="at", lateness="3 s", key="k", partitions=3, idle="1 day"
    )
    return flow, events


def tiny(version: str) -> ms.Flow:
    """Return a version of a flow that hands rows on."""
    flow, events = begun()
    events.sql("some", f"SELECT k, v, at FROM events WHERE v > -{version}").sink(
        "rows", ms.jsonl("rows")
    )
    return flow


def small(version: str) -> ms.Flow:
    """Return a version of a flow in which two changed groups have a journal between them, one hands its state over, and one is kept."""
    flow, events = begun()
    # All values are above it.
    rows = events.sql("some", f"SELECT * FROM events WHERE v > -{version}")
    rows.sink("rows", ms.jsonl("rows"))
    windows = rows.window("windows", every="5 s", size="15 s", **WINDOWED).journal(
        "noted", partitions=2, key="k"
    )
    most = windows.sql(
        "counted", f"SELECT k, n, total, window_time FROM noted WHERE n > -{version}"
    )
    most.window("most", every="10 s", by="k", most="max(n)").sink("most", ms.jsonl("most"))
    totals = rows.fold(
        "summed", adder(), initial=0, output="k string, at timestamp, total long", by="k"
    )
    totals.sink("totals", ms.parquet("totals"))
    events.window("kept", every="10 s", **WINDOWED).sink("kept", ms.jsonl("kept"))
    return flow


SMALL: Final = ("rows", "most", "totals", "kept")


def adder() -> Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]:
    """Return a function that is made here: Spark's workers cannot import this file."""

    def summed(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return total + row["v"], {"k": row["k"], "at": row["at"], "total": total + row["v"]}

    return summed


TWICE: Final = f"""#!{PYTHON} -S
import json, sys
sys.path.insert(0, {str(SDK / "python")!r})
import millstream_action as action
while (m := action.read_message()) is not None:
    action.write_message(json.dumps({{"twice": json.loads(m)["v"] * 2}}).encode())
"""


def large(program: Path) -> Build:
    """Return what makes versions of a flow with all kinds of stages."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(TWICE)
    program.chmod(0o755)

    def build(version: str) -> ms.Flow:
        flow, events = begun()
        rows = events.sql("some", f"SELECT * FROM events WHERE v > -{version}")
        rows.action("doubled", [str(program)], output="twice long").sink("acted", ms.jsonl("acted"))
        noted = rows.window("tumbling", every="5 s", **WINDOWED).journal(
            "noted", partitions=2, key="k"
        )
        # It does not change, and reads what both versions write.
        noted.window("kept", every="10 s", by="k", n="sum(n)").sink("kept", ms.jsonl("kept"))
        sliding = rows.window("sliding", every="4 s", size="12 s", **WINDOWED)
        # The start is lost here: the cut goes by the end.
        thin = sliding.sql("thin", "SELECT k, n, total, window_time FROM sliding WHERE n > 0")
        thin.window("outer", every="10 s", by="k", n="sum(n)").sink("outer", ms.jsonl("outer"))
        # New in the second version, behind what lets windows from both sides of a cut out at once.
        spans = rows.window("spans", every="5 s", **WINDOWED)
        if version != "1":
            spans = spans.distinct("once_more", by=["k", "window_time"], within="1 s")
        spans.sink("singly", ms.parquet("singly"))
        rows.window("sessions", gap="2 s", longest="12 s", **WINDOWED).sink(
            "sessions", ms.jsonl("sessions")
        )
        left = rows.sql("left", "SELECT k, v, at FROM some WHERE v % 2 = 0")
        right = rows.sql("right", "SELECT k, v AS other, at FROM some WHERE v % 2 = 1")
        left.join("joined", right, on="k", within="5 s", how="left").sink(
            "joined", ms.jsonl("joined")
        )
        rise = ms.Pattern().begin("a", "v < 50").followed_by("b", "v > a.v + 20").within("6 s")
        rows.match("risen", rise, emit="k, a.v as low, b.v as high").sink(
            "risen", ms.jsonl("risen")
        )
        # These keep what no time bounds: their state is handed over.
        once = rows.distinct("once", by=["k", "v"], within="30 s")
        totals = once.fold(
            "summed", adder(), initial=0, output="k string, at timestamp, total long", by="k"
        )
        totals.sink("totals", ms.parquet("totals"))
        skipping = rise.skip_past_last()
        rows.match("apart", skipping, emit="k, a.v as low, b.v as high").sink(
            "apart", ms.jsonl("apart")
        )
        # Nobody knows how long these last, and they do not change themselves.
        rows.window("endless", gap="2 s", **WINDOWED).sink("endless", ms.jsonl("endless"))
        timeless = flow.source("timeless", ms.inbox(TIMELESS_DDL))
        timeless.sql("few", f"SELECT * FROM timeless WHERE v > -{version}").sink(
            "timeless", ms.jsonl("timeless")
        )
        events.window("sized", every=f"{size_of(version)} s", **WINDOWED).sink(
            "sized", ms.jsonl("sized")
        )
        return flow

    return build


def size_of(version: str) -> int:
    """Return the seconds of the windows called "sized" of `large`: each version has another size than the one before."""
    return 10 if int(version) % 2 == 0 else 5


#: Those whose results are the same in all versions.
LARGE: Final = (
    "acted",
    "kept",
    "outer",
    "singly",
    "sessions",
    "joined",
    "risen",
    "totals",
    "apart",
    "endless",
    "timeless",
)
#: The groups of `large` that each version has its own of, those that go over, and those that stay.
PARTED: Final = ("acted", "joined", "noted", "outer", "risen", "sessions", "sized")
#: The group that is parted by the first switch, and goes over in others.
ADDED: Final = "singly@2"
MOVED: Final = ("totals", "apart", "endless", "timeless")
