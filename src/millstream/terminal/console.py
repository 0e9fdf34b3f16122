"""A console of Rich that is safe for text of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment

from millstream.terminal import neutral


class Console(rich.console.Console):
    """A console of Rich that writes text as it is: no control characters, no markup in it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, **options})

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else Segment(neutral(segment.text), segment.style)
            for segment in buffer
        )
