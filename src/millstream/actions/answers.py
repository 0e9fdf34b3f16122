"""The frames of a whole batch, as columns: from payloads to bytes and back, without a step of Python for each."""

from __future__ import annotations

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
_WORTH: Final = 16  # frames of one length in a row: below that looking for them costs more than it saves


def frames_of(payloads: pa.Array) -> memoryview:
    """Return the frames of a binary column; null becomes a frame of length 0."""
    if not len(payloads):
        return memoryview(b"")
    filled = pc.fill_null(payloads.cast(pa.large_binary()), b"")
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False).astype(">u4")
    heads = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_HEAD), len(filled), [None, pa.py_buffer(lengths)])
    whole = pc.binary_join_element_wise(heads.cast(pa.large_binary()), filled, pa.scalar(b"", pa.large_binary()))
    offsets = np.frombuffer(whole.buffers()[1], np.int64, len(whole) + 1, whole.offset * 8)
    return memoryview(whole.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


class Answers:
    """Takes what a program answers to `count` inputs, and knows when that is all.

    Bytes are read into one buffer, in which the frames stay; only where each begins is noted.
    """

    def __init__(self, count: int, contract: Contract, limits: Limits, room: int = _ROOM) -> None:
        self._count = count
        self._contract = contract
        self._limits = limits
        self._buffer = bytearray(max(room, _ROOM))
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._at = 0
        self._lengths: list[Any] = []  # arrays of the lengths of the frames, in order
        self._frames = 0
        #: How many inputs are answered to the end.
        self.complete = 0

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
        if self.complete > self._count or (self.complete == self._count and self._at < self._filled):
            raise TooManyAnswers(f"answered more often than it was asked: {self._count:,} times")
        open_bytes = self._filled - self._at if self._contract == "one" else self._filled
        if open_bytes > self._limits.answer_bytes * max(1, self._count):
            raise FrameTooLarge(f"answered with more than {self._limits.answer_bytes:,} bytes an input")
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
        lengths: list[int] = []
        unpack, buffer, at, filled, limit = (
            _U32.unpack_from,
            self._buffer,
            self._at,
            self._filled,
            self._limits.frame_bytes,
        )
        while filled - at >= _HEAD:
            (length,) = unpack(buffer, at)
            if length > limit:
                self._check(length)
            end = at + _HEAD + length
            if end > filled:
                break
            lengths.append(length)
            at = end
        self._at = at
        if lengths:
            self._note(np.array(lengths, np.int64))

    def _check(self, length: int) -> None:
        if length > self._limits.frame_bytes:
            raise FrameTooLarge(
                f"wrote a frame of {length:,} bytes, more than the limit of {self._limits.frame_bytes:,}",
                hint="text on standard output? the log belongs on standard error",
            )

    def _note(self, lengths: Any) -> None:
        self._lengths.append(lengths)
        self.complete += len(lengths) if self._contract == "one" else int(np.count_nonzero(lengths == 0))

    def outputs(self, inputs: int | None = None) -> tuple[Any, pa.Array]:
        """Return, of the first `inputs` that are answered, which input each output is of, and the outputs."""
        inputs = self.complete if inputs is None else min(inputs, self.complete)
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
        if self._contract == "one":
            lengths = lengths[:inputs]
            index = np.arange(len(lengths))
        else:
            closed = lengths == 0
            index = np.cumsum(closed) - closed
            lengths, index = lengths[index < inputs], index[index < inputs]
        kept = np.flatnonzero(lengths)
        return index[kept], _payloads(self._buffer, lengths).take(pa.array(kept * 2 + 1))


def _payloads(buffer: bytearray, lengths: Any) -> pa.Array:
    """Return heads and payloads in turn, as they lie in the buffer."""
    offsets = np.zeros(2 * len(lengths) + 1, np.int64)
    offsets[2::2] = np.cumsum(lengths + _HEAD)
    offsets[1::2] = offsets[:-1:2] + _HEAD
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(lengths), buffers)
