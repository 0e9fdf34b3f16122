"""`match`: a pattern in the rows of each key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.errors import InvalidOption, UnboundedState, Where
from millstream.flow.durations import format as shown
from millstream.flow.matching import Matchable
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.stage import ZERO, FunctionTable, OneInput, Reach, Stage, Tree
from millstream.flow.stages.state_fit import StateFit
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

#: Over how many parts the keys of a pattern are spread, unless its user says otherwise.
SHARDS: Final = 16
# By its name: a flow takes any pattern and knows none.
_PATTERNS: Final = "millstream.patterns.document"
_FITTING: Final = "millstream.patterns.fitting"


@dataclass(frozen=True, slots=True)
class Match(OneInput):
    """The matches of a pattern among the rows of each value of the `by` columns, in event time.

    Its columns are those that it emits, then the input's time column: the moment at which a match
    is certain.
    """

    kind: ClassVar[str] = "match"
    yaml_words: ClassVar[tuple[str, ...]] = ("match", "phenomenon")
    state: ClassVar[str] = "runs"

    name: str
    input: str
    pattern: Matchable
    by: tuple[str, ...]
    emit: str | None = None
    shards: int = SHARDS
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def extra(self) -> str | None:
        return "patterns"

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        above, output = inputs[0], None
        assert above.time is not None, "a match has a time"
        if above.schema is not None:
            time, emit = above.time, self.emit
            output = self.pattern.outcome(above.schema, time=time, key=self.by, emit=emit)
            site.check_columns(output)
        return above.derived(self.name, output)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        document, one = import_module(_PATTERNS), entry.has("match")
        pattern = document.read_pattern(entry) if one else document.read_phenomenon(entry, name)
        given = entry.given(texts=("by",), text=("emit",), whole=("shards",), flag=("strict",))
        return inputs[0].match(name, pattern, **given)

    def to_yaml(self, flow: Flow) -> Tree:
        site = Site(flow.name, self.name, "stage", self.where)
        with site.naming("pattern"):
            pattern: Tree = import_module(_PATTERNS).write_pattern(self.pattern)
        if "sql" in pattern:
            return {"from": self.input, **pattern}
        key = flow.stream(self.input).key
        by = None if self.by == ((key,) if key is not None else ()) else list(self.by)
        tree = forms.given({"from": self.input, **pattern, "by": by})
        return tree | forms.changed(self, "emit", "shards")

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        predicates = [functions.stage_function(one) for one in self.pattern.predicates]
        return {**described, "predicates": predicates}

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.pattern.warnings

    @property
    def bounded_state(self) -> str:
        reach = self.pattern.reach
        # A pattern of another package need not know.
        runs = "shared runs" if getattr(self.pattern, "shared", False) else "runs"
        return runs if reach is None else f"{runs}, at most {shown(reach)}"

    @property
    def state_key(self) -> tuple[str, ...]:
        return self.by

    def fits_state_of(
        self, before: Stage, renames: Mapping[str, str], drops: Collection[str]
    ) -> StateFit:
        if not isinstance(before, Match):
            return Stage.fits_state_of(self, before, renames, drops)
        fit: StateFit = import_module(_FITTING).fit(before, self, renames, drops)
        return fit

    @property
    def carried_at_cut(self) -> bool:
        return True

    @property
    def dates_later(self) -> bool:
        return True

    def reach(self, service_window: timedelta) -> Reach:
        independent = self.pattern.independent
        return Reach(self.pattern.reach) if independent else Reach(handed_over=True)

    def begun_before(self, above: timedelta | None, service_window: timedelta) -> timedelta | None:
        # Like a fold, a pattern that nothing limits begins with the state that it is given.
        return self.pattern.reach or ZERO

    @property
    def hidden_start(self) -> bool:
        return self.pattern.independent

    @property
    def grouped_by(self) -> tuple[str, ...]:
        return self.by

    @property
    def label(self) -> str:
        reach = self.pattern.reach
        return "match" if reach is None else f"match within {shown(reach)}"


class MatchMethod(Upstream):
    """`stream.match`."""

    __slots__ = ()

    def match(
        self,
        name: str,
        pattern: Matchable,
        *,
        by: str | Sequence[str] | None = None,
        emit: str | None = None,
        strict: bool = False,
        shards: int = SHARDS,
    ) -> Stream:
        """Return the matches of a pattern in this stream, in event time, behind the watermark.

            worse = ms.Pattern().begin("a", "delay > 60").followed_by("b", "delay > a.delay")
            departures.match("slow", worse.within("2 hours"), emit="origin, a.at as began, b.delay")

        The time of a match is the moment at which it is certain: its last event, or, where
        something must not come, when the time is up.

        Args:
            name: The stage's name.
            pattern: A Pattern, or a Phenomenon of several.
            by: The columns or expressions that make a key; the pattern's own key, else the
                stream's, if it is left out, [] for one sequence over all.
            emit: The columns of a match; the pattern's own, or its key and the events of each
                block, if it is left out.
            strict: Refuse a pattern whose runs may live for ever; without it the plan warns of it.
            shards: Over how many parts keys are spread, the most that work at once; another number
                is another stage.
        """
        site = self._site(name)
        self._check_timed(site, "match")
        if shards < 1:
            fact = f"spreads its keys over {shards} shards"
            raise site.mistake(InvalidOption, fact, hint="give at least one")
        if not isinstance(pattern, Matchable):
            fact = f"is given {type(pattern).__name__} where a pattern should be"
            hint = 'say what to look for: ms.Pattern().begin("a", "x > 1")...'
            raise site.mistake(InvalidOption, fact, hint=hint)
        if strict and pattern.warnings:
            fact = f"would keep what nothing limits: {pattern.warnings[0]}"
            raise site.mistake(UnboundedState, fact, hint='say within("1 hour")')
        given = pattern.own_keys if by is None else by
        above, columns = self._keyed(site, self._own_key if given is None else given, "matches by")
        stage = Match(name, above.name, pattern, columns, emit, shards, where=site.where)
        return self.flow.add(stage, above)
