"""`distinct` on Spark: the first row of each key, over the rows of a shard in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Raw
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from millstream.clock import MICROSECOND
from millstream.spark.io.packed import micros
from millstream.spark.stages.coding import decode
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.ordered import State, ordered
from millstream.spark.stages.row_keys import RowKeys
from millstream.spark.stages.spacing import spaced

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.stages import Distinct
    from millstream.spark.stages.build import Builder


def build(stage: Distinct, builder: Builder, *, packed: bool = False) -> DataFrame:
    frame, time = builder.frame(stage.input), builder.time(stage.input)
    rule = Keeping(stage.by, time, stage.within // MICROSECOND)
    fields = [StructField(field.name, field.dataType) for field in frame.schema.fields]
    output = StructType(fields)
    return ordered(stage, builder, rule, time=time, output=output, wait=True, packed=packed)


KIND = SparkKind(build, packed=partial(build, packed=True), ordered=True, own_state=True)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keep the first row of a key, and drop those that follow it within a time."""

    by: tuple[str, ...]
    time: str
    within: int

    @property
    def keep(self) -> int:
        return self.within

    def old_time(self, value: Raw) -> int:
        return int(decode(bytes(value)))

    def take(self, rows: pa.Table, keys: RowKeys, state: State) -> pa.Table:
        times = micros(rows.column(self.time))
        before = [state.get(key, (None,))[0] for key in keys.known]
        kept = spaced(keys.codes, times, before, self.within)
        for code, at in zip(keys.codes[kept].tolist(), times[kept].tolist(), strict=True):
            state[keys.known[code]] = (at, at)
        return rows.take(pa.array(kept))
