"""Showing text of others: names, reasons, records and logs never control a terminal.

Whatever goes to the terminal passes one of two places, both of which use `neutral`: streams that
`guarded` has put before standard output and error, for what is printed, and `console.Console`, for
what Rich lays out. JSON escapes by itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

#: Control characters except newline and tab, marks that turn the direction of text, and halves of
#: characters, which cannot be written at all.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def neutral(text: str) -> str:
    r"""Return a text in which control characters are written as escapes.

    Example:
        >>> print(neutral("\x1b[31mred"))
        \x1b[31mred
    """
    return _UNSAFE.sub(lambda found: _escaped(ord(found.group())), text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class _Guarded:
    """A stream that lets no control characters pass."""

    def __init__(self, stream: TextIO) -> None:
        #: What consoles of Rich write to: they have their own escape sequences.
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(neutral(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Let what is printed meanwhile pass `neutral`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
