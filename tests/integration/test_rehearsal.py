"""A driver in reserve runs a small flow before there is anything to run."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark.rehearsal import rehearse
from support.links import wait_for

pytestmark = pytest.mark.spark


def test_a_rehearsal_runs_to_its_end_or_stops_soon_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    assert rehearse(spark, lambda: False)
    assert not rehearse(spark, lambda: True), "there is something to do"
    assert spark.streams.active == []
    assert not list(tmp_path.iterdir())
    wait_for(lambda: not {one for one in set(threading.enumerate()) - before if not one.daemon})
