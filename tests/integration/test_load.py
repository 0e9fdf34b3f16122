"""Real load with kills and switches, as `benchmarks/load.py` runs it: a few minutes, and an hour."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import load

pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.mark.timeout(1500)
def test_kills_and_switches_under_load_lose_no_event_and_count_none_twice(tmp_path: Path) -> None:
    found = load.run(tmp_path, load.SHORT)
    assert load.faults(found) == []
    assert found["counted"] == found["sent"] > 0
    assert {one["victim"] for one in found["kills"]} == {"driver", "engine", "producer"}
    assert len(found["switches"]) >= 2


@pytest.mark.timeout(3 * 3600)
def test_an_hour_of_load_leaves_lag_memory_and_disk_as_they_were(tmp_path: Path) -> None:
    found = load.run(tmp_path, load.Settings())
    assert load.faults(found) == []
    assert found["not_flat"] == [], {name: found["flat"][name] for name in found["not_flat"]}
