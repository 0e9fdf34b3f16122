"""The frames of a whole batch, as columns: from payloads to bytes and back, not one by one."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.actions.program import Contract, Limits
from millstream.errors import FrameTooLarge, TooManyAnswers

_U32: Final = Struct(">I")
_HEAD: Final = _U32.size
_ROOM: Final = 1 << 16
_PIECE: Final = 1 << 18
_WORTH: Final = (
    16  # frames of one length in a row: below that looking for them costs more than it saves
)


def pieces_of(payloads: pa.Array) -> Iterator[memoryview]:
    """Yield the frames of a binary column in pieces: the program works while the next is made.

    Null becomes a frame of length 0. A piece is good until the next one is asked for: they share
    memory, which stays in the processor's cache.
    """
    if not len(payloads):
        return
    filled = pc.fill_null(payloads, b"") if payloads.null_count else payloads
    offsets = _offsets(filled)
    size = int(offsets[-1] - offsets[0]) + _HEAD * len(filled)
    rows = max(1, len(filled) * _PIECE // size)
    length = _one_length(offsets)
    yield from _joined(filled, rows) if length is None else _equal(filled, rows, length)


def _one_length(offsets: Any) -> int | None:
    """Return the length that all values have, None if they differ or are empty."""
    length = int(offsets[1] - offsets[0])
    return length if length and (np.diff(offsets) == length).all() else None


def _equal(payloads: pa.Array, rows: int, length: int) -> Iterator[memoryview]:
    """Yield frames of one length, as a matrix: five times as fast as joining them."""
    count, step = len(payloads), _HEAD + length
    values = np.frombuffer(payloads.buffers()[2], f"V{length}", count, int(_offsets(payloads)[0]))
    piece = pa.allocate_buffer(min(rows, count) * step)
    frames, view = np.frombuffer(piece, _row(length)), memoryview(piece)
    frames["head"] = length
    bodies = frames["payload"]
    for begin in range(0, count, rows):
        part = values[begin : begin + rows]
        bodies[: len(part)] = part
        yield view[: len(part) * step]


def _row(length: int) -> Any:
    """Return the type of a frame of this length, head and payload."""
    return np.dtype([("head", ">u4"), ("payload", f"V{length}")])


def _joined(payloads: pa.Array, rows: int) -> Iterator[memoryview]:
    for begin in range(0, len(payloads), rows):
        part = payloads.slice(begin, rows)
        whole = pc.binary_join_element_wise(_heads(part), part, pa.scalar(b"", part.type))
        offsets = _offsets(whole)
        yield memoryview(whole.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _heads(payloads: pa.Array) -> pa.Array:
    """Return the heads of the frames, as a column of the payloads' kind."""
    offsets = _offsets(payloads)
    width = offsets.dtype
    places = np.arange(0, _HEAD * len(offsets), _HEAD, dtype=width)
    lengths = np.diff(offsets).astype(">u4")
    return pa.Array.from_buffers(
        payloads.type, len(payloads), [None, pa.py_buffer(places), pa.py_buffer(lengths)]
    )


def _offsets(column: pa.Array) -> Any:
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    return np.frombuffer(
        column.buffers()[1], width, len(column) + 1, column.offset * np.dtype(width).itemsize
    )


