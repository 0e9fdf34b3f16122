"""The rows of a shard in Python: tests that SQL cannot make, the matchers, and what they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.flow.stages import SHARDS
from millstream.patterns.automaton import FOREVER
from millstream.patterns.batches import Batch, Found
from millstream.patterns.events import asked, micros, plain
from millstream.patterns.matcher import Kept, Matcher, matcher
from millstream.patterns.outputs import Piece
from millstream.patterns.recipe import PatternPlan, Recipe
from millstream.patterns.results import compute
from millstream.patterns.starts import numbered, placed, vain
from millstream.spark.io.packed import SHARD
from millstream.spark.io.source import PLACE

KEY, TIME, COURSE, LATE, ROW = "__key", "__time", "__course", "__late", "__row"
STARTED, DEAD, JSON = "__started", "__dead", "__json"
#: What decides between rows of one time that have no place: a hash of their content, or their
#: number where the order is that of several columns.
ORDER = "__order"
#: The pattern of rows that match nothing.
UNMATCHED = -1
#: For each pattern, the column of each piece.
Slots = tuple[tuple[str, ...], ...]


@dataclass
class ShardMatcher:
    """What a worker needs to match the rows of a shard."""

    recipe: Recipe
    rows: pa.Schema
    output: pa.Schema
    slots: Slots
    shown: tuple[str, ...]
    drop_late: bool = False
    shards: int = SHARDS

    @cached_property
    def matchers(self) -> list[Matcher]:
        late = self.recipe.late
        return [
            matcher(plan.automaton, self._types(plan), late=late, rows=plan.lags)
            for plan in self.recipe.plans
        ]

    @property
    def renumbered(self) -> bool:
        """Whether 0.1.0 had other states for one of the patterns."""
        return any(plan.automaton.renumbered for plan in self.recipe.plans)

    @property
    def settled_by_end(self) -> bool:
        """Whether the end of all events may settle a match."""
        return any(plan.automaton.holds for plan in self.recipe.plans)

    def _types(self, plan: PatternPlan) -> list[pa.DataType]:
        return [self.rows.field(f"__value{place}").type for place in plan.values]

    def __getstate__(self) -> dict[str, Any]:
        # Made again where it is needed.
        return {name: value for name, value in self.__dict__.items() if name != "matchers"}

    def empty(self) -> list[Kept]:
        return [
            one.empty(pa.string(), self._kept_columns(plan))
            for one, plan in zip(self.matchers, self.recipe.plans, strict=True)
        ]

    def _kept_columns(self, plan: PatternPlan) -> pa.Schema:
        return self._payload(self.rows.empty_table(), plan).schema

    def _payload(self, rows: pa.Table, plan: PatternPlan) -> pa.Table:
        """Return the columns that outputs, and Python predicates, need."""
        whole = rows.select([self.shown[place] for place in plan.rows])
        whole = whole.rename_columns([f"__out{place}" for place in plan.rows])
        if any(test.functions for test in plan.automaton.tests):
            for name, column in zip(_whole(rows).column_names, _whole(rows).columns, strict=True):
                whole = whole.append_column(name, column)
        return whole if whole.column_names else rows.select([TIME])

    def process(
        self, kept: list[Kept], rows: pa.Table, watermark: int
    ) -> tuple[list[Kept], list[pa.Table]]:
        """Match rows, which are in order, and return what is kept and what is found."""
        return self.matched(kept, self.batches(rows), watermark)

    def batches(self, rows: pa.Table) -> list[Batch]:
        """Return for each pattern the events of rows that concern it."""
        return [self._batch(rows, plan) for plan in self.recipe.plans]

    def matched(
        self, kept: list[Kept], batches: list[Batch], watermark: int
    ) -> tuple[list[Kept], list[pa.Table]]:
        """Match batches, one for each pattern, and return what is kept and what is found."""
        after, results = [], []
        for number, (plan, one, before, batch) in enumerate(
            zip(self.recipe.plans, self.matchers, kept, batches, strict=True)
        ):
            now, found = one.process(before, batch, watermark)
            after.append(now)
            if self.recipe.empty or self.recipe.unmatched:
                results += self._in_vain(plan, batch, found)
            elif len(found):
                results.append(self._results(number, plan, found))
        return after, results

    def _in_vain(self, plan: PatternPlan, batch: Batch, found: Found) -> list[pa.Table]:
        """Return matches with the rows at which there is none: empty matches, or unmatched rows."""
        lost = vain(plan.automaton, batch, found, unmatched=not self.recipe.empty)
        if self.recipe.empty:
            found, lost = numbered(found, lost)
        shown = [self._results(0, plan, found)] if len(found) else []
        if len(lost) and not (self.recipe.empty and self.recipe.omitted):
            shown.append(self._results(0 if self.recipe.empty else UNMATCHED, plan, lost))
        if plan.automaton.empty_at_first and self.recipe.unmatched:
            others = vain(plan.automaton, batch, found, unmatched=True)
            shown += [self._results(UNMATCHED, plan, others)] if len(others) else []
        return shown

    def sorts_out(self, lowest: int, watermark: int) -> bool:
        """Tell whether any of the rows from `lowest` on may become a dead letter."""
        return self.recipe.letters or (self.drop_late and lowest <= watermark)

    def sorted_out(self, rows: pa.Table, watermark: int | None) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that can be matched, and dead letters for the others.

        Those have no key or no time, or came behind the watermark.
        """
        lost = np.zeros(len(rows), bool)
        if self.drop_late and watermark is not None:
            # Spark would fail the query when a match comes out that is older than its watermark.
            lost |= micros(rows.column(TIME)) <= watermark
        if self.recipe.letters:
            lost |= rows.column(DEAD).is_valid().to_numpy()
        if not lost.any():
            return rows, None
        return rows.filter(pa.array(~lost)), self._letters(rows.filter(pa.array(lost)), watermark)

    def _letters(self, rows: pa.Table, watermark: int | None) -> pa.Table:
        dead = pa.repeat(pa.scalar("late"), len(rows))
        at = micros(rows.column(TIME))
        # A time that Spark lets through; the event's own is in its JSON.
        if watermark is not None:
            at = np.maximum(at, max(watermark, 0) + 1000)
        arrays = {TIME: pa.array(at, pa.int64()).cast(self.output.field(TIME).type), DEAD: dead}
        if self.recipe.letters:
            arrays[DEAD] = pc.coalesce(rows.column(DEAD).combine_chunks(), dead)
            arrays[JSON] = rows.column(JSON).combine_chunks()
        filled = [arrays.get(one.name, pa.nulls(len(rows), one.type)) for one in self.output]
        return pa.Table.from_arrays(filled, schema=self.output)

    def _batch(self, rows: pa.Table, plan: PatternPlan) -> Batch:
        count = len(plan.automaton.tests)
        mask = rows.column(f"__mask{plan.word}").to_numpy() >> plan.shift & ((1 << count) - 1)
        for number, test in enumerate(plan.automaton.tests):
            if test.alone:
                mask = np.where(asked(test.alone, _whole(rows)), mask, mask & ~(1 << number))
        if plan.automaton.quiet and not (self.recipe.empty or self.recipe.unmatched):
            chosen = np.flatnonzero(mask)
            if len(chosen) < len(mask):
                rows, mask = rows.take(pa.array(chosen)), mask[chosen]
        values = [plain(rows.column(f"__value{place}").combine_chunks()) for place in plan.values]
        keys = rows.column(KEY).combine_chunks()
        payload = self._payload(rows, plan)
        made = Batch(keys, micros(rows.column(TIME)), mask.astype(np.int64), values, payload)
        return placed(made) if self.recipe.empty or self.recipe.unmatched else made

    def _results(self, number: int, plan: PatternPlan, found: Found) -> pa.Table:
        whole, parts = found, found
        if self.recipe.all_rows:
            parts, whole = found.prefixes(), found.repeated()
        named = zip(self.slots[number], plan.outputs.pieces, strict=True)
        arrays = {slot: self._piece(plan, slot, piece, parts, whole) for slot, piece in named}
        arrays[TIME] = pa.array(parts.at, pa.int64()).cast(self.output.field(TIME).type)
        arrays[STARTED] = pa.array(parts.started, pa.int64()).cast(self.output.field(STARTED).type)
        arrays[COURSE] = pa.array(np.full(len(parts), number), pa.int32())
        arrays[LATE] = pa.array(parts.late)
        filled = [arrays.get(one.name, pa.nulls(len(parts), one.type)) for one in self.output]
        table = pa.Table.from_arrays(filled, schema=self.output)
        if not plan.automaton.hidden or not self.recipe.all_rows:
            return table
        shown = ~np.isin(parts.blocks[parts.ends - 1], list(plan.automaton.hidden))
        return table.filter(pa.array(shown))

    def _piece(
        self, plan: PatternPlan, slot: str, piece: Piece, parts: Found, whole: Found
    ) -> pa.Array:
        kind = self.output.field(slot).type
        found = whole if piece.final else parts
        if piece.function == "match_number" and found.numbers is None:
            return pa.nulls(len(found), kind)
        value = None if piece.value is None else f"__out{plan.rows[piece.value]}"
        return compute(piece, found, value, kind, plan.automaton.blocks, whole)


