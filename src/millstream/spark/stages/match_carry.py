"""What a shard of a pattern keeps, for the shard of a changed pattern."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from millstream.flow import expressions
from millstream.flow.stages.state_fit import StateFit
from millstream.patterns.carrying import Outcome
from millstream.patterns.matcher import Kept
from millstream.patterns.reshaping import Side, reshaped
from millstream.spark.stages.match_pieces import Pieces
from millstream.spark.stages.match_rows import ROW, ShardMatcher
from millstream.spark.stages.ordered import uncollected
from millstream.state import ShardState, StateFiles
from millstream.state.carrying import carry_as_it_is
from millstream.state.files import imported_name
from millstream.state.manifest import Manifest, dump, load


@dataclass
class PatternCarry:
    """A stage in both versions, and what became of its runs so far."""

    old: ShardMatcher
    new: ShardMatcher
    cut: int
    fit: StateFit
    outcome: Outcome = field(default_factory=Outcome)

    def shard(self, old: StateFiles, new: StateFiles, token: str, shard: int, data: bytes) -> None:
        if self._unchanged:
            carry_as_it_is(old, new, token, shard, data)
            return
        room = ShardState(load(data), old, shard)
        with uncollected():
            before = Pieces(room, self.old.matchers, self.old.empty()).everything()
            after = self._carried(before)
        begin = Manifest(room.manifest.touches, imported=token)
        pieces = Pieces(ShardState(begin, new, shard), self.new.matchers, self.new.empty())
        content, _ = pieces.commit(after)
        new.storage.put(imported_name(new.stage, token, shard), content or dump(begin))

    @property
    def remark(self) -> str:
        found = self.outcome
        parts = [f"runs carried over: {found.carried}"] if found.carried else []
        parts += [f'dropped with "{name}": {count}' for name, count in found.lost.items()]
        parts += [f"out of time: {found.ended}"] if found.ended else []
        return ", ".join(parts)

    @cached_property
    def _unchanged(self) -> bool:
        """Whether what is kept means the same in both versions."""
        return self.old.recipe == self.new.recipe and bool(self.old.rows.equals(self.new.rows))

    def _carried(self, before: list[Kept]) -> list[Kept]:
        olds, news, outcome = _sides(self.old), _sides(self.new), self.outcome
        names = [[one.automaton.name for one in some] for some in (olds, news)]
        if len(olds) == len(news) == 1:
            names = [[""], [""]]  # the only one, whatever it is called
        wishes = self.cut, dict(self.fit.renamed), self.fit.dropped
        found = []
        for name, new in zip(names[1], news, strict=True):
            if name not in names[0]:
                found.append(new.empty)
                continue
            place = names[0].index(name)
            kept, one = reshaped(olds[place], new, before[place], *wishes)
            found.append(kept)
            outcome.add(one)
        for name, kept in zip(names[0], before, strict=True):
            if name not in names[1] and kept.live:
                outcome.lost[name] += kept.live
        return found


def _sides(stage: ShardMatcher) -> list[Side]:
    """Return the patterns of a stage, with what is kept of their events."""
    recipe = stage.recipe
    whole = [one.name for one in stage.rows.field(ROW).type] if ROW in stage.rows.names else []
    found = []
    for plan, matcher, empty in zip(recipe.plans, stage.matchers, stage.empty(), strict=True):
        columns = {f"__out{place}": recipe.rows[place] for place in plan.rows}
        columns |= {name: expressions.column(name) for name in whole}
        types = [stage.rows.field(f"__value{place}").type for place in plan.values]
        found.append(Side(plan.automaton, matcher, empty, columns, types))
    return found
