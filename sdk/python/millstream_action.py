"""Write an action for Millstream in Python: a program that reads and writes frames. See README.md."""

from __future__ import annotations

import os
import sys
from struct import Struct
from typing import NoReturn

LIMIT = 64 << 20
_LENGTH = Struct(">I")
_EMPTY = b"\0\0\0\0"
_CHUNK = 1 << 18

_input = b""
_at = 0
_output: list[bytes] = []
_held = 0


def read_message() -> bytes | None:
    """Return the next input, None at the end of all inputs."""
    global _at  # noqa: PLW0603
    if len(_input) - _at < 4 and not _fill(4):
        return None
    (length,) = _LENGTH.unpack_from(_input, _at)
    if length > LIMIT:
        fatal(f"an input of {length} bytes is longer than the limit")
    if len(_input) - _at < 4 + length:
        _fill(4 + length)
    begin = _at + 4
    _at = begin + length
    return _input[begin:_at]


def write_message(payload: bytes) -> None:
    """Write an output. In the contract "one" it is the answer to the input; in "stream" more may follow."""
    if not payload:
        raise ValueError("an empty message is an acknowledgement: call ack_message")
    _put(_LENGTH.pack(len(payload)), payload)


def ack_message() -> None:
    """Say that the input is done: without an output, or ("stream") after all of them."""
    _put(_EMPTY, b"")


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
    """Write what is held back. Reading does it whenever it has to wait; so does the end of the inputs."""
    global _held  # noqa: PLW0603
    data = memoryview(b"".join(_output))
    _output.clear()
    _held = 0
    while data:
        data = data[os.write(1, data) :]


def _put(head: bytes, payload: bytes) -> None:
    global _held  # noqa: PLW0603
    _output.append(head + payload)
    _held += 4 + len(payload)
    if _held >= _CHUNK:
        flush()


def _fill(wanted: int) -> bool:
    """Read until `wanted` bytes are there; False at the end, if it does not lie within a message."""
    global _input, _at
    pieces, have = [_input[_at:]], len(_input) - _at
    while have < wanted:
        flush()
        data = os.read(0, max(_CHUNK, wanted - have))
        if not data:
            if have:
                fatal("the input ends within a message")
            return False
        pieces.append(data)
        have += len(data)
    _input, _at = b"".join(pieces), 0
    return True
