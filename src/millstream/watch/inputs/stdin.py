"""Standard input: a JSON object on each line."""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import Final

from millstream.errors import InvalidOption
from millstream.watch.inputs import Feed

_CHUNK: Final = 1 << 20
_LONGEST: Final = 16 << 20
_KEPT: Final = 1 << 10
_log = logging.getLogger(__name__)


class StdinInput:
    """Lines of JSON, as many at once as are there."""

    name = "stdin"

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._woken, self._wake = os.pipe()
        self._line = 0

    def run(self, feed: Feed) -> None:
        rest, skipping = b"", False
        while chunk := self._read():
            *lines, rest = (rest + chunk).split(b"\n")
            if skipping and lines:
                lines[0], skipping = b"", False  # the end of a line that is too long
            self._take(feed, lines)
            if len(rest) > _LONGEST and not skipping:
                self._skip(feed, rest)
                skipping = True
            rest = b"" if skipping else rest
        self._take(feed, [rest])

    def _read(self) -> bytes:
        # Not select(), which knows no descriptor above 1,023.
        poll = select.poll()
        for descriptor in (self._descriptor, self._woken):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        return b"" if self._woken in ready else os.read(self._descriptor, _CHUNK)

    def _take(self, feed: Feed, lines: list[bytes]) -> None:
        given = [
            (number, line) for number, line in enumerate(lines, self._line + 1) if line.strip()
        ]
        self._line += len(lines)
        if given:
            for bad in feed.take([line for _, line in given], source=self.name):
                _log.warning("line %d is no event: %s", given[bad.place][0], bad.reason)

    def _skip(self, feed: Feed, line: bytes) -> None:
        """Put the beginning of a line aside that is too long to be an event."""
        _log.warning("line %d has more than %d bytes: it is skipped", self._line + 1, _LONGEST)
        feed.take([line[:_KEPT]], source=self.name)

    def stop(self) -> None:
        os.write(self._wake, b".")


def make(_rest: str, **_context: object) -> StdinInput:
    """Return the input "stdin"."""
    if sys.stdin is None:
        raise InvalidOption("standard input is closed", hint="name where events come from: --in")
    return StdinInput()
