"""`fold` on Spark: the user's step, over the rows of a shard in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from millstream.errors import RunError
from millstream.flow.stages import Fold
from millstream.spark.io.source import PLACE
from millstream.spark.stages.build import Builder
from millstream.spark.stages.columns import parsed
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.ordered import State, decode, dictionaries, encode, keys, ordered


def build(stage: Fold, builder: Builder) -> DataFrame:
    wait = stage.order == "time"
    time = builder.time(stage.input) if wait else builder.flow.stream(stage.input).time
    output = parsed(stage.output.ddl)
    names = frozenset(output.fieldNames())
    rule = Folding(stage.name, stage.by, stage.step, stage.initial, names, time)
    return ordered(
        builder.frame(stage.input),
        rule,
        by=stage.by,
        time=time,
        output=output,
        shards=stage.shards,
        wait=wait,
    )


KIND = SparkKind(build, ordered=True, own_state=True)


@dataclass(frozen=True, slots=True)
class Folding:
    """Call the user's step on every row with the state of its key."""

    stage: str
    by: tuple[str, ...]
    step: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]]
    initial: Any
    output: frozenset[str]
    time: str | None

    def take(self, rows: pa.Table, state: State) -> list[dict[str, Any]]:
        results = []
        given = dictionaries(rows.drop_columns([PLACE]) if PLACE in rows.column_names else rows)
        for number, (key, row) in enumerate(zip(keys(rows, self.by), given, strict=True)):
            before = state[key] if key in state else _initial(self.initial)
            after, result = self._step(before, row)
            if key not in state or number % 1000 == 0:
                self._check(after)
            state[key] = after
            if result is not None:
                results.append(result)
        return results

    def expire(self, state: State, watermark: int) -> None:
        """Nothing expires: the state of a key is kept permanently."""

    def _step(self, state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        """Call the user's function; an error of it names the stage and the row."""
        try:
            after, result = self.step(state, row)
        except Exception as error:
            fact = f"{type(error).__name__}: {error}"
            raise RunError(
                f'stage "{self.stage}" failed on {row}: {fact}',
                hint="fix its step, or let a stage before it leave such rows out; "
                "the group continues from this row",
            ) from error
        if result is not None and self.time is not None and result.get(self.time) is None:
            hint = "put the time of the row into it"
            raise RunError(f'stage "{self.stage}" emits a row without "{self.time}"', hint=hint)
        if result is not None and not result.keys() <= self.output:
            unknown = sorted(result.keys() - self.output)
            raise RunError(
                f'stage "{self.stage}" emits a column "{unknown[0]}" that its output does not have',
                hint=f"its columns are {', '.join(sorted(self.output))}",
            )
        if result is not None and self.time is not None and result.get(self.time) < row[self.time]:
            msg = f'stage "{self.stage}" dates a row back: {result.get(self.time)} for {row}'
            raise RunError(msg, hint=f'emit the "{self.time}" of the row, or a later one')
        return after, result

    def _check(self, value: Any) -> None:
        # A tuple would come back from disk as a list, but only after a batch's
        # end: results would depend on batch boundaries.
        try:
            same = decode(encode(value)) == value
        except (TypeError, ValueError, OverflowError) as error:
            msg = f'stage "{self.stage}" keeps a state that cannot be stored: {error}'
            raise RunError(msg, hint=_PLAIN) from None
        if not same:
            msg = f'stage "{self.stage}" keeps a state that changes when stored: {value!r}'
            raise RunError(msg, hint=_PLAIN)


_PLAIN: Final = "use dicts with text keys, lists, text, numbers, booleans and None"


def _initial(initial: Any) -> Any:
    return initial() if callable(initial) else decode(encode(initial))
