"""`source`: events from outside, through the journal of the source's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Literal

from millstream.errors import Where
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.stages.stage import ZERO, Written


@dataclass(frozen=True, slots=True)
class Source(Written):
    """Events from outside, through the journal of the source's name."""

    kind: ClassVar[str] = "source"
    noun: ClassVar[str] = "source"
    writer: ClassVar[Literal["source", "group"]] = "source"

    name: str
    origin: SourceSpec
    schema: Schema
    time: str | None = None
    lateness: timedelta = ZERO
    key: str | None = None
    ahead: timedelta = timedelta(days=1)
    idle: timedelta = timedelta(seconds=10)
    partitions: int = 1
    keep_for: timedelta | None = None
    keep_bytes: int | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def declared(self) -> Schema:
        return self.schema
