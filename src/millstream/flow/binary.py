"""The name of a program that engines keep: `score@2`, or `score@latest` for the newest one.

The newest is chosen when the flow is deployed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LATEST: Final = "latest"
#: How such a program may be called.
NAME: Final = "[A-Za-z][A-Za-z0-9_.-]{0,127}"
_WHOLE: Final = re.compile(rf"({NAME})@({LATEST}|[1-9][0-9]{{0,8}})")


@dataclass(frozen=True, slots=True)
class BinaryName:
    """A program by its name and version; without one it is the newest."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.name}@{LATEST if self.version is None else self.version}"


def parse(text: str) -> BinaryName | None:
    """Return which program of an engine's a text names; None: it is a path, or a program on PATH.

    Example:
        >>> parse("score@2"), str(parse("score@latest")), parse("./score"), parse("score")
        (BinaryName(name='score', version=2), 'score@latest', None, None)
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    return BinaryName(found[1], None if found[2] == LATEST else int(found[2]))
