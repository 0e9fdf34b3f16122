"""`reads`: a journal of the flow that is written further down, the way to build a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import SchemasDiffer, TimesDiffer, Where
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.stage import EntryPoint

if TYPE_CHECKING:
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Reads(EntryPoint):
    """A stream that reads a journal of this flow which is written further down."""

    kind: ClassVar[str] = "reads"

    name: str
    journal: str
    schema: Schema
    time: str | None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def journal_name(self) -> str:
        return self.journal

    @property
    def declared(self) -> Schema:
        return self.schema

    def check_written(self, site: Site, written: Stream) -> None:
        """Refuse a journal that is written with other columns or another time than it is read."""
        schema = written.schema
        found = schema.differences(written.name, self.schema, self.name) if schema else []
        if found:
            fact = f'is written and read ("{self.name}") with different columns: {"; ".join(found)}'
            hint = "give reads(...) the columns that are written"
            raise site.mistake(SchemasDiffer, fact, hint=hint)
        if self.time != written.time:
            read = f'read ("{self.name}") with {self.time or "none"}'
            fact = f"is written with the time {written.time or 'none'} and {read}"
            hint = "give reads(...) the time column that is written"
            raise site.mistake(TimesDiffer, fact, hint=hint)
