"""`distinct`: the first row of each value of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption, Where
from millstream.flow.durations import format as shown
from millstream.flow.stages import forms
from millstream.flow.stages.stage import OneInput, Reach, Tree
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Distinct(OneInput):
    """The first row, in event time, of each value of the `by` columns within a time."""

    kind: ClassVar[str] = "distinct"
    yaml_words: ClassVar[tuple[str, ...]] = ("distinct",)
    state: ClassVar[str] = "keys"

    name: str
    input: str
    by: tuple[str, ...]
    within: timedelta
    shards: int = 64
    where: Where | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        by, within = entry.texts("distinct") or [], entry.needed("within", "a time")
        return inputs[0].distinct(name, by=by, within=within)

    def to_yaml(self, flow: Flow) -> Tree:
        by = forms.columns(self.by)
        return {"from": self.input, "distinct": by, "within": shown(self.within)}

    @property
    def bounded_state(self) -> str:
        return f"keys of {shown(self.within)}"

    @property
    def state_key(self) -> tuple[str, ...]:
        return self.by

    @property
    def carried_at_cut(self) -> bool:
        return True

    def reach(self, service_window: timedelta) -> Reach:
        return Reach(handed_over=True)

    @property
    def grouped_by(self) -> tuple[str, ...]:
        return self.by

    def result_key(self, key: str | None) -> str | None:
        return key if key in self.by else self.by[0]

    @property
    def label(self) -> str:
        return f"distinct within {shown(self.within)}"


class DistinctMethod(Upstream):
    """`stream.distinct`."""

    __slots__ = ()

    def distinct(self, name: str, *, by: str | Sequence[str], within: str | timedelta) -> Stream:
        """Return, of rows that are equal in the `by` columns, the first in event time.

        A later one counts again after `within`.
        """
        site = self._site(name)
        self._check_timed(site, "distinct")
        if not by:
            hint = 'name at least one: by="flight"'
            raise site.mistake(InvalidOption, "is distinct by no column", hint=hint)
        length = site.positive(within, "within")
        above, columns = self._keyed(site, by, "is distinct by")
        return self.flow.add(Distinct(name, above.name, columns, length, where=site.where), above)
