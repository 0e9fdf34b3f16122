"""`fold` on Spark: the user's step, over the rows of a shard in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Raw
from pyspark.sql import DataFrame

from millstream.clock import MICROSECOND
from millstream.errors import RunError
from millstream.flow.kept import Kept, conformed
from millstream.spark.io.packed import micros
from millstream.spark.io.source import PLACE
from millstream.spark.served.borrowed import Letters
from millstream.spark.stages.coding import decode, encode
from millstream.spark.stages.columns import parsed
from millstream.spark.stages.kind import SparkKind
from millstream.spark.stages.ordered import (
    RowFailed,
    Rule,
    State,
    dictionaries,
    ordered,
)
from millstream.spark.stages.refused import refuse
from millstream.spark.stages.row_keys import RowKeys
from millstream.state import NO_TIME

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.stages import Fold
    from millstream.spark.stages.build import Builder


def build(stage: Fold, builder: Builder) -> DataFrame:
    from millstream.flow.stages.named_states import kept

    wait = stage.order == "time"
    time = builder.time(stage.input) if wait else builder.flow.stream(stage.input).time
    output = parsed(stage.output.ddl)
    names = frozenset(output.fieldNames())
    letters = builder.letters(stage) if stage.on_error == "dead" else None
    keep = None if stage.keep is None else stage.keep // MICROSECOND
    folding = Folding(
        *(stage.name, stage.by, stage.step, stage.initial, names, time, letters),
        keep=keep,
        in_order=wait,
        states=kept(stage.states),
    )
    rule: Rule = _declared(stage, folding) if stage.folds else folding
    return ordered(stage, builder, rule, time=time, output=output, wait=wait)


def _declared(stage: Fold, plain: Folding) -> Rule:
    from millstream.spark.stages.declared_fold import DeclaredFolding

    names = {one.name for one in stage.folds}
    taken = tuple(name for name in stage.output.names if name not in names)
    return DeclaredFolding(plain, stage.folds, taken)


KIND = SparkKind(build, ordered=True, own_state=True)


@dataclass(frozen=True, slots=True)
class Folding:
    """Call the user's step on every row with the state of its key.

    A row on which it fails becomes a dead letter, and the state of its key stays as it was. Only
    then are states copied before each call: a step may change what it is given.
    """

    stage: str
    by: tuple[str, ...]
    step: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any] | None]]
    initial: Any
    output: frozenset[str]
    time: str | None
    #: The journal whose dead letters take rows; without it, a row that fails stops the group.
    letters: Letters | None = None
    #: For how many microseconds after its last row a key's state counts.
    keep: int | None = None
    #: Rows come in the order of event time.
    in_order: bool = True
    #: What it may keep, if that is declared.
    states: Kept = ()

    def old_time(self, _value: Raw) -> int:
        return NO_TIME

    def take(self, rows: pa.Table, keys: RowKeys, state: State) -> list[dict[str, Any]]:
        results = []
        get, keep, step = state.get, self.keep, self._step
        for number, (key, row, at) in enumerate(self._given(rows, keys)):
            known = get(key)
            if keep is not None and known is not None and at - known[1] >= keep:
                known = None  # event time has left it behind
            before = _initial(self.initial) if known is None else known[0]
            try:
                after, result = step(before, row)
            except RunError:
                raise
            except Exception as error:
                if self.letters is None:
                    raise self._stopped(row, error) from error
                raise RowFailed(self._take_others) from error
            if known is None or number % 1000 == 0:
                self._check(after)
            state[key] = (after, at)
            if result is not None:
                results.append(result)
        return results

    def _take_others(self, rows: pa.Table, keys: RowKeys, state: State) -> list[dict[str, Any]]:
        results, failed = [], {}
        for number, (key, row, at) in enumerate(self._given(rows, keys)):
            known = state.get(key)
            if self.keep is not None and known is not None and at - known[1] >= self.keep:
                known = None
            before = encode(_initial(self.initial) if known is None else known[0])
            try:
                after, result = self._step(decode(before), row)
            except RunError:
                raise
            except Exception as error:  # noqa: BLE001 (the user's function may raise anything)
                failed[number] = letter_of(self.stage, error)
                continue
            self._check(after)
            state[key] = (after, at)
            if result is not None:
                results.append(result)
        assert self.letters is not None
        lost = rows.take(pa.array(list(failed), pa.int64()))
        refuse(self.letters, f"fold:{self.stage}", lost, failed.values())
        return results

    def _given(self, rows: pa.Table, keys: RowKeys) -> Iterator[tuple[bytes, dict[str, Any], int]]:
        plain = rows.drop_columns([PLACE]) if PLACE in rows.column_names else rows
        times = [NO_TIME] * len(keys)
        if self.in_order and self.time is not None:
            times = micros(rows.column(self.time)).tolist()
        return zip(keys, dictionaries(plain), times, strict=True)

    def _step(self, state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        """Call the user's function, and check the row that it returns."""
        after, result = self.step(state, row)
        if self.states:
            after = conformed(self.states, after)
        if result is None:
            return after, None
        if not result.keys() <= self.output:
            # No matter of this row.
            unknown = min(result.keys() - self.output)
            raise RunError(
                f'stage "{self.stage}" emits a column "{unknown}" that its output does not have',
                hint=f"its columns are {', '.join(sorted(self.output))}",
            )
        if self.time is not None and result.get(self.time) is None:
            raise ValueError(f'its result has no "{self.time}"')
        if self.time is not None and result[self.time] < row[self.time]:
            raise ValueError(f"its result lies before the row: {result[self.time]}")
        return after, result

    def _stopped(self, row: dict[str, Any], error: Exception) -> RunError:
        return RunError(
            f'stage "{self.stage}" failed on {row}: {type(error).__name__}: {error}',
            hint='fix its step, let a stage before it leave such rows out, or say on_error="dead"; '
            "the group continues from this row",
        )

    def _check(self, value: Any) -> None:
        # A tuple would come back from disk as a list, but only after a batch's
        # end: results would depend on batch boundaries.
        try:
            same = _same(decode(encode(value)), value)
        except (TypeError, ValueError, OverflowError) as error:
            msg = f'stage "{self.stage}" keeps a state that cannot be stored: {error}'
            raise RunError(msg, hint=_PLAIN) from None
        if not same:
            msg = f'stage "{self.stage}" keeps a state that changes when stored: {value!r}'
            raise RunError(msg, hint=_PLAIN)


def letter_of(stage: str, error: Exception) -> str:
    """Return the reason of the dead letter for a row on which a step failed."""
    said = str(error).encode(errors="backslashreplace").decode().partition("\n")[0]
    return f'fold "{stage}" failed: {type(error).__name__}: {said}'


_PLAIN: Final = "use dicts with text keys, lists, text, numbers, booleans and None"


def _initial(initial: Any) -> Any:
    return initial() if callable(initial) else decode(encode(initial))


def _same(one: Any, other: Any) -> bool:
    """Tell whether values are equal; NaN is itself."""
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, float) and isinstance(other, float) and isnan(one) and isnan(other)
