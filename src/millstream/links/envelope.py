"""What travels between an outbox and an inbox, byte for byte.

    frame 0    b"MS", the version of this format (one byte), the header in MessagePack
    frame 1    rows only: the batch as an Arrow IPC message, exactly as it will lie in the journal
    frame 2    rows with gaps in their numbers only: the numbers, 64-bit little-endian

A header is an array whose first item tells its kind. Whatever arrives is checked before it is
believed: sizes, types, ranges, the batch down to its offsets and texts. What does not hold raises
`BadFrame`, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from millstream import errors
from millstream.errors import BadFrame, LinkBroken, MillstreamError
from millstream.journal import Staged
from millstream.links.admission import MOST_NUMBER, Numbers, rise
from millstream.links.follow import Follow, Followed, Level, Passed
from millstream.links.frame import Count, Frame, Moment, Name, Number

VERSION: Final = 1
MAGIC: Final = b"MS"
MOST_ROWS: Final = 1 << 16

Epoch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


# What an inbox is asked


class Ask(Frame, frozen=True, tag="ask"):
    """What does this source hold, and where are its inboxes?

    With an incarnation: and let this client have the sender's name in that partition.
    """

    source: Name
    sender: Name | None = None
    partition: Count = 0
    incarnation: Count = 0


class Rows(Frame, frozen=True, tag="rows"):
    """Take these rows: numbered from `first` on, or as frame 2 says."""

    source: Name
    partition: Count
    sender: Name
    after: Number
    first: Count
    rows: Count
    version: Count
    incarnation: Count = 0


class Instruct(Frame, frozen=True, tag="instruct"):
    """Take this instruction, which has a number as a row has."""

    source: Name
    partition: Count
    sender: Name
    after: Number
    number: Count
    kind: Literal["END_OF_STREAM", "WATERMARK", "IDLE"]
    floor: Moment | None = None
    incarnation: Count = 0


class PutDeadLetter(Frame, frozen=True, tag="bury"):
    """Keep these records as dead letters: (number, reason, record)."""

    source: Name
    partition: Count
    sender: Name
    letters: Annotated[list[tuple[Count, str, str]], msgspec.Meta(max_length=MOST_ROWS)]
    incarnation: Count = 0


class Stage(Frame, frozen=True, tag="stage"):
    """Keep these rows aside for an epoch that may be published."""

    source: Name
    partition: Count
    sender: Name
    epoch: Epoch
    rows: Count
    version: Count


class StagedRows(msgspec.Struct, frozen=True, array_like=True):
    """Rows that an inbox keeps aside: the fields of `journal.Staged`."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
    partition: Count
    rows: Count
    bytes: Count
    checksum: Annotated[int, msgspec.Meta(ge=0)]
    min_time: Moment | None
    max_time: Moment | None
    parts: Count
    version: Count


class Publish(Frame, frozen=True, tag="publish"):
    """Put what was staged into the journal, unless this sender's epoch is in it."""

    source: Name
    partition: Count
    sender: Name
    epoch: Epoch
    staged: list[StagedRows]


Request = Ask | Rows | Instruct | PutDeadLetter | Stage | Publish | Follow | Level | Passed


