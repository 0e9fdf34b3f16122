"""What a flow knows of the targets of its sinks, and static tables that streams are joined with.

The targets themselves are in `connectors/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar, Literal

from millstream.flow.formats import Format, format_of
from millstream.flow.schema import Schema
from millstream.flow.spec import Spec

Reprocessing = Literal["withdrawn", "repeated", "ignored"]


class TargetSpec(Spec):
    """The target of a sink as data."""

    __slots__ = ()

    #: "module:function" that opens it for writing, given this and a `spark.io.targets.SinkContext`.
    writer: ClassVar[str]
    #: What happens to published results when they are processed again: they are withdrawn; or they
    #: stay and come a second time, which needs the user's consent; or nobody minds.
    reprocessing: ClassVar[Reprocessing] = "repeated"
    #: Whether it writes on this host, and so waits for no other.
    local: ClassVar[bool] = False
    #: Fields that do not change what the results mean: fingerprints leave them out.
    incidental: ClassVar[tuple[str, ...]] = ()

    @property
    def seen_again(self) -> str:
        """What readers see of results that come again, if it is not obvious."""
        return ""


@dataclass(frozen=True, slots=True)
class Table:
    """A static table that a stream looks rows up in."""

    kind: ClassVar[str] = "table"

    path: str
    format: Format
    schema: Schema | None = None


def table(
    path: str | PathLike[str], *, format: str | None = None, schema: str | None = None
) -> Table:
    """A static table in a file or folder, to join a stream with."""
    columns = None if schema is None else Schema.parse(schema)
    return Table(fspath(path), format_of(fspath(path), format), columns)
