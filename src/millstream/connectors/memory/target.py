"""Keeps results in the memory of the running process, each epoch once."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from millstream.clock import micros
from millstream.connectors.memory import Memory
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import in_python


class MemoryTarget(Target):
    """Rows kept in this process, for tests and notebooks."""

    shared = True
    decides: ClassVar[bool] = True

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._epochs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._guard = threading.Lock()

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        found = in_python(frame.toArrow())
        self._context.refuse(found.refused, epoch)
        rows = found.dictionaries()
        epoch.decide(f"memory:{self._context.owner}", "")
        with self._guard:
            self._epochs.setdefault((epoch.checkpoint, epoch.batch), rows)
        return len(rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows in the order in which they were published."""
        with self._guard:
            return [row for rows in self._epochs.values() for row in rows]

    def withdraw(self, column: str, since_us: int) -> None:
        def stays(row: dict[str, Any]) -> bool:
            return row.get(column) is None or micros(row[column]) < since_us

        with self._guard:
            self._epochs = {
                epoch: [row for row in rows if stays(row)] for epoch, rows in self._epochs.items()
            }


def open_memory(_: Memory, context: SinkContext) -> MemoryTarget:
    """Open the rows of a sink."""
    return MemoryTarget(context)
