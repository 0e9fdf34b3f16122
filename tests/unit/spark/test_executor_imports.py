"""What executors import: few packages, so that they start quickly and need little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.spark import daemon

#: Where the work is that drivers send to executors.
WORK = (
    *daemon.LOADED,
    "millstream.spark.served.borrowed",
    "millstream.spark.served.client",
    "millstream.spark.served.probe",
    "millstream.spark.stages.action_work",
    "millstream.connectors.outbox.target",
)
#: Spark's stateful Python operators need pandas; all others do without.
STATEFUL = (
    "millstream.spark.stages.keyless",
    "millstream.spark.stages.fold",
    "millstream.spark.stages.distinct",
)
#: What drivers read and check flows with, and what only some flows use.
UNWANTED = (
    *("sqlglot", "psycopg", "typer", "rich", "yaml", "httpx", "starlette"),
    *("numba", "confluent_kafka", "obstore"),
)


@pytest.mark.parametrize(
    ("work", "unwanted"), [(WORK, (*UNWANTED, "pandas")), (STATEFUL, UNWANTED)]
)
def test_executors_import_nothing_that_only_drivers_need(
    work: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({unwanted!r}))\n"
        f"for name in {work!r}: importlib.import_module(name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
