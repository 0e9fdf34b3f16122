"""What integration tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty folder for journals and checkpoints."""
    return tmp_path / "data"
