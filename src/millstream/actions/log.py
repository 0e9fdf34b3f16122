"""What programs write to standard error, passed on line by line: not more than a log can bear."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

#: Called with a line.
WriteLog = Callable[[str], None]

_LONGEST: Final = 4096
_TAIL: Final = 20


class Seldom:
    """Passes on a line every few seconds, and counts the others: whoever connects can cause them."""

    def __init__(self, write: Callable[[str], None], *, every_s: float = 10.0) -> None:
        self._write, self._every_s = write, every_s
        self._next_at, self._left_out = float("-inf"), 0

    def write(self, line: str, now: float) -> None:
        if now < self._next_at:
            self._left_out += 1
            return
        self._next_at = now + self._every_s
        self._write(f"{line} (and {self._left_out:,} times before)" if self._left_out else line)
        self._left_out = 0


class LogLines:
    """Splits bytes into lines, passes on so many a second, counts the others, keeps the last.

    Memory and work are bounded whatever comes: a flood is counted, not kept.
    """

    def __init__(self, write: WriteLog, *, burst: int = 1000, per_second: float = 100.0) -> None:
        self._write = write
        self._burst = burst
        self._per_second = per_second
        self._credit = float(burst)
        self._at = 0.0
        self._rest = b""
        self._cut = False
        self._tail: deque[bytes] = deque(maxlen=_TAIL)
        self.left_out = 0

    @property
    def tail(self) -> list[str]:
        """The last lines, whether they were passed on or not."""
        rest = [self._rest] if self._rest else []
        return [_text(line) for line in [*self._tail, *rest]][-_TAIL:]

    def feed(self, data: bytes, now: float) -> None:
        self._credit = min(float(self._burst), self._credit + (now - self._at) * self._per_second)
        self._at = now
        if self._credit < 1.0:
            self._skip(data)
            return
        first, *others = data.split(b"\n")
        lines = [self._rest + first, *others]
        self._rest = lines.pop()
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST:
            self._line(self._rest)
            self._rest = b""

    def _line(self, line: bytes) -> None:
        self._tail.append(line[:_LONGEST])
        if self._credit < 1.0:
            self.left_out += 1
            return
        self._credit -= 1.0
        self._say_left_out()
        self._write(_text(line))

    def _skip(self, data: bytes) -> None:
        """Count lines without looking at them, but for the last."""
        self.left_out += data.count(b"\n")
        end = (self._rest + data)[-_LONGEST * 2 :]
        *lines, self._rest = end.split(b"\n")
        self._rest = self._rest[-_LONGEST:]
        self._tail.extend(line[:_LONGEST] for line in lines)

    def _say_left_out(self) -> None:
        if self.left_out:
            self._write(f"... {self.left_out:,} lines left out")
            self.left_out = 0

    def close(self) -> None:
        """Pass on what is left."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        self._say_left_out()


def _text(line: bytes) -> str:
    return line[:_LONGEST].decode("utf-8", "replace").rstrip("\r")
