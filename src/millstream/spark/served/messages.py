"""What executors and the driver's service send each other: headers and Arrow data.

A request is a header and, if it brings rows, a second frame of Arrow data. An answer is one frame:
four bytes for the length of its header, the header, Arrow data from a multiple of 16 bytes on.
Headers are MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from millstream import errors
from millstream.errors import MillstreamError, RunError
from millstream.journal import Kind, Slice
from millstream.links.frame import MOST_BYTES

#: The Arrow data of one message, about; a single row may need more.
PIECE_BYTES: Final = 4 << 20
#: What a message holds at most, beside its header.
MOST_DATA: Final = MOST_BYTES - (64 << 10)
#: A slice without its rows in a header, about.
_PART_BYTES: Final = 64
_LENGTH: Final = struct.Struct("<I")
_ALIGNED: Final = 16

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A header; answers have the number of their request."""

    request: Count


class Ping(Message, frozen=True):
    """Ask whether the service is there, and say which runs go on."""

    runs: tuple[Text, ...] = ()


class Describe(Message, frozen=True):
    """Ask for the schema of a journal."""

    journal: Text


class Read(Message, frozen=True):
    """Ask for what lies in [start, stop) of a partition, or the beginning of it."""

    journal: Text
    partition: Count
    start: Count
    stop: Count
    columns: tuple[Text, ...]


class Put(Message, frozen=True):
    """Rows for a piece of work, by one attempt of a task; `number` counts them from 0."""

    work: Text
    run: Text
    number: Count


class Finish(Message, frozen=True):
    """All rows are sent: ask for the answers."""

    work: Text
    run: Text
    number: Count


Request = Ping | Describe | Read | Put | Finish


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A slice of a journal without its rows."""

    position: int
    rows: int | None
    kind: int
    max_lag: int | None
    running_max_before: int | None
    floor_before: int | None
    floor_after: int | None
    ended: bool
    stop: int


class Pong(Message, frozen=True):
    """Yes; which service it is changes when it starts again."""

    service: str


class Done(Message, frozen=True):
    """What was asked for, with the parts of a journal if it was those."""

    parts: tuple[Part, ...] = ()


class Busy(Message, frozen=True):
    """Not now: ask again."""


class Refused(Message, frozen=True):
    """It cannot be done, and why: the name of an error of ours, if it is one."""

    reason: str
    error: str = "RunError"
    hint: str | None = None

    @classmethod
    def because(cls, request: int, error: BaseException) -> Refused:
        """Return the answer about an error."""
        name = type(error).__name__
        if isinstance(error, MillstreamError):
            return cls(request, str(error), name, error.hint)
        return cls(request, f"{name}: {error}")

    def raised(self) -> MillstreamError:
        """Return the error as the one who asked has it."""
        kind = getattr(errors, self.error, errors.RunError)
        # Some know more than this, such as an offset, which is in their text too.
        made: MillstreamError = kind.__new__(kind)
        MillstreamError.__init__(made, f"on the driver's host: {self.reason}", hint=self.hint)
        return made


Answer = Pong | Done | Busy | Refused

_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def request(data: Any) -> Request:
    """Return a request's header.

    Raises:
        msgspec.MsgspecError: It is none.
    """
    return _requests.decode(data)


def framed(answer: Answer, data: Any = b"") -> bytes:
    """Return an answer as one frame."""
    head = msgspec.msgpack.encode(answer)
    padding = bytes(_begin(len(head)) - _LENGTH.size - len(head))
    return b"".join((_LENGTH.pack(len(head)), head, padding, data))


def unframed(frame: bytes) -> tuple[Answer, memoryview]:
    """Return an answer and its Arrow data."""
    view = memoryview(frame)
    (length,) = _LENGTH.unpack_from(view)
    return _answers.decode(view[_LENGTH.size :][:length]), view[_begin(length) :]


def _begin(length: int) -> int:
    """Return where the data begins after a header: Arrow wants its numbers at whole addresses."""
    return -(-(_LENGTH.size + length) // _ALIGNED) * _ALIGNED


# rows


def to_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Buffer:
    """Return batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def fitting(data: Any, what: str = "a row") -> Any:
    """Return Arrow data that fits into a message.

    Raises:
        RunError: It does not, however often it is sent.
    """
    if len(data) > MOST_DATA:
        msg = f"{what} of {len(data) >> 20} MB is too large to be sent between hosts"
        hint = f"at most {MOST_DATA >> 20} MB; or mount the folders on all hosts: --serve never"
        raise RunError(msg, hint=hint)
    return data


def from_arrow(data: Any) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream; none of none."""
    if not len(data):
        return []
    buffer = pa.py_buffer(data)
    return list(pa.ipc.open_stream(pa.py_buffer(bytes(data)) if buffer.address % 8 else buffer))


def in_pieces(
    batches: Iterable[pa.RecordBatch], most: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in batches that are small enough for a message."""
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            first = smaller(batch.slice(at), most)
            yield first
            at += first.num_rows


def smaller(batch: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """Return the first rows of a batch, of at most so many bytes, but one at least."""
    while batch.nbytes > most and batch.num_rows > 1:
        fitting = batch.num_rows * most // batch.nbytes
        batch = batch.slice(0, max(1, min(fitting, batch.num_rows - 1)))
    return batch


# slices


def bounded(slices: Iterable[Slice], most: int = PIECE_BYTES) -> Iterator[Slice]:
    """Yield slices until there are enough for a message, the last one perhaps cut short."""
    size = 0
    for one in slices:
        cut, size = one.batch, size + _PART_BYTES
        if cut is not None:
            cut = smaller(cut, max(1, most - size))
            if size > _PART_BYTES and size + cut.nbytes > most:
                return  # a large row begins the next message
            size += cut.nbytes
        if cut is not None and one.batch is not None and cut.num_rows < one.batch.num_rows:
            # What an entry says of the future holds once all of it is read.
            stop = one.position + cut.num_rows
            floor = one.floor_before
            yield replace(one, batch=cut, stop=stop, floor_after=floor, ended=False)
            return
        yield one
        if size >= most:
            return


def parts_of(slices: Sequence[Slice]) -> tuple[Part, ...]:
    """Return slices without their rows."""
    return tuple(
        Part(
            one.position,
            None if one.batch is None else one.batch.num_rows,
            int(one.kind),
            one.max_lag,
            one.running_max_before,
            one.floor_before,
            one.floor_after,
            one.ended,
            one.stop,
        )
        for one in slices
    )


def slices_from(parts: Iterable[Part], batches: Sequence[pa.RecordBatch]) -> Iterator[Slice]:
    """Return slices with their rows."""
    rest = iter(batches)
    for one in parts:
        yield Slice(
            one.position,
            None if one.rows is None else next(rest),
            Kind(one.kind),
            one.max_lag,
            one.running_max_before,
            one.floor_before,
            one.floor_after,
            one.ended,
            one.stop,
        )
