"""Declared folds on Spark: over the columns of a shard's rows, with no call for each row.

Whatever vectors cannot do exactly (a sum that might not fit, a column of another type than was
declared, a row without a time) is left to the plain function, with its dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from millstream.flow.declared import REAL, AnyFold, CompiledFold, DeclaredFold
from millstream.spark.io.packed import micros
from millstream.spark.stages import scans
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import Results, State, values
from millstream.spark.stages.row_keys import RowKeys
from millstream.spark.stages.scans import Flags, Numbers, Places, Segments
from millstream.state import NO_TIME


class NotByVector(Exception):
    """The plain function must do it."""


@dataclass(frozen=True, slots=True)
class DeclaredFolding:
    """Fold rows as declared; `plain` does the same row by row."""

    plain: Folding
    folds: tuple[AnyFold, ...]
    #: The columns that a result has from its row.
    taken: tuple[str, ...]

    @property
    def by(self) -> tuple[str, ...]:
        return self.plain.by

    @property
    def keep(self) -> int | None:
        return self.plain.keep

    def old_time(self, value: Raw) -> int:
        return self.plain.old_time(value)

    def take(self, rows: pa.Table, keys: RowKeys, state: State) -> Results:
        if not len(rows):
            return []
        try:
            return self._by_vector(rows, keys, state)
        except NotByVector:
            return self.plain.take(rows, keys, state)

    def _by_vector(self, rows: pa.Table, keys: RowKeys, state: State) -> pa.Table:
        time = self.plain.time
        if time is not None and rows.column(time).null_count:
            raise NotByVector
        times = None
        if self.plain.in_order and time is not None:
            times = micros(rows.column(time))
        sorted_ = _sorted(keys, [state.get(key) for key in keys.known], times, self.keep)
        found = [_Folded.of(one, rows, sorted_) for one in self.folds]
        # Nothing can fail any more.
        after = zip(*(one.kept for one in found), strict=True)
        names = [(one.name, one.function) for one in self.folds]
        for key, at, kept in zip(sorted_.keys, sorted_.times, after, strict=True):
            own = zip(names, kept, strict=True)
            state[key] = ({name: {function: value} for (name, function), value in own}, at)
        arrays = {name: rows.column(name) for name in self.taken}
        arrays |= {one.name: two.results for one, two in zip(self.folds, found, strict=True)}
        return pa.table(arrays)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows sorted by key and cut into segments."""

    #: The number of the row at each place behind the sort, and the place of each row.
    order: Places
    back: Places
    segments: Segments
    #: The state that each segment begins with; None for none.
    before: list[Any]
    #: The last segment of each key; keys and times are those of these.
    ends: Places
    keys: list[bytes]
    times: list[int]


def _sorted(
    keys: RowKeys, known: list[tuple[Any, int] | None], times: Places | None, keep: int | None
) -> _Sorted:
    # Numbers as short as can be: those of up to 16 bits are sorted in one pass.
    order = np.argsort(keys.codes.astype(np.min_scalar_type(len(keys.known))), kind="stable")
    codes = keys.codes[order]
    begins = np.diff(codes, prepend=-1) != 0
    fresh = np.zeros(len(codes), bool)
    if keep is not None and times is not None:
        fresh = _left_behind(codes, begins, times[order], known, keep)
        begins = begins | fresh
    segments, heads = Segments.of(begins), np.flatnonzero(begins)
    # What goes on within a batch begins with no state: it was left behind.
    again = np.append(False, codes[heads[1:]] == codes[heads[:-1]]) | fresh[heads]
    found = [known[code] for code in codes[heads].tolist()]
    before = [
        None if gone or one is None else one[0]
        for one, gone in zip(found, again.tolist(), strict=True)
    ]
    ends = np.flatnonzero(np.append(codes[heads[1:]] != codes[heads[:-1]], True))
    last = np.append(heads[1:], len(codes))[ends] - 1
    moments = [NO_TIME] * len(last) if times is None else times[order[last]].tolist()
    back = np.empty(len(order), np.int64)
    back[order] = segments.rows
    named = [keys.known[code] for code in codes[last].tolist()]
    return _Sorted(order, back, segments, before, ends, named, moments)


def _left_behind(
    codes: Places,
    begins: Flags,
    times: Places,
    known: list[tuple[Any, int] | None],
    keep: int,
) -> Flags:
    """Return the rows before which event time has left the state of their key behind."""
    before = np.append(times[:1], times[:-1])
    heads = np.flatnonzero(begins)
    put = [None if one is None or one[1] == NO_TIME else one[1] for one in known]
    kept = [put[code] for code in codes[heads].tolist()]
    own = zip(kept, times[heads].tolist(), strict=True)
    before[heads] = [at if moment is None else moment for moment, at in own]
    found: Flags = times - before >= keep
    return found


