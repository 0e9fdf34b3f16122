"""`join`: pairs of rows of two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, cast, get_args

from millstream.errors import InvalidOption, NotLoadable, UnboundedJoin, Where
from millstream.flow.durations import format as shown
from millstream.flow.keys import own_column
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.lookup import columns_on, joined, looked_up
from millstream.flow.stages.merge import listed_streams
from millstream.flow.stages.stage import ZERO, Reach, Stage, Tree
from millstream.flow.stages.upstream import Upstream
from millstream.flow.targets import Table

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

How = Literal["inner", "left", "right", "full", "semi"]


@dataclass(frozen=True, slots=True)
class Join(Stage):
    """Pairs of rows of two streams, equal in the `on` columns and at most `within` apart in time.

    Its columns are the left's, then the right's without `on` and without the right's time column if
    that has the left's name. Its time is the left's; the right's where an outer join has no left
    row. A pair starts with the earlier of its rows, whichever side that is on.
    """

    kind: ClassVar[str] = "join"
    yaml_words: ClassVar[tuple[str, ...]] = ("join",)
    older_cuts_by_time: ClassVar[bool] = True
    state: ClassVar[str] = "rows"

    name: str
    left: str
    right: str
    on: tuple[str, ...]
    within: timedelta
    how: How = "inner"
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        left, right = inputs
        # The right's time goes where it has the left's name.
        dropped = [*self.on, *([right.time] if right.time and right.time == left.time else [])]
        schema = left.schema
        if self.how != "semi":
            schema = joined(site, left.schema, right.schema, dropped)
        lateness = max(left.lateness, right.lateness)
        return replace(left, name=self.name, schema=schema, lateness=lateness)

    @classmethod
    def yaml_inputs(cls, entry: Entry) -> list[str]:
        names = listed_streams(entry, "join")
        if len(names) != 2:
            fact, hint = (
                f"{entry.title} joins {len(names)} streams",
                'expected "join: [left, right]"',
            )
            raise NotLoadable(fact, hint=hint, where=entry.where)
        return names

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        on, within, how = entry.texts("on") or [], entry.text("within"), entry.text("how")
        return inputs[0].join(name, inputs[1], on=on, within=within, how=how or "inner")

    def to_yaml(self, flow: Flow) -> Tree:
        tree = {"join": [self.left, self.right], "on": forms.columns(self.on)}
        return {**tree, "within": shown(self.within), "how": self.how}

    @property
    def bounded_state(self) -> str:
        return f"rows of {shown(self.within)}"

    def reach(self, service_window: timedelta) -> Reach:
        look_back = ZERO if self.how == "inner" else self.within
        return Reach(self.within, look_back, behind=self.within)

    def begun_before(self, above: timedelta | None, service_window: timedelta) -> timedelta | None:
        # Its time is the left row's. Outer and semi joins look back as far as any partner may lie.
        return above if above is None or self.how != "inner" else above + self.within

    @property
    def hidden_start(self) -> bool:
        return self.how != "semi"

    @property
    def label(self) -> str:
        return f"{self.how} join within {shown(self.within)}"


class JoinMethod(Upstream):
    """`stream.join`, with a stream or with a table."""

    __slots__ = ()

    def join(
        self,
        name: str,
        other: Stream | Table,
        *,
        on: str | Sequence[str],
        within: str | timedelta | None = None,
        how: str = "inner",
    ) -> Stream:
        """Return pairs of rows that are equal in the `on` columns.

        With a stream their times are at most `within` apart; a table has no time.

        Args:
            name: The stage's name.
            other: The right side.
            on: Columns that both sides have. An expression is computed on the sides that do not
                have a column of its name: `on="upper(shop) as code"`; a table must have it.
            within: For two streams: how far apart their rows' times may be.
            how: "inner", "left", "right", "full" or "semi"; with a table "inner" or "left".
        """
        site = self._site(name)
        if isinstance(other, Table):
            above, columns = self._keyed(site, on, "joins on")
            return self.flow.add(looked_up(above, site, other, columns, within, how), above)
        self._check_own(site, other)
        if how not in get_args(How):
            hint = f"how= is one of {', '.join(get_args(How))}"
            raise site.mistake(InvalidOption, f'joins "{how}"', hint=hint)
        for stream in (self, other):
            stream._check_timed(site, "join of streams")
        if within is None:
            fact = f'joins the streams "{self.name}" and "{other.name}" without a bound in time'
            hint = 'say how far apart rows may be: within="1 hour"'
            raise site.mistake(UnboundedJoin, fact, hint=hint)
        bound = site.duration(within, "within")
        names = (on,) if isinstance(on, str) else tuple(on)
        theirs = tuple(own_column(other.schema, one) for one in names)
        ours = tuple(
            own_column(self.schema, one) if one == their else one
            for one, their in zip(names, theirs, strict=True)
        )
        left, columns = self._keyed(site, ours, "joins on", "left-key")
        right, _ = other._keyed(site, theirs, "joins on", "right-key")
        columns_on(site, columns, (left.name, left.schema), (right.name, right.schema))
        stage = Join(name, left.name, right.name, columns, bound, cast("How", how), site.where)
        return self.flow.add(stage, left, right)
