"""`reads`: a journal of the flow that is written further down, the way to build a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from millstream.errors import Where
from millstream.flow.schema import Schema
from millstream.flow.stages.stage import EntryPoint


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
