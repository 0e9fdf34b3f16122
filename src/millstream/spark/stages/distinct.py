"""`distinct` on Spark: the first row of each key, over the rows of a shard in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from millstream.clock import MICROSECOND
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.ordered import State, dictionaries, keys, micros, ordered

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.stages import Distinct
    from millstream.spark.stages.build import Builder


def build(stage: Distinct, builder: Builder) -> DataFrame:
    frame, time = builder.frame(stage.input), builder.time(stage.input)
    rule = Keeping(stage.by, time, stage.within // MICROSECOND)
    fields = [StructField(field.name, field.dataType) for field in frame.schema.fields]
    return ordered(
        frame,
        rule,
        by=stage.by,
        time=time,
        output=StructType(fields),
        shards=stage.shards,
        wait=True,
    )


KIND = SparkKind(build, ordered=True, own_state=True)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keep the first row of a key, and drop those that follow it within a time."""

    by: tuple[str, ...]
    time: str
    within: int

    def take(self, rows: pa.Table, state: State) -> list[dict[str, Any]]:
        times = micros(rows.column(self.time))
        kept = []
        for place, (key, at) in enumerate(zip(keys(rows, self.by), times.tolist(), strict=True)):
            if key not in state or at - state[key] >= self.within:
                state[key] = at
                kept.append(place)
        return dictionaries(rows.take(pa.array(kept, pa.int64()))) if kept else []

    def expire(self, state: State, watermark: int) -> None:
        for key in [key for key, at in state.items() if at + self.within <= watermark]:
            del state[key]
