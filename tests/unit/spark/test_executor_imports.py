"""What executors and drivers import: few packages, so that they start quickly and need little."""

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
    _imports_without(unwanted, work)


def test_drivers_import_neither_pandas_nor_the_compiler_of_patterns() -> None:
    """Both are half of the time of their imports, and `millstream[spark]` brings no compiler."""
    _imports_without(("pandas", "numba"), ("millstream.spark.flow_run", "millstream.cli.run"))


def test_a_driver_lets_java_start_before_it_loads_what_takes_long() -> None:
    early = ("millstream.engine.driver.main", "millstream.spark.session.session")
    late = ("pyarrow", "numpy", "sqlglot", "yaml", "millstream.engine.driver.driver")
    _imports_without(late, (*early, "millstream.spark.session.s3a"))


def test_states_by_key_are_read_without_the_compiler_of_patterns() -> None:
    _imports_without(("numba",), ("millstream.spark.switching.carry_out", "millstream.cli.state"))
    _imports_without(("numba",), ("millstream.spark.inspection.importing",))


def _imports_without(unwanted: tuple[str, ...], modules: tuple[str, ...]) -> None:
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({unwanted!r}))\n"
        f"for name in {modules!r}: importlib.import_module(name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_daemon_of_workers_that_look_for_sources_loads_nothing() -> None:
    assert daemon.needed(["daemon.py", "pyspark.worker"])
    assert not daemon.needed(["daemon.py", "pyspark.sql.worker.lookup_data_sources"])
