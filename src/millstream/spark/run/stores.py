"""Where Spark keeps the state of a group, and how it writes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import SparkSession

from millstream.errors import RunError
from millstream.flow.stages import Stage
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.unfinished import forget_unfinished
from millstream.spark.served.serving import serving
from millstream.spark.session.session import (
    CHANGELOG,
    FORMAT,
    IN_MEMORY,
    JOIN_FORMAT,
    ROCKSDB,
    tries_tasks_again,
)
from millstream.spark.stages.kind import kind_of

#: Rows that a stage keeps for no longer than this stay in memory.
SHORT: Final = timedelta(seconds=10)
#: The ids of checkpoints that queries of this process have run.
_RUN: Final[set[str]] = set()


def check_seen(spark: SparkSession, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint in which executors would keep state where nobody finds it again.

    Raises:
        RunError: They do not see its folder.
    """
    found = serving(spark)
    if found is not None and not found.checkpoints and not checkpoint.on_s3:
        msg = f'group "{checkpoint.group}" keeps state in {checkpoint.spark_location}'
        hint = "give --storage s3://..., or mount the folder of checkpoints on all hosts of the cluster"
        raise RunError(f"{msg}, which the executors do not see", hint=hint)


def store_settings(
    checkpoint: Checkpoint, stages: Sequence[Stage], chosen: str | None, master: str
) -> dict[str, str]:
    """Return the settings of Spark for the state of stages, in the store that a user has chosen, if any."""
    store = _store(checkpoint, stages, chosen)
    return {
        "spark.sql.streaming.stateStore.providerClass": store,
        JOIN_FORMAT: "4" if store == ROCKSDB else "2",
        FORMAT: checkpoint.state_format,
        CHANGELOG: str(_writes_changes(checkpoint, master)).lower(),
    }


def _store(checkpoint: Checkpoint, stages: Sequence[Stage], chosen: str | None) -> str:
    if any(kind_of(stage).own_state for stage in stages) or checkpoint.address is not None:
        return ROCKSDB
    if chosen is not None:
        return {"memory": IN_MEMORY, "rocksdb": ROCKSDB}[chosen]
    # Windows are small beside their rows, and the in-memory store is twice as fast.
    return ROCKSDB if any(map(keeps_many_rows, stages)) else IN_MEMORY


def keeps_many_rows(stage: Stage) -> bool:
    """Tell whether a stage keeps whole rows, and not only for a moment of event time."""
    horizon = stage.reach(timedelta(0)).horizon
    return kind_of(stage).whole_rows and (horizon is None or horizon > SHORT)


def _writes_changes(checkpoint: Checkpoint, master: str) -> bool:
    """Tell whether RocksDB writes changes instead of whole versions.

    Not where attempts of a batch could be mixed: where Spark tries tasks again, or behind an
    unfinished batch of this process, of which it may be writing a whole version still.
    """
    unfinished = forget_unfinished(checkpoint)
    before = checkpoint.id in _RUN
    _RUN.add(checkpoint.id)
    mixed = tries_tasks_again(master) or (unfinished and before)
    return checkpoint.unique_names or not mixed
