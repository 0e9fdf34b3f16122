"""`apply` on Spark: the user's function, called once with the stream."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millstream.errors import FlowError, InvalidFunction, SchemasDiffer
from millstream.flow.flow import Flow
from millstream.flow.stages import Apply
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import parsed
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.stateless import check_stateless, ddl, first_line, title
from millstream.spark.stages.timed_functions import timed_functions


def build(stage: Apply, builder: Builder) -> DataFrame:
    rows = builder.frame(stage.input)
    try:
        with timed_functions(builder.worked):
            frame = stage.function(rows)
    except (FlowError, PySparkException):
        raise
    except Exception as error:
        raise InvalidFunction(
            f"{title(stage, builder.flow)} failed while it was planned: "
            f"{type(error).__name__}: {first_line(error)}",
            where=stage.where,
        ) from error
    return builder.one_time(frame, stage.name)


def check(stage: Apply, flow: Flow, frame: Any) -> None:
    check_stateless(stage, flow, frame)
    if stage.schema is not None:
        declared = {f.name: f.dataType for f in parsed(stage.schema.ddl).fields}
        if declared != {f.name: f.dataType for f in frame.schema.fields}:
            raise SchemasDiffer(
                f"{title(stage, flow)} returns {ddl(frame.schema)}, "
                f"but it is declared as {stage.schema.ddl}",
                hint="give schema= what the function returns, or leave it out",
                where=stage.where,
            )


KIND = SparkKind(build, check=check)
