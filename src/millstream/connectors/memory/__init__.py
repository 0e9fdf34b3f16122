"""Results in the memory of the running process, for tests and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.flow.connector import Connector
from millstream.flow.spec import Tree
from millstream.flow.targets import Reprocessing, TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Memory(TargetSpec):
    """The memory of the running process, for tests and notebooks."""

    kind: ClassVar[str] = "memory"
    writer: ClassVar[str] = "millstream.connectors.memory.target:open_memory"
    reprocessing: ClassVar[Reprocessing] = "withdrawn"

    @classmethod
    def from_yaml(cls, entry: Entry) -> Memory:
        entry.get("memory")
        return memory()

    def to_yaml(self) -> Tree:
        return {"memory": None}


def memory() -> Memory:
    """Results kept in memory, for tests and notebooks."""
    return Memory()


connector = Connector(targets=(Memory,))
