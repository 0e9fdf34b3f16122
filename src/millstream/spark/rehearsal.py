"""A driver in reserve runs a small flow: what Spark loads and compiles for it, the next one has."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.spark.archive import example
from millstream.spark.flow_run import FlowRun, Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long the flow may take on a slow machine.
_LONGEST_S: Final = 120.0
_POLL_S: Final = 0.1


def rehearse(spark: SparkSession, interrupted: Callable[[], bool]) -> bool:
    """Run a flow with the usual stages in a folder of its own; return whether it came to its end.

    It stops soon once it is `interrupted`.
    """
    if interrupted():
        return False
    with tempfile.TemporaryDirectory() as folder:
        options = Options(Path(folder), Path(folder), serve="never")
        run = FlowRun(spark, example(), options)
        until = time.monotonic() + _LONGEST_S
        try:
            run.start()
            while not (ended := run.poll()):
                if interrupted() or time.monotonic() > until:
                    break
                time.sleep(_POLL_S)
        finally:
            run.stop()
        return ended
