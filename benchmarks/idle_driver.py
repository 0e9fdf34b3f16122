"""A driver without Spark that reports once a second, as a real one does: what jobs cost their engine alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from millstream.actions.parent import end_with_parent
from millstream.engine.driver.driver import _STATISTICS_S
from millstream.engine.driver.main import taken_over
from millstream.engine.driver.protocol import Line
from millstream.spark.session.start import SparkStart
from support.sparkless_driver import Sparkless


class Unhurried:
    """The line to the engine, looked at once a second; that of the tests is looked at 50 times."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def next(self, timeout: float | None = None) -> Any:
        return self._line.next(None if timeout is None else _STATISTICS_S)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)


if __name__ == "__main__":
    end_with_parent()
    slow: Any = Unhurried(Line(*taken_over()))
    os._exit(Sparkless(slow, SparkStart("driver")).serve(warm="--warm" in sys.argv))