@dataclass(frozen=True, slots=True)
class _Folded:
    """What a fold makes of rows, and what it keeps of each key."""

    results: pa.Array
    kept: list[Any]

    @classmethod
    def of(cls, fold: AnyFold, rows: pa.Table, given: _Sorted) -> _Folded:
        before = [None if one is None else one[fold.name][fold.function] for one in given.before]
        if isinstance(fold, CompiledFold):
            return cls._compiled(fold, rows, given, before)
        column = None if fold.column is None else rows.column(fold.column).combine_chunks()
        if fold.function == "count":
            found, missing = _counted(column, given, before)
        elif fold.function in ("sum", "ewma"):
            assert column is not None
            found, missing = _added(fold, column, given, before)
        else:
            assert column is not None
            return cls._chosen(fold, column, given, before)
        ends = given.segments.last[given.ends]
        results = pa.array(found[given.back], mask=missing[given.back])
        kept = pa.array(found[ends], mask=missing[ends])
        return cls(results, kept.to_pylist())

    @classmethod
    def _compiled(
        cls, fold: CompiledFold, rows: pa.Table, given: _Sorted, before: list[Any]
    ) -> _Folded:
        """Fold by a function of the user's."""
        from millstream.spark.stages.compiled_fold import folded

        begins = given.segments.slots - np.arange(len(before))
        ends = np.append(begins[1:], len(given.order))
        try:
            results, kept = folded(fold, rows, given.order, ends, before)
        except Exception as error:  # the user's function may raise anything
            raise NotByVector from error
        return cls(results, kept.take(pa.array(given.ends)).to_pylist())

    @classmethod
    def _chosen(
        cls, fold: DeclaredFold, column: pa.Array, given: _Sorted, before: list[Any]
    ) -> _Folded:
        """Fold to one of the values that came."""
        segments = given.segments
        held = pa.concat_arrays([_array(before, column.type), column.take(pa.array(given.order))])
        # Slots come first there, then rows.
        places = segments.spread(
            np.arange(len(before)), np.arange(len(before), len(held), dtype=np.int64)
        )
        valid = _valid(held)[places]
        match fold.function:
            case "first":
                found = scans.first(segments, valid)
            case "last":
                found = scans.last(segments, valid)
            case _:
                ranks = _ranks(held)[places]
                if fold.function == "min":
                    ranks = ranks.max(initial=0) - ranks
                found = scans.greatest(segments, valid, ranks)
        ends = found[segments.last[given.ends]]
        results = held.take(_places(places, found[given.back]))
        return cls(results, values(pa.chunked_array([held.take(_places(places, ends))])))


def _places(places: Places, found: Places) -> pa.Array:
    return pa.array(places[found], mask=found < 0)


def _counted(column: pa.Array | None, given: _Sorted, before: list[Any]) -> tuple[Numbers, Flags]:
    rows = np.ones(len(given.order), np.int64)
    if column is not None:
        rows = _valid(column)[given.order].astype(np.int64)
    kept = np.array([one or 0 for one in before], np.int64)
    found = scans.totals(given.segments, given.segments.spread(kept, rows))
    if found is None:
        raise NotByVector
    return found, np.zeros(len(found), bool)


def _added(
    fold: DeclaredFold, column: pa.Array, given: _Sorted, before: list[Any]
) -> tuple[Numbers, Flags]:
    whole = fold.type not in REAL
    if not (pa.types.is_integer(column.type) or (pa.types.is_floating(column.type) and not whole)):
        raise NotByVector
    kind = np.dtype(np.int64 if whole else np.float64)
    segments, there = given.segments, _valid(column)[given.order]
    added = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)[given.order].astype(kind)
    known = np.array([one is not None for one in before], bool)
    kept = np.array([0 if one is None else one for one in before], kind)
    valid, numbers = segments.spread(known, there), segments.spread(kept, added)
    if whole:
        sums = scans.totals(segments, numbers)
        if sums is None:
            raise NotByVector
        return sums, segments.held(valid) < 0
    weight = fold.weight
    then = add if fold.function == "sum" else lambda one, other: one + weight * (other - one)
    found, last = scans.one_by_one(segments, valid, numbers, then), segments.held(valid)
    return found[last], last < 0


def _valid(column: pa.Array) -> Flags:
    found: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _array(before: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(before, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise NotByVector from error


def _ranks(column: pa.Array) -> Places:
    """Return the place of each value among all of them, the same for equal ones."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = column.dictionary_encode()
        ranks = pc.rank(coded.dictionary, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        by_code: Places = np.append(ranks, 0)[pc.fill_null(coded.indices, len(ranks)).to_numpy()]
        return by_code
    if pa.types.is_floating(column.type):
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    elif (
        pa.types.is_integer(column.type)
        or pa.types.is_boolean(column.type)
        or pa.types.is_timestamp(column.type)
    ):
        numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    else:
        raise NotByVector
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)
