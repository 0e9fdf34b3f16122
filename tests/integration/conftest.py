"""One Spark session for all tests of a process that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark.session.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    running = session("tests", master="local[2]", log=log)
    yield running
    running.stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty folder for journals and checkpoints."""
    return tmp_path / "data"
