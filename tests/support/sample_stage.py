"""`sample`: a kind of stage that this test suite adds to Millstream, in this file and `sample_spark`.

It lets one row of so many pass, by the hash of a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption, Where
from millstream.flow.site import Site
from millstream.flow.stages import OneInput, register

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@register
@dataclass(frozen=True, slots=True)
class Sample(OneInput):
    """One row of `every`, by the hash of a column."""

    kind: ClassVar[str] = "sample"
    yaml_words: ClassVar[tuple[str, ...]] = ("sample",)
    spark: ClassVar[str] = "support.sample_spark"

    name: str
    input: str
    every: int
    by: str
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        if self.every < 1:
            raise site.mistake(
                InvalidOption, f"takes one row of {self.every}", hint="give 1 or more"
            )
        site.column(inputs[0].schema, self.by, self.input, verb="samples by")
        return inputs[0].derived(self.name, inputs[0].schema)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        by = entry.needed("by", "a column")
        return inputs[0].stage(name, cls, every=entry.whole("sample"), by=by)

    def to_yaml(self, flow: Flow) -> dict[str, object]:
        return {"from": self.input, "sample": self.every, "by": self.by}

    @property
    def label(self) -> str:
        return f"one of {self.every}"