class Answers:
    """Takes what a program answers to `count` inputs, and knows when that is all.

    Bytes are read into one buffer, in which the frames stay; only where each begins is noted.
    """

    def __init__(
        self,
        count: int,
        contract: Contract,
        limits: Limits,
        room: int = _ROOM,
        buffer: bytearray | None = None,
    ) -> None:
        """Take answers to `count` inputs, in a buffer that may have been used before."""
        self._count = count
        self._contract = contract
        self._limits = limits
        room = max(room, _ROOM)
        self._buffer = buffer if buffer is not None and len(buffer) >= room else bytearray(room)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._at = 0
        self._lengths: list[Any] = []  # arrays of the lengths of the frames, in order
        self._frames = 0
        #: How many inputs are answered to the end.
        self.complete = 0

    @property
    def buffer(self) -> bytearray:
        """The buffer, to be used again once the outputs are taken: they are copies."""
        return self._buffer

    def view(self) -> memoryview:
        """Return the room for more bytes."""
        if len(self._buffer) - self._filled < _ROOM:
            larger = bytearray(2 * len(self._buffer) + _ROOM)
            larger[: self._filled] = self._view[: self._filled]
            self._buffer, self._view = larger, memoryview(larger)
        return self._view[self._filled :]

    def take(self, read: int) -> bool:
        """Look at so many more bytes; True if every input is answered.

        Raises:
            FrameTooLarge: A frame, or all answers to an input, are beyond the limit.
            TooManyAnswers: There are more answers than inputs.
        """
        self._filled += read
        self._split()
        if self.complete > self._count or (
            self.complete == self._count and self._at < self._filled
        ):
            raise TooManyAnswers(f"answered more often than it was asked: {self._count:,} times")
        open_bytes = self._filled - self._at if self._contract == "one" else self._filled
        if open_bytes > self._limits.answer_bytes * max(1, self._count):
            msg = f"answered with more than {self._limits.answer_bytes:,} bytes an input"
            raise FrameTooLarge(msg)
        return self.complete == self._count

    def _split(self) -> None:
        while self._filled - self._at >= _HEAD:
            run, length = self._run()
            if run < _WORTH:
                self._one_by_one()
                return
            self._note(np.full(run, length, np.int64))
            self._at += run * (_HEAD + length)

    def _run(self) -> tuple[int, int]:
        """Return how many frames of one length come next, and that length."""
        (length,) = _U32.unpack_from(self._buffer, self._at)
        self._check(length)
        step = _HEAD + length
        most = (self._filled - self._at) // step
        if most < _WORTH:
            return most, length
        heads = np.ndarray((most,), ">u4", self._buffer, self._at, (step,))
        others = np.flatnonzero(heads != length)
        return (int(others[0]) if len(others) else most), length

    def _one_by_one(self) -> None:
        unpack, buffer, at, last = _U32.unpack_from, self._buffer, self._at, self._filled - _HEAD
        bounds = [at]
        add = bounds.append
        while at <= last:
            at += unpack(buffer, at)[0] + _HEAD
            add(at)
        lengths = np.diff(np.array(bounds, np.int64)) - _HEAD
        if len(lengths):
            self._check(int(lengths.max()))
        if at > self._filled:
            lengths = lengths[:-1]
        if len(lengths):
            self._at = bounds[len(lengths)]
            self._note(lengths)

    def _check(self, length: int) -> None:
        if length > self._limits.frame_bytes:
            raise FrameTooLarge(
                f"wrote a frame of {length:,} bytes, "
                f"more than the limit of {self._limits.frame_bytes:,}",
                hint="text on standard output? the log belongs on standard error",
            )

    def _note(self, lengths: Any) -> None:
        self._lengths.append(lengths)
        self.complete += (
            len(lengths) if self._contract == "one" else int(np.count_nonzero(lengths == 0))
        )

    def outputs(self, inputs: int | None = None) -> tuple[Any, pa.Array]:
        """Return the outputs of the first `inputs`, and which input each is of."""
        inputs = self.complete if inputs is None else min(inputs, self.complete)
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
        if self._contract == "one":
            lengths = lengths[:inputs]
            index = np.arange(len(lengths))
        else:
            closed = lengths == 0
            index = np.cumsum(closed) - closed
            lengths, index = lengths[index < inputs], index[index < inputs]
        if len(lengths) and lengths[0] and (lengths == lengths[0]).all():
            return index, _equal_payloads(self._buffer, len(lengths), int(lengths[0]))
        kept = np.flatnonzero(lengths)
        return index[kept], _payloads(self._buffer, lengths).take(pa.array(kept * 2 + 1))


def _equal_payloads(buffer: bytearray, count: int, length: int) -> pa.Array:
    """Return the payloads of frames of one length."""
    # A copy, as the answers' buffer is used again; in Arrow's memory, where numpy's would come page
    # by page.
    values = pa.allocate_buffer(count * length)
    np.frombuffer(values, f"V{length}")[:] = np.frombuffer(buffer, _row(length), count)["payload"]
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), values]
    )


def _payloads(buffer: bytearray, lengths: Any) -> pa.Array:
    """Return heads and payloads in turn, as they lie in the buffer."""
    offsets = np.zeros(2 * len(lengths) + 1, np.int64)
    offsets[2::2] = np.cumsum(lengths + _HEAD)
    offsets[1::2] = offsets[:-1:2] + _HEAD
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(lengths), buffers)
