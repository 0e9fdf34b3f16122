"""Shows results on the terminal. A batch that is run again is shown again."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from rich.console import Console as Terminal
from rich.table import Table as Grid

from millstream.connectors.console import Console
from millstream.spark.io.targets import Epoch, SinkContext, Target


class ConsoleTarget(Target):
    """A table in the terminal for every epoch that has rows."""

    def __init__(self, target: Console, name: str, terminal: Terminal | None) -> None:
        self._most = target.rows
        self._name = name
        # Who shows something else there too, such as a live table, lends its terminal.
        self._terminal = terminal or Terminal(file=sys.stdout)

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        table = frame.limit(self._most + 1).toArrow()
        if table.num_rows == 0:
            return 0
        grid = Grid(title=f"{self._name}, batch {epoch.batch}", title_justify="left")
        for name in table.column_names:
            grid.add_column(name)
        for row in table.slice(0, self._most).to_pylist():
            grid.add_row(*(str(value) for value in row.values()))
        self._terminal.print(grid)
        if table.num_rows > self._most:
            self._terminal.print(f"only the first {self._most} rows are shown")
        return int(table.num_rows)


def open_console(spec: Console, context: SinkContext) -> ConsoleTarget:
    """Open the terminal for a sink."""
    return ConsoleTarget(spec, context.sink, context.terminal)
