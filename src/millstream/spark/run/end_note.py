"""Where the end of a flow is noted: see `spark/ended.py`. Loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "ended.json"


def may_have_ended(folder: Path) -> bool:
    """Tell whether an end was noted: then Spark may not be needed."""
    return (folder / FILE).exists()
