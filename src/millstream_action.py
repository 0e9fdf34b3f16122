"""Write an action for Millstream in Python: a program that reads and writes frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from struct import Struct
from typing import NoReturn

LIMIT = 64 << 20
_LENGTH = Struct(">I")
_EMPTY = b"\0\0\0\0"
_CHUNK = 1 << 18

_output: list[bytes] = []
_held = 0


def read_message() -> bytes | None:
    """Return the next input, None at the end of all inputs."""
    return next(_inputs, None)


def write_message(payload: bytes) -> None:
    """Write an output: the answer to the input or, in the contract "stream", one of several."""
    global _held  # noqa: PLW0603
    if not payload:
        raise ValueError("an empty message is an acknowledgement: call ack_message")
    size = len(payload)
    _output.append(_LENGTH.pack(size) + payload)
    _held += 4 + size
    if _held >= _CHUNK:
        flush()


def ack_message() -> None:
    """Say that the input is done: without an output, or ("stream") after all of them."""
    global _held  # noqa: PLW0603
    _output.append(_EMPTY)
    _held += 4
    if _held >= _CHUNK:
        flush()


def write_error(error: object) -> None:
    """Log an error and answer the input with no output, so that the count of answers holds."""
    sys.stderr.write(f"error: {error}\n")
    sys.stderr.flush()
    ack_message()


def fatal(error: object) -> NoReturn:
    """Log an error and end the program with code 1; the input is given to another one."""
    flush()
    sys.stderr.write(f"fatal: {error}\n")
    sys.stderr.flush()
    os._exit(1)


def flush() -> None:
    """Write what is held back. Reading does it before it waits, and at the end of the inputs."""
    global _held  # noqa: PLW0603
    data = memoryview(b"".join(_output))
    _output.clear()
    _held = 0
    while data:
        data = data[os.write(1, data) :]


def _read() -> Iterator[bytes]:
    """Yield the inputs. A generator is the fastest way in Python to hand out one at a time."""
    length_at = _LENGTH.unpack_from
    data, at, wanted = b"", 0, 4
    while (data := _filled(data[at:], wanted)) is not None:
        at, wanted, last = 0, 4, len(data) - 4
        while at <= last:
            begin = at + 4
            end = begin + length_at(data, at)[0]
            if end > last + 4:
                wanted = end - at
                break
            yield data[begin:end]
            at = end
        if wanted > LIMIT + 4:
            fatal(f"an input of {wanted - 4} bytes is longer than the limit")


def _filled(data: bytes, wanted: int) -> bytes | None:
    """Return `data` with what follows it, at least `wanted` bytes; None at the end of the inputs."""
    pieces, have = [data], len(data)
    while have < wanted:
        flush()
        more = os.read(0, max(_CHUNK, wanted - have))
        if not more:
            if have:
                fatal("the input ends within a message")
            return None
        pieces.append(more)
        have += len(more)
    return b"".join(pieces)


_inputs = _read()
