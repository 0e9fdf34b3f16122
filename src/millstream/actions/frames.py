"""Frames: what a program reads from its standard input and writes to its standard output.

    u32 length, big-endian │ payload

A frame of length 0 is an answer without output. Nothing in the bytes says where a frame begins, so
after a frame that is too long, or torn, there is no way on: the program is at fault, and is started
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from millstream.errors import FrameTooLarge, FrameTorn

LIMIT: Final = 64 << 20
"""The longest payload, unless a limit is given."""

_LENGTH: Final = Struct(">I")
_HEAD: Final = _LENGTH.size


def encode(payload: bytes) -> bytes:
    """Return the frame of a payload.

    Example:
        >>> encode((6).to_bytes(4, "big")).hex(" ", 4)
        '00000004 00000006'
    """
    return _LENGTH.pack(len(payload)) + payload


def encode_all(payloads: Iterable[bytes]) -> bytes:
    """Return the frames of payloads, one after the other."""
    pack = _LENGTH.pack
    pieces: list[bytes] = []
    for payload in payloads:
        pieces += (pack(len(payload)), payload)
    return b"".join(pieces)


class Decoder:
    """Takes bytes as they come, in any pieces, and gives the payloads of whole frames.

    No more is kept than one unfinished frame, which is at most `limit` long.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._wanted = _HEAD

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that are complete now.

        Raises:
            FrameTooLarge: A frame says that it is longer than the limit; nothing more can be read.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        frames, end = self._split(data)
        if end < len(data):
            self._rest += memoryview(data)[end:]
            self._wanted = self._needed()
        return frames

    def _split(self, data: bytes) -> tuple[list[bytes], int]:
        frames: list[bytes] = []
        unpack, limit, size, at = _LENGTH.unpack_from, self._limit, len(data), 0
        while size - at >= _HEAD:
            (length,) = unpack(data, at)
            if length > limit:
                raise _too_large(length, limit)
            end = at + _HEAD + length
            if end > size:
                break
            frames.append(data[at + _HEAD : end])
            at = end
        return frames, at

    def _needed(self) -> int:
        if len(self._rest) < _HEAD:
            return _HEAD
        return _HEAD + int(_LENGTH.unpack_from(self._rest)[0])

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are here."""
        return len(self._rest)

    def finish(self) -> None:
        """Say that no more bytes come.

        Raises:
            FrameTorn: They end within a frame.
        """
        if self._rest:
            msg = f"the bytes end within a frame: {len(self._rest)} of {self._wanted} are there"
            raise FrameTorn(msg, hint="a program writes whole frames, and flushes before it ends")


def _too_large(length: int, limit: int) -> FrameTooLarge:
    msg = f"a frame of {length:,} bytes is longer than the limit of {limit:,}"
    return FrameTooLarge(msg, hint="text on standard output? the log belongs on standard error")
