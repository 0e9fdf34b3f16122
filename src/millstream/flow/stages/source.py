"""`source`: events from outside, through the journal of the source's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Literal

from millstream.errors import Where
from millstream.flow.keys import KeyExpression
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.stages.stage import ZERO, Tree, Written


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
    #: The key, where it is an expression: it plays no part in where rows are.
    keyed_by: KeyExpression | None = None
    #: Where the journal is kept; None: in the job's folder.
    address: str | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    def described(self, fields: Tree) -> Tree:
        keyed_by = fields.pop("keyed_by")
        if self.address is None:
            del fields["address"]
        return fields if keyed_by is None else {**fields, "key": str(keyed_by)}

    @property
    def declared(self) -> Schema:
        return self.schema
