"""Which store keeps the state of a group, and where Spark may run a task twice."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.spark.run.stores import keeps_many_rows
from millstream.spark.session.session import tries_tasks_again


@pytest.mark.parametrize(
    ("within", "many"), [("0 seconds", False), ("10 seconds", False), ("10.001 seconds", True)]
)
def test_a_join_keeps_many_rows_if_it_keeps_them_for_long(within: str, many: bool) -> None:
    flow = ms.Flow("pairs")
    left, right = (
        flow.source(name, ms.inbox("k string, at timestamp"), time="at")
        for name in ("left", "right")
    )
    left.join("pairs", right, on="k", within=within).sink("out", ms.memory())
    left.window("hourly", every="1 hour", by="k", n="count(*)").sink("hours", ms.memory())
    assert keeps_many_rows(flow.stages["pairs"]) == many
    assert not keeps_many_rows(flow.stages["hourly"])


@pytest.mark.parametrize(
    ("master", "again"),
    [
        ("local", False),
        ("local[*]", False),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
    ],
)
def test_only_one_machine_runs_a_task_once(master: str, again: bool) -> None:
    assert tries_tasks_again(master) == again