# What it answers


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an inbox is."""

    ip: str
    port: int
    node: int
    folder: str | None


class SourceInfo(Frame, frozen=True, tag="card"):
    """What a source holds, and its inboxes by partition; those added since are in `later`.

    Who may send a row again in another life spreads its rows over the former alone, so that it
    finds the same place. `notice` is what a sender should know. `incarnation` has the sender's name that was asked for.
    `read`: the engines read it, and nobody sends to it.
    """

    source: str
    schema: bytes
    version: int
    time: str | None
    key: str | None
    inboxes: list[Place]
    ended: bool = False
    later: list[Place] = msgspec.field(default_factory=list)
    incarnation: int | None = None
    notice: str | None = None
    read: bool = False


class TakenAnswer(Frame, frozen=True, tag="taken"):
    """So many rows were taken from the front; `highest` is durable; there is room for `free` more.

    Of those taken, some were `repeated` (there already), and some `refused` (they are dead letters
    now). `why` says why nothing is taken, if it is not only a full inbox.
    """

    taken: int
    highest: int
    free: int
    repeated: int = 0
    refused: int = 0
    why: str | None = None


class Done(Frame, frozen=True, tag="done"):
    """It is done, durably."""

    staged: list[StagedRows] = msgspec.field(default_factory=list)
    rows: int = 0


class Refusal(Frame, frozen=True, tag="refusal"):
    """It was refused permanently: the name of our error, its message and hint."""

    error: str
    message: str
    hint: str | None


Answer = SourceInfo | TakenAnswer | Done | Refusal | Followed

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_answers = msgspec.msgpack.Decoder(Answer)
_PREFIX: Final = MAGIC + bytes([VERSION])


def encode(header: Request | Answer) -> bytes:
    """Return a header as frame 0."""
    return _PREFIX + _encoder.encode(header)


def decode_request(frame: bytes) -> Request:
    """Return the request in frame 0.

    Raises:
        BadFrame: It is not one, or of another version.
    """
    request: Request = _decode(frame, _requests)
    return request


def decode_answer(frame: bytes) -> Answer:
    """Return the answer in frame 0.

    Raises:
        BadFrame: It is not one, or of another version.
    """
    answer: Answer = _decode(frame, _answers)
    return answer


def _decode(frame: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    if frame[: len(MAGIC)] != MAGIC:
        hint = "is the other side a Millstream program?"
        raise BadFrame("a frame does not begin as ours do", hint=hint)
    if frame[len(MAGIC) : len(_PREFIX)] != _PREFIX[len(MAGIC) :]:
        other = frame[len(MAGIC)] if len(frame) > len(MAGIC) else "none"
        hint = "use the same Millstream"
        raise BadFrame(f"a frame has version {other}, this program speaks {VERSION}", hint=hint)
    try:
        return decoder.decode(memoryview(frame)[len(_PREFIX) :])
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as exc:  # ValueError: text that is not UTF-8
        raise BadFrame(f"a header cannot be read: {exc}") from exc


def decode_batch(
    body: Any, schema: pa.Schema, rows: int
) -> tuple[pa.RecordBatch, pa.Buffer | None]:
    """Return the batch in frame 1, and its bytes if they can go into a journal as they are.

    Raises:
        BadFrame: It is no batch of this schema, or its inside is damaged.
    """
    buffer = pa.py_buffer(body)
    try:
        if compressed(pa.ipc.read_message(buffer)):
            # A few kilobytes can swell to all the memory there is.
            raise BadFrame("a batch is compressed", hint="send it as it is")
        batch = pa.ipc.read_record_batch(buffer, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, OverflowError, struct.error) as exc:
        raise BadFrame(f"a batch cannot be read: {exc}") from exc
    if batch.num_rows != rows or rows == 0 or rows > MOST_ROWS:
        raise BadFrame(
            f"a batch has {batch.num_rows} rows, {rows} were announced "
            f"(1 to {MOST_ROWS:,} are allowed)"
        )
    # Compressed or padded otherwise than we do: it is written again.
    plain = buffer.size % 8 == 0 and pa.ipc.get_record_batch_size(batch) == buffer.size
    return batch, buffer if plain else None


def compressed(message: Any) -> bool:
    """Tell whether a record batch is compressed, by its metadata, which is a FlatBuffer.

    Raises:
        BadFrame: It is no record batch.
        struct.error: Its metadata are cut off.
    """
    raw = memoryview(message.metadata)

    def field(table: int, number: int) -> int:
        """Return where a field of a table lies, seen from its beginning; 0: it is not there."""
        offsets = table - struct.unpack_from("<i", raw, table)[0]
        slot = 4 + 2 * number
        there = slot + 2 <= struct.unpack_from("<H", raw, offsets)[0]
        return int(struct.unpack_from("<H", raw, offsets + slot)[0]) if there else 0

    if message.type != "record batch":
        raise BadFrame(f"a batch is wanted, and this is a {message.type}")
    root = int(struct.unpack_from("<I", raw, 0)[0])
    header = root + field(root, 2)
    return field(header + struct.unpack_from("<I", raw, header)[0], 3) != 0


def decode_numbers(frame: Any, header: Rows) -> Numbers:
    """Return the numbers of a batch: frame 2, or counted from `first`.

    Raises:
        BadFrame: They are not as many as the rows, do not rise, or do not start at `first`.
    """
    if frame is None:
        if header.first + header.rows - 1 > MOST_NUMBER:
            raise BadFrame(f"the numbers of a batch go beyond {MOST_NUMBER}")
        return range(header.first, header.first + header.rows)
    if len(frame) != 8 * header.rows:
        raise BadFrame(f"{len(frame)} bytes of numbers for {header.rows} rows")
    numbers = np.frombuffer(frame, dtype="<i8")
    if (
        not len(numbers)
        or numbers[0] != header.first
        or numbers[-1] > MOST_NUMBER
        or not rise(numbers)
    ):
        raise BadFrame("the numbers of a batch do not rise from the first")
    return numbers  # type: ignore[return-value]  # an array is a sequence in all but name


def encode_numbers(numbers: Numbers) -> bytes | None:
    """Return numbers as frame 2; None if they have no gaps."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers):
        return None
    return np.asarray(numbers, dtype="<i8").tobytes()


def frames_of(header: Request | Answer, *bodies: Any) -> Sequence[Any]:
    """Return all frames of a message; a body that is None is left out from the end."""
    frames = [encode(header), *bodies]
    while frames and frames[-1] is None:
        frames.pop()
    return frames


def staged_rows(staged: Iterable[Staged]) -> list[StagedRows]:
    """Return what a journal says of staged rows, as it travels."""
    return [msgspec.convert(item, StagedRows, from_attributes=True) for item in staged]


def staged_items(staged: Iterable[StagedRows]) -> list[Staged]:
    """Return what has travelled as a journal says it."""
    return [Staged(**msgspec.structs.asdict(item)) for item in staged]


def error_of(refusal: Refusal) -> MillstreamError:
    """Return a refusal as the error that the other side has raised."""
    kind = getattr(errors, refusal.error, None)
    if (
        isinstance(kind, type)
        and issubclass(kind, MillstreamError)
        and kind.__init__ is MillstreamError.__init__
    ):
        return kind(refusal.message, hint=refusal.hint)
    return LinkBroken(refusal.message, hint=refusal.hint)
