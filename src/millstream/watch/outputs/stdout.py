"""Standard output: a JSON object on each line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from millstream.watch.outbox import Entry


class StdoutOutput:
    """Lines of JSON; what reads them is not known to have them, so a crash may repeat the last."""

    name = "stdout"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def deliver(self, entries: Sequence[Entry]) -> None:
        self._stream.write("".join(f"{entry.json.decode()}\n" for entry in entries))
        self._stream.flush()

    def close(self) -> None:
        """Standard output stays open."""


def make(_rest: str, **_context: object) -> StdoutOutput:
    """Return the output "stdout"."""
    return StdoutOutput()
