"""What a flow knows of the sources of its events; the sources themselves are in `connectors/`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from millstream.flow.schema import Schema
from millstream.flow.spec import Spec

Payload = Literal["json", "raw"]
"""What a message of a runtime holds: a JSON object, or the bytes of one column."""


@dataclass(frozen=True, slots=True)
class Intake:
    """How programs send to a source: who may, where runtimes do, and what their messages hold."""

    producers: tuple[str, ...] | None = None
    runtimes: str | None = None
    format: Payload = "json"
    #: The nodes that may send there; None: any.
    nodes: tuple[str, ...] | None = None


class SourceSpec(Spec):
    """A source as data. All events go through a journal of the source's name."""

    __slots__ = ()

    #: "module:function" that opens it, given this and an `ingest.OriginContext`; None if there is
    #: nothing to read, because programs send the events.
    reader: ClassVar[str | None] = None

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of its events."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether it ends."""

    @property
    def intake(self) -> Intake | None:
        """How programs send to it, if they do."""
        return None

    @property
    def spread(self) -> bool:
        """Whether the engines of a cluster may share it.

        Each reads what belongs to the partitions of the journal that live with it (`Feed.here`).
        """
        return False

    def timed_by(self, time: str | None) -> Self:  # noqa: ARG002 (most have no use for it)
        """Return it with the source's time column, if it needs one and has none of its own."""
        return self
