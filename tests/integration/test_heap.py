"""What of Java's heap is free, while there is work and at rest."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from millstream.spark.session import heap
from millstream.spark.session.memory import give_memory_back

pytestmark = pytest.mark.spark


def _limits(spark: SparkSession) -> dict[str, str]:
    limits = heap.Limits(spark)
    return {name: limits.read(name) for name in heap.WORKING}


def test_java_keeps_room_while_there_is_work_and_little_at_rest(spark: SparkSession) -> None:
    assert _limits(spark) == heap.WORKING
    with heap.resting(heap.Limits(spark)):
        assert _limits(spark) == heap.RESTING
    assert _limits(spark) == heap.WORKING


def test_a_java_whose_limits_cannot_be_changed_collects_all_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "RESTING", {heap.LEAST: "nothing", heap.MOST: "nothing"})
    give_memory_back(spark)
    assert _limits(spark) == heap.WORKING
