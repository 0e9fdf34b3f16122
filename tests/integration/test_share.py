"""Two versions share the keys: every result is there once, and belongs to the version that owns its key from its cut on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.journal.kinds.files.retention import committed
from millstream.spark.flow_run import FlowRun
from support.killed import killed
from support.lives import Life, compare, written
from support.recording import Recording
from support.shared import KEYS, Shares, chained, owners, rising, settled, start_us, unmarked
from support.undisturbed import Results, chained_results, rising_results

pytestmark = pytest.mark.spark


def check(life: Life, run: FlowRun, right: Results, wishes: Shares) -> None:
    """Compare a life with what it should have given, and each result's maker with who owns it."""
    sinks, shares = tuple(right), wishes.shares
    compare(run, unmarked(life.root, sinks), right)
    known = owners(run)
    assert [stretch.share / 10_000 for stretch in known.stretches] == list(shares)
    for sink in sinks:
        made: Counter[tuple[int, str]] = Counter()
        for row in written(life.root, sink):
            start = start_us(row)
            assert row["made"] == row.get("also", row["made"]) == known.owner(start, row["k"]), (
                row,
                known,
            )
            made[sum(start >= stretch.from_us for stretch in known.stretches), row["made"]] += 1
        # Of every stretch in which both have keys there are results of both.
        expected = {
            (number + 1, str(v))
            for number, share in enumerate(shares)
            if 0 < share < 1
            for v in (1, 2)
        }
        assert expected <= made.keys(), made


@pytest.mark.slow
@pytest.mark.long
def test_a_share_that_grows_changes_no_result_and_every_key_has_one_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    life, wishes = Life(tmp_path, rising, Recording(3, KEYS)), Shares((0.1, 0.5, 1.0))
    run = life.lived(spark, wishes)
    assert run.version == "2"
    check(life, run, rising_results(life.recording, life.turns), wishes)
    assert sorted(path.name for path in (run.folder / "groups").iterdir()) == [
        "kept",
        "noted@2",
        "sliding@2",
    ]


def check_back(life: Life, run: FlowRun, wishes: Shares) -> None:
    """Look at a life in which the new version has given all keys back: it is gone, and so are its readers."""
    assert run.version == "1"
    check(life, run, chained_results(life.recording, life.turns), wishes)
    assert sorted(path.name for path in (run.folder / "groups").iterdir()) == [
        "inside",
        "outer",
        "rows",
    ]
    assert {one.reader for one in committed(run.journal("events"))} == {
        "switched.inside",
        "switched.rows",
    }
    assert sorted(path.name for path in (run.folder / "journals").iterdir()) == ["events", "inside"]


@pytest.mark.soak
def test_keys_that_are_given_back_after_a_stop_change_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    life, wishes = Life(tmp_path, chained, Recording(4, KEYS)), Shares((0.5, 0.0))
    with life.running(spark) as run:
        life.until(run, lambda: settled(run, life.turns) == 0.5, Shares((0.5,)))
    assert not wishes.fulfilled(run, life.turns)
    check_back(life, life.lived(spark, wishes), wishes)


#: Between two durable actions of a share that is given, raised and taken back.
GIVEN = (
    "switch-write-sharing",
    "switch-release:1",
    "switch-ordered:2",
    "switch-asked:4",
    "switch-asked:10",
    "before-switch-write-sharing",
    "switch-write-sharing",
    "switch-ordered:2",
    "switch-release:2",
)
BACK = (
    "switch-write-overlapping",
    "switch-release:1",
    "switch-ordered:1",
    "switch-closed:1",
    "switch-closed:2",
    "switch-write-retiring",
    "switch-removed-group",
    "switch-removed-journal",
    "switch-write-running",
)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("deaths", [GIVEN, BACK], ids=["given", "back"])
def test_a_driver_may_die_at_every_step_of_a_share(
    spark: SparkSession, tmp_path: Path, deaths: tuple[str, ...]
) -> None:
    life, wishes = Life(tmp_path, chained, Recording(6, KEYS)), Shares((0.1, 0.5, 0.0))
    check_back(life, life.lived_through(spark, wishes, deaths), wishes)


@pytest.mark.soak
@pytest.mark.parametrize(
    "fail_at", ["switch-write-sharing:2", "decided:60", "switch-write-overlapping"]
)
def test_a_driver_may_be_killed_while_keys_are_shared(
    spark: SparkSession, tmp_path: Path, fail_at: str
) -> None:
    life, wishes = Life(tmp_path, chained, Recording(8, KEYS)), Shares((0.1, 0.5, 0.0))
    assert killed(life, wishes, fail_at)
    check_back(life, life.lived(spark, wishes), wishes)
