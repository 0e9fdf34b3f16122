"""Records the results of a group in a journal of its own, beside what the group does with them.

An epoch is there once, as in any journal: a batch that is run again adds nothing. The journal is
removed with the shadow that it is for, so nothing of it outlives the process.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from millstream.journal import journal_at
from millstream.spark.io.journal_target import JournalTarget
from millstream.spark.io.schemas import arrow_schema
from millstream.spark.io.source import PLACE
from millstream.spark.io.targets import Epoch
from millstream.switch.starts import HIDDEN_START

#: When a result started, in microseconds since 1970.
START: Final = "__start_us"


class Recorder:
    """The results of one version of a group, as they are published."""

    def __init__(self, path: Path, schema: StructType) -> None:
        """Make the journal for rows of a schema."""
        fields = [field for field in schema.fields if field.name not in (PLACE, HIDDEN_START)]
        self.path = path
        self.columns = tuple(field.name for field in fields)
        self.schema: pa.Schema = arrow_schema(StructType(fields))
        #: Results that start before this are of no interest; None: nobody knows yet.
        self.since_us: int | None = None
        self.error: Exception | None = None
        kept = journal_at(path)
        kept.create(
            arrow_schema(StructType([StructField(START, LongType()), *fields])), written_by="group"
        )
        # One of its own: those that a process keeps would hold on to files that are removed.
        self.reader = kept.reader()
        self._target = JournalTarget(path, key=None)
        self._target.recover()
        self._guard = threading.Lock()

    def take(self, frame: DataFrame, start: str, epoch: Epoch) -> None:
        """Take down the rows of an epoch, unless they are."""
        with self._guard:
            if self._target.closed:
                return
            moment = F.unix_micros(F.col(f"`{start}`"))
            rows = frame if self.since_us is None else frame.where(moment >= self.since_us)
            columns = [F.col(f"`{name}`") for name in self.columns]
            self._target.write(
                rows.select(moment.alias(START), *columns), replace(epoch, floor=None)
            )

    def close(self) -> None:
        """Let go of the journal, when no epoch is being written."""
        with self._guard:
            if not self._target.closed:
                self._target.close()