def _whole(rows: pa.Table) -> pa.Table:
    """Return the events as they came, for Python predicates."""
    flat = rows.column(ROW).combine_chunks()
    return pa.Table.from_arrays(flat.flatten(), names=[one.name for one in flat.type])


def in_order(rows: pa.Table) -> pa.Table:
    """Sort rows by time, then by place, or by the hash of their content where they have none."""
    times = micros(rows.column(TIME))
    order = np.argsort(times, kind="stable")
    times = times[order]
    # Few have the time of another, and comparing times alone takes a fraction of comparing all.
    same = times[1:] == times[:-1]
    if len(times):
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    else:
        tied = np.zeros(0, np.int64)
    if len(tied):
        some = rows.take(pa.array(order[tied]))
        order[tied] = order[tied][pc.sort_indices(some, sort_keys=_content_keys(some)).to_numpy()]
    return rows.take(pa.array(order))


def _content_keys(rows: pa.Table) -> list[tuple[str, str]]:
    if PLACE in rows.column_names:
        return [(TIME, "ascending"), (PLACE, "ascending")]
    # Rows that have waited since before there was such a hash have none.
    plain_ones = [
        one.name
        for one in rows.schema
        if one.name not in (TIME, SHARD, ORDER) and _sortable(one.type)
    ]
    hashed = (ORDER,) if ORDER in rows.column_names else ()
    return [(name, "ascending") for name in (TIME, *hashed, *plain_ones)]


def _sortable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def whole(stage: ShardMatcher) -> Callable[[pa.Table], pa.Table]:
    """Return the function that matches all rows of a shard of a batch."""

    # Spark counts the parameters: an object with `__call__` has one too many.
    def match(rows: pa.Table) -> pa.Table:
        good, letters = stage.sorted_out(rows.drop_columns([SHARD]), None)
        _, results = stage.process(stage.empty(), in_order(good), FOREVER)
        results += [] if letters is None else [letters]
        return pa.concat_tables(results) if results else stage.output.empty_table()

    return match
