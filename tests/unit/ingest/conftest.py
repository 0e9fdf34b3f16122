from __future__ import annotations

from pathlib import Path

import pytest

from millstream.clock import ManualClock
from support.ingest import NOON_US


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON_US)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journals" / "events"
