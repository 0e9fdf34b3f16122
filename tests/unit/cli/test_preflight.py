"""A mistake that needs no Spark to be found is reported before Spark starts."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.flow.load import load
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan
from millstream.spark.io.checkpoint import Checkpoint
from support.forking import Commands, forking

SCHEMA = "shop string, item string, amount double, at timestamp"
FLOW = f"""
import millstream as ms

flow = ms.Flow("shops")
orders = flow.source("orders", ms.inbox("{SCHEMA}"), time="at", key="shop")
takings = orders.window("takings", every="10 minutes", amount="sum(amount)")
takings.sink("takings", ms.jsonl("out"))
"""
INBOX = f'ms.inbox("{SCHEMA}")'
WINDOW = 'orders.window("takings", every="10 minutes", amount="sum(amount)")'
SINK = 'ms.jsonl("out")'
#: What is written in the flow instead of what, and the error.
MISTAKES = {
    "a missing folder": (INBOX, f'ms.files("data", "{SCHEMA}", format="jsonl")', '"{}/data" does not exist'),
    "a pattern of files": (INBOX, f'ms.files("*.csv", "{SCHEMA}")', 'no file matches "{}/*.csv"'),
    "a missing recording": (INBOX, f'ms.replay("day.csv", "{SCHEMA}")', 'the recording "{}/day.csv" does not exist'),
    "a sink that is a file": (SINK, 'ms.jsonl("flow.py")', '"{}/flow.py" cannot be a folder of results'),
    "a missing table": (
        WINDOW,
        'orders.join("names", ms.table("names.csv"), on="shop")',
        'stage "names" of flow "shops" needs "names.csv", which does not exist',
    ),
    "a missing program": (
        WINDOW,
        'orders.action("scored", ["./score"], input="amount", output="score double")',
        'stage "scored" of flow "shops" needs "./score", which does not exist',
    ),
    "a sum of text": (
        'amount="sum(amount)"',
        'amount="sum(item)"',
        'stage "takings" of flow "shops" sums column "item", which is string',
    ),
    "an unknown column": (
        "sum(amount)",
        "sum(amont)",
        'stage "takings" of flow "shops" sums column "amont", which "orders" does not have',
    ),
    "a column of a pattern": (
        WINDOW,
        'orders.match("big", ms.Pattern().begin("a", "amuont > 9").within("1 hour"))',
        'block "a" reads column "amuont", which the events do not have',
    ),
    "an argument": ('key="shop"', 'key="shop", latenes="5 s"', 'source() has no argument "latenes"'),
    "a name": (SINK, 'ms.jsnol("out")', 'millstream has no "jsnol"'),
}  # fmt: skip


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with forking(
        "millstream.flow.load", "millstream.links.host", "millstream.spark.ended"
    ) as found:
        yield found


@pytest.fixture
def run(commands: Commands, tmp_path: Path) -> Run:
    """Run a flow where starting Spark would be another error."""

    def ran(*options: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["run", "flow.py", *options], tmp_path, without_java(tmp_path))

    return ran


def without_java(folder: Path) -> dict[str, str]:
    return {**os.environ, "JAVA_HOME": str(folder / "no_java")}


def used() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_before_spark_starts(name: str, run: Run, tmp_path: Path) -> None:
    there, instead, fact = MISTAKES[name]
    assert there in FLOW
    (tmp_path / "flow.py").write_text(FLOW.replace(there, instead))
    done = run()
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {fact.format(tmp_path)}")
    assert "flow.py:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["a missing folder", "a column of a pattern"])
def test_a_mistake_is_reported_soon(name: str, tmp_path: Path) -> None:
    there, instead, fact = MISTAKES[name]
    (tmp_path / "flow.py").write_text(FLOW.replace(there, instead))
    before = used()
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "run", "flow.py"],
        cwd=tmp_path,
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith(f"error: {fact.format(tmp_path)}")
    # Of the processor, of which this machine may have little to spare.
    assert used() - before < 4


def test_without_a_mistake_spark_is_started_and_the_wrong_java_named(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    done = run()
    assert done.stderr.startswith(
        f'error: JAVA_HOME is "{tmp_path}/no_java", which has no bin/java'
    )
    assert "unset JAVA_HOME" in done.stderr


def test_a_changed_flow_is_reported_before_spark_starts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(FLOW)
    described = plan(load(file))
    folder = tmp_path / ".millstream" / "shops" / "groups" / "takings"
    Checkpoint.open(folder, "takings", fingerprint(described, "takings")).begin()
    # Columns that nobody uses may come, which only Spark can tell.
    file.write_text(FLOW.replace("item string", "item string, more string"))
    assert "JAVA_HOME" in run().stderr
    file.write_text(FLOW.replace("10 minutes", "20 minutes"))
    done = run()
    assert done.stderr.startswith(
        'error: group "takings" has changed since its checkpoint was made'
    )
    assert 'stage "takings": "every" was 10 min, now 20 min' in done.stderr


def test_a_flow_that_runs_already_may_go_on_with_a_sum_of_texts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(FLOW.replace("sum(amount)", "sum(item)"))
    described = plan(load(file))
    folder = tmp_path / ".millstream" / "shops" / "groups" / "takings"
    Checkpoint.open(folder, "takings", fingerprint(described, "takings")).begin()
    assert "JAVA_HOME" in run().stderr


def test_a_port_that_another_has_is_reported_before_spark_starts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("--port", str(port))
    assert done.stderr.startswith(f"error: port {port} of 127.0.0.1 is in use")
    assert "JAVA_HOME" in run("--port", str(port)).stderr
