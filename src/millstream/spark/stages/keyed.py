"""`keyed` on Spark: the columns of keys that are expressions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.flow.stages import Keyed
from millstream.spark.stages.build import Builder
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.stateless import check_stateless


def build(stage: Keyed, builder: Builder) -> DataFrame:
    texts = [text for _, text in stage.columns]
    below = [one for one in builder.flow.stages.values() if stage.name in one.inputs]
    frame = builder.frame(stage.input)
    if not any(getattr(one, "on_error", "dead") == "stop" for one in below):
        named = next((one.name for one in below), stage.name)
        frame = builder.sifted(stage, frame, texts, *unkeyed(named, texts))
    made = frame.select("*", *(F.expr(text).alias(name) for name, text in stage.columns))
    return builder.one_time(made, stage.name)


def unkeyed(stage: str, texts: Sequence[str]) -> tuple[str, str]:
    """Return the origin and the reason of letters for rows on which the key of a stage fails."""
    shown = " or ".join(f'"{text}"' for text in texts)
    return f"keyed:{stage}", f'the key of "{stage}" cannot be computed: {shown} fails'


KIND = SparkKind(build, check=check_stateless, sifts=True)
