"""Shows results on the terminal. A batch that is run again is shown again."""

from __future__ import annotations

import re
import sys
from itertools import islice
from typing import ClassVar, Final

from pyspark.sql import DataFrame
from rich.table import Table as Grid
from rich.text import Text

from millstream.connectors.console import Console
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import in_python
from millstream.terminal.console import Console as Terminal


class ConsoleTarget(Target):
    """A table in the terminal for every epoch that has rows."""

    decides: ClassVar[bool] = True

    def __init__(self, target: Console, context: SinkContext) -> None:
        self._most = target.rows
        self._context = context
        # Who shows something else there too, such as a live table, lends its terminal.
        self._terminal = context.terminal or Terminal(file=sys.stdout)

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        found = in_python(frame.limit(self._most + 1).toArrow())
        self._context.refuse(found.refused, epoch)
        if not len(found):
            return 0
        epoch.decide(f"console:{self._context.owner}", "")
        title = f"{self._context.sink}, batch {epoch.batch}"
        grid = Grid(title=title, title_justify="left")
        for name in found.names:
            grid.add_column(_shown(name))
        for row in islice(found.tuples(), self._most):
            grid.add_row(*map(_shown, row))
        self._terminal.print(grid)
        if len(found) > self._most:
            self._terminal.print(f"only the first {self._most} rows are shown")
        return len(found)


def _shown(value: object) -> Text:
    # As text: what is in brackets is no markup, and what a terminal would obey is shown instead.
    return Text(_CONTROLS.sub(lambda found: repr(found[0])[1:-1], str(value)))


#: Control characters except tabs and newlines, which a table lays out.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def open_console(spec: Console, context: SinkContext) -> ConsoleTarget:
    """Open the terminal for a sink."""
    return ConsoleTarget(spec, context)
