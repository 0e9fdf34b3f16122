"""Reading the state of a job's stages in its driver, beside the batches that it runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millstream.engine.driver import protocol
from millstream.engine.jobs.state_status import StageStatus, StateRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.inspection.place import JobPlace


def begin_reading(
    line: protocol.Line,
    spark: SparkSession,
    folder: Path,
    storage: str | None,
    asked: protocol.ReadState,
) -> None:
    """Read what is asked for of the job in a folder, on a thread of its own, and report it."""
    from millstream.spark.inspection.place import job_place

    def work() -> None:
        line.report(read(spark, job_place(folder.parent, folder.name, storage), asked))

    threading.Thread(target=work, name="state", daemon=True).start()


def read(spark: SparkSession, place: JobPlace, asked: protocol.ReadState) -> protocol.StateRead:
    """Return what is asked for, or why it cannot be read."""
    try:
        if asked.stage is None:
            return protocol.StateRead(number=asked.number, stages=_stages(spark, place))
        return protocol.StateRead(number=asked.number, rows=_rows(spark, place, asked))
    except Exception as error:  # noqa: BLE001 (the running flow is not concerned)
        return protocol.StateRead(number=asked.number, failure=protocol.failure(error))


def _stages(spark: SparkSession, place: JobPlace) -> list[StageStatus]:
    from millstream.spark.inspection.stages import listed

    found = listed(place, lambda: spark)
    return [msgspec.convert(one, StageStatus, from_attributes=True) for one in found]


def _rows(spark: SparkSession, place: JobPlace, asked: protocol.ReadState) -> StateRows:
    from millstream.spark.inspection.key_states import read_states
    from millstream.spark.inspection.stages import find_stage

    found, stage = find_stage(place, asked.stage or "")
    states = read_states(spark, found, stage, asked.at)
    return StateRows(
        stage=states.stage,
        kind=states.kind,
        batch=states.batch,
        keys=states.keys,
        rows=states.plain(asked.limit, asked.key),
    )
