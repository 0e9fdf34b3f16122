"""`sink`: the way out. It has no stream, and is no stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from millstream.errors import Where
from millstream.flow.targets import TargetSpec


@dataclass(frozen=True, slots=True)
class Sink:
    """The rows of a stream go to a target."""

    kind: ClassVar[str] = "sink"

    name: str
    input: str
    target: TargetSpec
    where: Where | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class SinkGroup:
    """Sinks that share a query, or one that shares none."""

    name: str
    sinks: tuple[str, ...]
    where: Where | None = field(default=None, compare=False, repr=False)
