"""Pictures of figures for the docs: bars with their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from millstream.web import plots

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.name{fill:#1f2328}.end{text-anchor:end}"
    ".c1{fill:#0b69c7}.c2{fill:#d4700a}.c3{fill:#11936f}"
)


def bars(
    name: str, values: Sequence[tuple[str, float, str]], colour: int, label: str, to: Path = IMAGES
) -> None:
    """Write a picture with a bar for each of (name, value, note)."""
    plot = plots.bars(values, colour=colour, label=label)
    svg = plot.svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="506" ', 1)
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{name}.svg").write_text(svg.replace(">", f"><style>{STYLE}</style>", 1) + "\n")


def counted(count: int, noun: str) -> str:
    """Return "1 run", "2 runs"."""
    return f"{count:,} {noun}{'s'[: count != 1]}"
