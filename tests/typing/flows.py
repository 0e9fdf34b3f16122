"""Read by mypy, never run: the types that users of the package see."""

from datetime import timedelta
from typing import Any, assert_type

import millstream as ms
from millstream.connectors.files import Files, Replay
from millstream.connectors.inbox import Inbox
from millstream.connectors.outbox import Outbox
from millstream.connectors.postgres import Postgres
from millstream.connectors.rate import Rate
from millstream.flow.schema import Schema
from millstream.flow.targets import Table
from millstream.plan.groups import Group, Plan, plan

flow = ms.Flow("flights", window=timedelta(hours=1))
assert_type(ms.inbox("a int"), Inbox)
assert_type(ms.files("x.csv", "a int", follow=True, header=True), Files)
assert_type(ms.rate(2.5, rows=3), Rate)
assert_type(ms.replay("x.csv", "a int", speed=60), Replay)
assert_type(ms.table("x.csv"), Table)
assert_type(ms.postgres("postgresql://h/d", table="t"), Postgres)
assert_type(ms.outbox("tcp://h:1", "b.rows"), Outbox)

rows = flow.source("rows", ms.inbox("k string, at timestamp"), time="at", lateness="1 h", key="k")
assert_type(rows, ms.Stream)
assert_type(rows.schema, Schema | None)
assert_type(rows.columns, tuple[str, ...] | None)
assert_type(rows.lateness, timedelta)
assert_type(rows.window("w", every="1 h", by={"k": "upper(k)"}, n="count(*)"), ms.Stream)
assert_type(rows.window("s", gap=timedelta(minutes=5), by=["k"], n="count(*)"), ms.Stream)
assert_type(flow.merge("m", rows, rows), ms.Stream)
assert_type(rows.join("j", ms.table("t.csv"), on=["k"], how="left"), ms.Stream)


def step(state: int, row: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
    return state + 1, None


assert_type(rows.fold("f", step, initial=0, output="at timestamp", order="arrival"), ms.Stream)
rows.fold("g", step, initial=0, output="at timestamp", order="random")  # type: ignore[arg-type]
rows.window("v", every=3600, n="count(*)")  # type: ignore[arg-type]
rows.sink("out", "out/path")  # type: ignore[arg-type]
rows.time = "other"  # type: ignore[misc]

planned = plan(flow)
assert_type(planned, Plan)
assert_type(planned.group("out"), Group)
assert_type(ms.load("flow.py"), ms.Flow)
