"""What several commands print, and how they notice Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from millstream.terminal.console import Console

if TYPE_CHECKING:
    from millstream.engine.jobs.status import GroupStatus, JobStatus, SwitchStatus
    from millstream.spark.run.query import GroupStatistics


def encoded(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def show(value: Any, shown: RenderableType, *, json: bool) -> None:
    """Print a value as JSON, or what is shown of it."""
    if json or isinstance(shown, str):
        print(encoded(value) if json else shown)
    else:
        Console(width=None if Console().is_terminal else 140).print(shown)


def table(left: tuple[str, ...], right: tuple[str, ...] = ()) -> Table:
    """Return a table with columns of text, then columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        made.add_column(name)
    for name in right:
        made.add_column(name, justify="right")
    return made


def group_cells(group: GroupStatus | GroupStatistics) -> tuple[str, ...]:
    """Return the batch, the lag, the watermark and the state of a group."""
    lag = f"{group.lag_rows:,} ({group.lag_seconds:.1f} s)" if group.lag_rows else "0"
    # A group without state ends without a watermark that says so.
    watermark = "ended" if group.finished else moment(group.watermark_ms)
    state = f"{group.state_rows:,}"
    return f"{group.batch_seconds:.1f} s", lag, watermark, state


def moment(milliseconds: int | None) -> str:
    """Return a watermark as text."""
    if milliseconds is None:
        return "-"
    if milliseconds > 7_000_000_000_000:
        return "ended"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds_of(text: str) -> float:
    """Return a timestamp as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


@contextmanager
def status_line(
    line: Callable[[SwitchStatus], str],
) -> Iterator[Callable[[JobStatus], None] | None]:
    """Show a person how a switch goes, in a line on the terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status("") as shown:

        def update(status: JobStatus) -> None:
            if status.switch is not None:
                shown.update(line(status.switch))

        yield update


@contextmanager
def interrupted(*, twice: bool = False) -> Iterator[threading.Event]:
    """Set an event at Ctrl-C or SIGTERM; with `twice`, the second ends the process at once."""
    seen = threading.Event()

    def note(_number: int, _frame: Any) -> None:
        if twice and seen.is_set():
            # As kill -9 would: what was started ends with us, and the next start goes on.
            os._exit(130)
        seen.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
