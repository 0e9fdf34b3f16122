"""Standard output: a JSON object on each line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from millstream.watch.outbox import Entry


class StdoutOutput:
    """Lines of JSON; what reads them is not known to have them, so a crash may repeat the last."""

    name = "stdout"

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor

    def deliver(self, entries: Sequence[Entry]) -> None:
        data = memoryview(b"".join(entry.json + b"\n" for entry in entries))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Standard output stays open."""


def make(_rest: str, **_context: object) -> StdoutOutput:
    """Return the output "stdout"."""
    return StdoutOutput()
