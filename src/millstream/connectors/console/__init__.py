"""Results on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.spec import Tree
from millstream.flow.targets import Reprocessing, TargetSpec

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Console(TargetSpec):
    """The terminal: the first `rows` of each batch. A batch may be shown again after a crash."""

    kind: ClassVar[str] = "console"
    writer: ClassVar[str] = "millstream.connectors.console.target:open_console"
    reprocessing: ClassVar[Reprocessing] = "ignored"
    incidental: ClassVar[tuple[str, ...]] = ("rows",)

    rows: int = 20

    @classmethod
    def from_yaml(cls, entry: Entry) -> Console:
        rows = entry.whole("console")
        return console() if rows is None else console(rows=rows)

    def to_yaml(self) -> Tree:
        return {"console": self.rows}


def console(*, rows: int = 20) -> Console:
    """Results on the terminal, up to `rows` a batch."""
    if rows < 1:
        msg = f"a console that shows {rows} rows shows nothing"
        raise InvalidOption(msg, hint="give a number above 0")
    return Console(rows)


connector = Connector(targets=(Console,))
