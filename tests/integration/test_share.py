"""Two versions share the keys: every result is there once, and belongs to the version that owns its key from its cut on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.journal import committed
from millstream.spark.run import FlowRun
from support.shared import BUILDS, CHAINED, RISING, lived, over, owners, plain, results, start_us
from support.switched import replayed

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def check(
    spark: SparkSession, root: Path, run: FlowRun, name: str, sinks: tuple[str, ...], shares: list[float]
) -> None:
    """Compare a life with the run that never switched, and each result's maker with who owns it."""
    replayed(spark, root, root / "alone", BUILDS[name])
    assert plain(root, sinks) == plain(root / "alone", sinks), run.history()
    known = owners(run)
    assert [stretch.share / 10_000 for stretch in known.stretches] == shares
    for sink in sinks:
        made: Counter[tuple[int, str]] = Counter()
        for row in results(root, sink):
            start = start_us(row)
            assert row["made"] == row.get("also", row["made"]) == known.owner(start, row["k"]), (row, known)
            made[sum(start >= stretch.from_us for stretch in known.stretches), row["made"]] += 1
        # Of every stretch in which both have keys there are results of both.
        expected = {(number + 1, str(v)) for number, share in enumerate(shares) if 0 < share < 1 for v in (1, 2)}
        assert expected <= made.keys(), made


@pytest.mark.timeout(1800)
def test_a_share_that_grows_changes_no_result_and_every_key_has_one_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    shares = [0.1, 0.5, 1.0]
    run = lived(spark, tmp_path, "rising", 3, shares)
    assert run.version == "2"
    check(spark, tmp_path, run, "rising", RISING, shares)
    assert sorted(path.name for path in (run.folder / "groups").iterdir()) == ["kept", "noted@2", "sliding@2"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_keys_that_are_given_back_after_a_stop_change_no_result(spark: SparkSession, tmp_path: Path) -> None:
    shares = [0.5, 0.0]
    run = lived(spark, tmp_path, "chained", 4, shares, until=0.5)
    assert not over(run)
    run = lived(spark, tmp_path, "chained", 4, shares)
    assert run.version == "1"
    check(spark, tmp_path, run, "chained", CHAINED, shares)
    # What the new version had is gone, and so are its readers.
    assert sorted(path.name for path in (run.folder / "groups").iterdir()) == ["inside", "outer", "rows"]
    assert {one.reader for one in committed(run.journal("events"))} == {"switched.inside", "switched.rows"}
    assert sorted(path.name for path in (run.folder / "journals").iterdir()) == ["events", "inside"]


#: Between two durable actions of a share that is given, raised and taken back.
POINTS = (
    "switch-write-sharing:1",
    "switch-release:1",
    "switch-ordered:5",
    "switch-asked:8",
    "switch-asked:15",
    "before-switch-write-sharing:2",
    "switch-write-sharing:2",
    "switch-release:3",
    "switch-ordered:11",
    "decided:60",
    "switch-write-overlapping:1",
    "switch-release:5",
    "switch-closed:1",
    "switch-write-retiring:1",
    "switch-removed-group:1",
    "switch-removed-journal:1",
    "switch-write-running:1",
)


def died(root: Path, seed: int, shares: list[float], fail_at: str) -> int:
    """Let a flow live in a process of its own until it is killed at a point; return its exit code."""
    command = [sys.executable, "-m", "support.shared", str(root), str(seed), *map(str, shares)]
    environment = {**os.environ, "MILLSTREAM_FAIL_AT": fail_at, "PYTHONPATH": str(Path(__file__).parents[1])}
    with (root / "output.txt").open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        return process.wait(900)
    finally:
        # What a process that died has left: its Java.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("fail_at", POINTS)
def test_a_driver_may_die_at_every_step_of_a_share(spark: SparkSession, tmp_path: Path, fail_at: str) -> None:
    shares = [0.1, 0.5, 0.0]
    assert died(tmp_path, 6, shares, fail_at) == 137, (tmp_path / "output.txt").read_text()[-3000:]
    run = lived(spark, tmp_path, "chained", 6, shares)
    assert run.version == "1"
    check(spark, tmp_path, run, "chained", CHAINED, shares)
