"""`fold` on Spark: the user's step, over the rows of a shard in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from math import isnan
from operator import lt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Raw
from pyspark.sql import DataFrame

from millstream.clock import MICROSECOND
from millstream.errors import RunError
from millstream.extras import need
from millstream.flow.kept import Kept, conformed
from millstream.spark.io.packed import micros
from millstream.spark.io.refused_rows import refuse
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
from millstream.spark.stages.row_keys import RowKeys
from millstream.state import NO_TIME

if TYPE_CHECKING:  # not wanted in executors, which import this
    from millstream.flow.stages import Fold
    from millstream.spark.stages.build import Builder


def build(stage: Fold, builder: Builder, *, packed: bool = False) -> DataFrame:
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
    rule: Rule = _declared(stage, folding, builder) if stage.folds else folding
    return ordered(stage, builder, rule, time=time, output=output, wait=wait, packed=packed)


def _declared(stage: Fold, plain: Folding, builder: Builder) -> Rule:
    from millstream.flow.declared import DeclaredStep
    from millstream.spark.stages.declared_fold import DeclaredFolding

    names, folds = {one.name for one in stage.folds}, stage.folds
    taken = tuple(name for name in stage.output.names if name not in names)
    if stage.extra is not None:
        from millstream.spark.stages.stateless import title

        need(stage.extra, title(stage, builder.flow))
        from millstream.spark.stages.compiled_fold import ready

        folds = ready(stage, builder.flow, builder.columns(stage.input))
        plain = replace(plain, step=DeclaredStep(folds, taken))
    return DeclaredFolding(plain, folds, taken)


KIND = SparkKind(build, packed=partial(build, packed=True), ordered=True, own_state=True)


Times = np.ndarray[Any, np.dtype[np.int64]]

#: The state of a key that has none yet: a step may keep None.
_NEW: Final = object()


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
        given, codes, times = self._given(rows), keys.codes.tolist(), self._times(rows)
        known = [state.get(key) for key in keys.known]
        kept = [_NEW if one is None else one[0] for one in known]
        results: list[dict[str, Any] | None] = []
        # Little for each row: what can be checked for all of them at once comes behind the loop.
        step, states, emit = self.step, self.states, results.append
        try:
            for code, row, gone in zip(codes, given, self._left_behind(codes, times, known)):  # noqa: B905
                before = kept[code]
                if before is _NEW or gone:
                    kept[code], result = self._begun(row)
                else:
                    after, result = step(before, row)
                    kept[code] = conformed(states, after) if states else after
                emit(result)
        except RunError:
            raise
        except Exception as error:
            raise self._failed(given[len(results)], error) from error
        found = self._checked(results, given)
        for code in set(codes[::1000]):
            self._check(kept[code])
        last = np.empty(len(known), np.int64)
        last[keys.codes] = times  # the last of a key stays
        state.update(zip(keys.known, zip(kept, last.tolist(), strict=True), strict=True))
        return found

    def _begun(self, row: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        """Call the step for the first row of a key."""
        after, result = self.step(_initial(self.initial), row)
        after = conformed(self.states, after) if self.states else after
        self._check(after)
        return after, result

    def _left_behind(
        self, codes: list[int], times: Times, known: list[tuple[Any, int] | None]
    ) -> Iterable[bool]:
        """Return for each row whether event time has left the state of its key behind."""
        keep, lasts = self.keep, [None if one is None else one[1] for one in known]
        if keep is None:
            return repeat(False)
        found = []
        for code, at in zip(codes, times.tolist(), strict=True):
            before, lasts[code] = lasts[code], at
            found.append(before is not None and at - before >= keep)
        return found

    def _checked(
        self, results: list[dict[str, Any] | None], given: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the rows that came out, if they can."""
        found = [one for one in results if one is not None]
        if self._are_sound(found, results, given):
            return found
        for row, result in zip(given, results, strict=True):
            try:
                self._check_result(row, result)
            except RunError:
                raise
            except Exception as error:
                raise self._failed(row, error) from error
        return found

    def _are_sound(
        self,
        found: list[dict[str, Any]],
        results: list[dict[str, Any] | None],
        given: list[dict[str, Any]],
    ) -> bool:
        """Tell of most results, at once, that each of them can come out."""
        if not set(map(type, found)) <= {dict} or not all(map(self.output.issuperset, found)):
            return False
        if self.time is None:
            return True
        time = self.time
        try:
            own = [row[time] for row, one in zip(given, results, strict=True) if one is not None]
            return not any(map(lt, [one[time] for one in found], own))
        except (KeyError, TypeError):  # there is none, or it is no time
            return False

    def _take_others(self, rows: pa.Table, keys: RowKeys, state: State) -> list[dict[str, Any]]:
        results, failed = [], {}
        own = zip(keys, self._given(rows), self._times(rows).tolist(), strict=True)
        for number, (key, row, at) in enumerate(own):
            known = state.get(key)
            if self.keep is not None and known is not None and at - known[1] >= self.keep:
                known = None
            before = encode(_initial(self.initial) if known is None else known[0])
            try:
                after, result = self.step(decode(before), row)
                after = conformed(self.states, after) if self.states else after
                self._check_result(row, result)
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

    def _given(self, rows: pa.Table) -> list[dict[str, Any]]:
        return dictionaries(rows.drop_columns([PLACE]) if PLACE in rows.column_names else rows)

    def _times(self, rows: pa.Table) -> Times:
        if self.in_order and self.time is not None:
            return micros(rows.column(self.time))
        return np.full(rows.num_rows, NO_TIME, np.int64)

    def _check_result(self, row: dict[str, Any], result: dict[str, Any] | None) -> None:
        """Check what the user's function returns for a row."""
        if result is None:
            return
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

    def _failed(self, row: dict[str, Any], error: Exception) -> Exception:
        """Return what to raise for a row on which the user's function fails."""
        return self._stopped(row, error) if self.letters is None else RowFailed(self._take_others)

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
