"""The output queue of a runtime, on disk: what was written stays until every downstream has it.

A folder of segments, each named after the first serial that it may hold. A segment is a row of
records:

    u32 length │ u32 crc │ body     body: 00 state (JSON) | 01 output | 02 trim
                                          03 note (JSON) | 04 new senders (JSON) | 05 synced up to

    first.queue     state output output trim output ...
    next.queue      state output ...                       ◀── appended to

A segment begins with the state of the queue and appears whole, by a rename, so only the last one
need be read to open the queue. Outputs of one input are durable together or not at all. A torn tail
of the last segment is cut: nothing in it was ever sent. After each sync a record says how far the
segment is synced; a damaged record before that is no torn tail, and the queue is not opened. A trim that a crash forgets is no harm:
what was acknowledged is sent again. A segment whose outputs are all trimmed is removed, and one
that has become empty is left for a fresh one, so that the disk is really freed.

With each output stands the input that it was made of, so a runtime that begins again knows what it
has done and what to acknowledge; no list of that is kept in memory, however long the queue is.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from millstream.actions.serials import NONE, after, before
from millstream.errors import QueueBroken, QueueDamaged, QueueFull
from millstream.storage.disk import REAL, Disk, DiskFile, make_folder, write_whole
from millstream.storage.lock import Lock

SEGMENT_BYTES: Final = 16 << 20
_CHUNK: Final = 1 << 18
_MOST_RECENT: Final = 50_000
_STATE, _OUTPUT, _TRIM, _NOTE, _SENDERS, _SYNC = range(6)
_HEAD: Final = Struct(">II")
_ANSWER: Final = Struct(">BBIQQ")
_TRIMMED: Final = Struct(">BQ")
_MARK: Final = Struct(">BQ")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Answer:
    """What an action made of one input, known by sender and serial, or of none (a source)."""

    payloads: Sequence[bytes]
    sender: str = ""
    input: int = NONE


@dataclass(frozen=True, slots=True)
class Output:
    """A message of the queue; `last` if it is the last one of its input."""

    serial: int
    payload: bytes
    sender: str
    input: int
    last: bool


class State(msgspec.Struct):
    """What the queue knows besides its outputs."""

    last: int = NONE
    trimmed: int = NONE
    #: The highest input of each sender whose answer is here, or was.
    inputs: dict[str, int] = {}
    #: Numbers of senders in the records that follow.
    senders: list[str] = []
    #: What the runtime wants to be remembered.
    notes: dict[str, str] = {}


@dataclass(slots=True, eq=False)
class _Segment:
    first: int
    path: Path
    size: int = 0


class Queue:
    """A queue that is open: one process has it at a time."""

    def __init__(
        self, folder: Path, *, disk: Disk = REAL, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.folder = folder
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._broken = False
        self._file: DiskFile
        make_folder(disk, folder)
        self._lock = Lock(folder / "lock", disk, what=f'the queue "{folder}"')
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> None:
        names = sorted(self.folder.glob("*.queue"))
        self._segments = [_Segment(int(path.stem), path, path.stat().st_size) for path in names]
        self._state = State()
        if not self._segments:
            self._begin_segment()
        else:
            self._recover(self._segments[-1])
            # A segment that is gone was trimmed, also where the crash forgot to say so.
            self._state.trimmed = max(self._state.trimmed, before(self._segments[0].first))
        self._behind: Cursor | None = None
        #: The answers after `_known_from`, as (last output, sender, input): trimming reads no file.
        self._recent: deque[tuple[int, str, int]] = deque()
        self._known_from = self._state.last

    def _recover(self, active: _Segment) -> None:
        """Read the last segment, and cut what was not written to its end."""
        scan, sound = _Scan(), 0
        for body, sound in _records(active.path, 0, active.size):
            scan.take(body, sound)
        if scan.state is None:
            raise _damaged(active.path, 0)
        if sound < active.size and _synced_beyond(active.path, sound, marked=scan.marked):
            raise _damaged(active.path, sound)
        self._state = scan.state
        self._file = self._disk.open(active.path)
        self._outputs = scan.outputs
        if scan.whole < active.size:
            self._file.truncate(scan.whole)
            self._file.sync()
            active.size = scan.whole

    @property
    def last(self) -> int:
        """The serial of the newest output that was ever here."""
        return self._state.last

    @property
    def trimmed(self) -> int:
        return self._state.trimmed

    @property
    def oldest(self) -> int:
        """The serial of the oldest output that is here, NONE if there is none."""
        return NONE if self._state.trimmed == self._state.last else after(self._state.trimmed)

    @property
    def inputs(self) -> dict[str, int]:
        """The highest input of each sender whose answer is here, or was."""
        return dict(self._state.inputs)

    @property
    def notes(self) -> dict[str, str]:
        return dict(self._state.notes)

    @property
    def size(self) -> int:
        """What the queue takes of the disk."""
        return sum(segment.size for segment in self._segments)

    def append(self, answers: Sequence[Answer]) -> int:
        """Add the outputs of answers; return the last serial. They are durable when this returns.

        Raises:
            QueueFull: The disk is full. None of them is here; it may work later.
            QueueBroken: The disk failed. Some, all or none may be here: open the queue again.
        """
        if self._active.size >= self._segment_bytes:
            self._begin_segment()
        known = list(self._state.senders)
        records = list(self._introduced(answers))
        last, count, numbers, recent = self._state.last, 0, self._senders, []
        for answer in answers:
            number = numbers.get(answer.sender, 0)
            for left, payload in enumerate(answer.payloads, 1 - len(answer.payloads)):
                last, count = after(last), count + 1
                body = _ANSWER.pack(_OUTPUT, left == 0, number, last, answer.input) + payload
                records.append(_HEAD.pack(len(body), crc32(body)) + body)
            recent.append((last, answer.sender, answer.input))
        try:
            self._write(records, sync=True)
        except QueueFull:
            self._state.senders = known
            raise
        self._outputs += count
        self._state.last = last
        inputs = self._state.inputs
        for _, sender, input_ in recent:
            if sender and input_ > inputs.get(sender, NONE):
                inputs[sender] = input_
        self._remember(recent)
        return last

    def _remember(self, answers: list[tuple[int, str, int]]) -> None:
        self._recent.extend(answers)
        while len(self._recent) > _MOST_RECENT:
            self._known_from = self._recent.popleft()[0]

    def _introduced(self, answers: Iterable[Answer]) -> Iterator[bytes]:
        """Yield a record that gives numbers to senders which have none in this segment."""
        fresh = {answer.sender for answer in answers} - self._senders.keys() - {""}
        if not fresh:
            return
        self._state.senders += sorted(fresh)
        yield _record(bytes([_SENDERS]) + msgspec.json.encode(sorted(fresh)))

    @property
    def _senders(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._state.senders, 1)}

    def trim(self, serial: int) -> dict[str, int]:
        """Forget the outputs up to `serial`; return the highest input of each sender that is done.

        The outputs are gone from the disk once their segment holds no others.
        """
        serial = min(serial, self._state.last)
        if serial <= self._state.trimmed:
            return {}
        done = self._read_done(serial) if self._state.trimmed < self._known_from else {}
        while self._recent and self._recent[0][0] <= serial:
            _, sender, input_ = self._recent.popleft()
            if sender:
                done[sender] = input_
        self._state.trimmed = serial
        self._forget(serial)
        return done

    def _read_done(self, serial: int) -> dict[str, int]:
        """Read which inputs are done, of outputs that are no longer in memory."""
        if self._behind is None or self._behind.serial != self._state.trimmed:
            self._behind = Cursor(self, self._state.trimmed)
        outputs = self._behind.until(serial)
        return {output.sender: output.input for output in outputs if output.last and output.sender}

    def _forget(self, serial: int) -> None:
        try:
            self._write([_record(_TRIMMED.pack(_TRIM, serial))], sync=False)
            large = self._active.size >= self._segment_bytes // 4
            if serial == self._state.last and self._outputs and large:
                self._begin_segment()
        except QueueFull:
            pass  # a trim that is not written is no harm, and those below may make room
        while len(self._segments) > 1 and self._segments[1].first <= after(serial):
            self._disk.remove(self._segments.pop(0).path)

    def note(self, key: str, value: str) -> None:
        """Remember a text, durably; it costs no more than what it changes."""
        if self._state.notes.get(key) != value:
            self._state.notes[key] = value
            body = bytes([_NOTE]) + msgspec.json.encode({key: value})
            self._write([_record(body)], sync=True)
            if self._active.size >= self._segment_bytes:
                self._begin_segment()

    def forget_sender(self, sender: str) -> None:
        """Drop what is known of a sender that will not come again."""
        self._state.inputs.pop(sender, None)

    def read(self, serial: int) -> Cursor:
        """Return a cursor that stands after `serial`."""
        return Cursor(self, max(serial, self._state.trimmed))

    def close(self) -> None:
        self._file.close()
        self._lock.release()

    @property
    def _active(self) -> _Segment:
        return self._segments[-1]

    def _write(self, records: list[bytes], *, sync: bool) -> None:
        if self._broken:
            hint = "start the runtime again"
            raise QueueBroken(f'the queue "{self.folder}" is broken', hint=hint)
        size = self._active.size
        try:
            self._file.append([b"".join(records)])
            if sync:
                self._file.sync()
        except OSError as error:
            raise self._failed(error, size) from error
        self._active.size = self._file.size()
        if sync:
            self._mark_synced()

    def _mark_synced(self) -> None:
        """Say that all so far is synced; this record need not be."""
        size = self._active.size
        try:
            self._file.append([_record(_MARK.pack(_SYNC, size))])
        except OSError:
            try:
                self._file.truncate(size)
            except OSError:
                self._broken = True
            return
        self._active.size = self._file.size()

    def _failed(self, error: OSError, size: int) -> QueueFull | QueueBroken:
        full = error.errno in _NO_ROOM
        if full:
            try:
                self._file.truncate(size)
            except OSError:
                full = False
        return self._lost(error, full=full)

    def _lost(self, error: OSError, *, full: bool) -> QueueFull | QueueBroken:
        if full:
            hint = "free some space: it continues by itself"
            return QueueFull(f'the disk of the queue "{self.folder}" is full', hint=hint)
        # After a sync that failed nobody knows what is on the disk.
        self._broken = True
        hint = "start the runtime again"
        return QueueBroken(f'the queue "{self.folder}" could not be written: {error}', hint=hint)

    def _begin_segment(self) -> None:
        """Let a fresh segment, which knows the state, take what comes."""
        first = after(self._state.last)
        path = self.folder / f"{first:020d}.queue"
        self._state.senders = sorted(self._state.inputs)
        try:
            if self._segments:
                self._file.sync()
            begin = _record(bytes([_STATE]) + msgspec.json.encode(self._state))
            write_whole(self._disk, path, begin + _record(_MARK.pack(_SYNC, len(begin))))
        except OSError as error:
            raise self._not_begun(error, path) from error
        if self._segments:
            self._file.close()
        self._file = self._disk.open(path)
        self._outputs = 0
        if self._segments and self._segments[-1].first == first:
            self._segments.pop()
        self._segments.append(_Segment(first, path, self._file.size()))

    def _not_begun(self, error: OSError, path: Path) -> QueueFull | QueueBroken:
        self._disk.remove(path.with_name(path.name + ".unfinished"))
        # The segment that stays knows the senders by the numbers that they had.
        active = self._segments[-1:]
        self._state.senders = [name for one in active for name in _numbered(one.path, one.size)]
        return self._lost(error, full=error.errno in _NO_ROOM)

    def _segment_of(self, serial: int) -> _Segment:
        """Return the segment that holds `serial`, or will."""
        found = (one for one in reversed(self._segments) if one.first <= serial)
        return next(found, self._segments[0])

    def _segment_after(self, segment: _Segment) -> _Segment | None:
        return next((one for one in self._segments if one.first > segment.first), None)


class Cursor:
    """Reads the outputs of a queue in order; it sees what is durable, also what comes later."""

    def __init__(self, queue: Queue, serial: int) -> None:
        self._queue = queue
        self._segment = queue._segment_of(after(serial))
        self._offset = 0
        self._senders: list[str] = []
        #: The serial of the last output that was read.
        self.serial = serial

    def read(self, bytes_: int = _CHUNK) -> list[Output]:
        """Return the next outputs: whole ones of about so many bytes, none if there are no more."""
        found: list[Output] = []
        while not found and self.serial != self._queue.last:
            if not self._take(bytes_, self._queue.last, found):
                break
        return found

    def until(self, serial: int) -> Iterator[Output]:
        """Yield the outputs up to `serial`."""
        while self.serial < serial:
            found: list[Output] = []
            if not self._take(_CHUNK, serial, found):
                return
            yield from found

    def _take(self, bytes_: int, until: int, found: list[Output]) -> bool:
        """Read on, at most to `until`; False if nothing is there."""
        # A segment that is gone was trimmed: what this cursor has not seen of it are trims.
        if self._offset >= self._segment.size or self._segment not in self._queue._segments:
            later = self._queue._segment_after(self._segment)
            if later is None:
                return False
            self._segment, self._offset = later, 0
        begin = self._offset
        stop = begin + bytes_
        for body, end in _records(self._segment.path, self._offset, self._segment.size):
            if body[0] != _OUTPUT:
                self._senders = _senders_after(body, self._senders)
            elif not self._output(body, until, found):
                break
            self._offset = end
            if end >= stop:
                return True
        else:
            if self._offset < self._segment.size:
                raise _damaged(self._segment.path, self._offset)
        return self._offset > begin

    def _output(self, body: bytes, until: int, found: list[Output]) -> bool:
        _, last, number, serial, input_ = _ANSWER.unpack_from(body)
        if serial > until:
            return False
        if serial > self.serial:
            sender = self._senders[number - 1] if number else ""
            found.append(Output(serial, body[_ANSWER.size :], sender, input_, bool(last)))
            self.serial = serial
        return True


@dataclass(slots=True)
class _Scan:
    """What the records of the last segment add up to."""

    state: State | None = None
    whole: int = 0
    outputs: int = 0
    #: There are records that say how far it is synced: none are in segments of 0.1.
    marked: bool = False
    #: Outputs of an input that is not at its end yet.
    _open: list[tuple[int, str, int]] = field(default_factory=list)

    def take(self, body: bytes, end: int) -> None:
        if body[0] == _STATE:
            # It may be older than the trims before it only in what it says of outputs, which are
            # counted here.
            self.state = _state(body)
        if self.state is None:
            return
        if body[0] == _TRIM:
            self.state.trimmed = max(self.state.trimmed, _TRIMMED.unpack(body)[1])
        self.marked = self.marked or body[0] == _SYNC
        if body[0] == _NOTE:
            self.state.notes |= msgspec.json.decode(body[1:], type=dict[str, str])
        if body[0] == _OUTPUT:
            self._output(body, self.state)
        else:
            self.state.senders = _senders_after(body, self.state.senders)
        if not self._open:
            self.whole = end

    def _output(self, body: bytes, state: State) -> None:
        _, last, number, serial, input_ = _ANSWER.unpack_from(body)
        self._open.append((serial, state.senders[number - 1] if number else "", input_))
        if not last:
            return
        for one, sender, input_ in self._open:
            state.last = one
            self.outputs += 1
            if sender:
                state.inputs[sender] = max(input_, state.inputs.get(sender, NONE))
        self._open.clear()


def _records(path: Path, offset: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records between two offsets, each with its end; stop at one that is damaged."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data, at = b"", 0
        while True:
            head = _HEAD.unpack_from(data, at) if len(data) - at >= _HEAD.size else None
            end = at + _HEAD.size + (head[0] if head else 0)
            if head is None or end > len(data):
                wanted = max(_CHUNK, end - at)
                begin, more = offset + at, min(wanted, size - offset - at)
                if more <= len(data) - at:
                    return
                data, offset, at = os.pread(fd, more, begin), begin, 0
                if len(data) < more:
                    return
                continue
            body = data[at + _HEAD.size : end]
            if not body or crc32(body) != head[1]:
                return
            at = end
            yield body, offset + at
    finally:
        os.close(fd)


def _synced_beyond(path: Path, offset: int, *, marked: bool) -> bool:
    """Return whether what begins at an offset was synced once, so that no crash has torn it.

    A record that follows says so. In segments of 0.1, which have no such records, any sound record
    that follows is a sign of it.
    """
    raw = path.read_bytes()
    head = _MARK.size.to_bytes(4, "big")
    bodies = (_body_at(raw, at) for at in _found(raw, head, offset))
    if any(body and body[0] == _SYNC and _MARK.unpack(body)[1] > offset for body in bodies):
        return True
    places = () if marked else range(offset + 1, len(raw) - _HEAD.size)
    return any(_body_at(raw, at) is not None for at in places)


def _found(raw: bytes, part: bytes, begin: int) -> Iterator[int]:
    """Yield where some bytes occur."""
    while (begin := raw.find(part, begin)) >= 0:
        yield begin
        begin += 1


def _body_at(raw: bytes, at: int) -> bytes | None:
    """Return the body of the record at an offset, None if none is there."""
    length, checksum = _HEAD.unpack_from(raw.ljust(at + _HEAD.size, b"\0"), at)
    body = raw[at + _HEAD.size : at + _HEAD.size + length]
    sound = 0 < length == len(body) and body[0] <= _SYNC and crc32(body) == checksum
    return body if sound else None


def _record(body: bytes) -> bytes:
    return _HEAD.pack(len(body), crc32(body)) + body


def _state(body: bytes) -> State:
    return msgspec.json.decode(body[1:], type=State)


def _numbered(path: Path, size: int) -> list[str]:
    """Return the senders by their numbers at the end of a segment."""
    found: list[str] = []
    for body, _ in _records(path, 0, size):
        found = _senders_after(body, found)
    return found


def _senders_after(body: bytes, known: list[str]) -> list[str]:
    """Return the senders by their numbers after a record, from those before it."""
    if body[0] == _STATE:
        return _state(body).senders
    return (
        [*known, *msgspec.json.decode(body[1:], type=list[str])] if body[0] == _SENDERS else known
    )


def _damaged(path: Path, offset: int) -> QueueDamaged:
    hint = "move it away to continue without its content, and let the upstreams send again"
    return QueueDamaged(f'"{path}" is damaged at byte {offset:,}', hint=hint)


def set_aside(folder: Path, disk: Disk = REAL) -> Path:
    """Move the segments of a damaged queue away, and return where they are."""
    lock = Lock(folder / "lock", disk, what=f'the queue "{folder}"')
    try:
        target = folder / f"aside-{time.time_ns()}"
        make_folder(disk, target)
        # The newest first: one whose older ones are gone would take them for trimmed.
        for path in sorted(folder.glob("*.queue"), reverse=True):
            disk.rename(path, target / path.name)
        disk.sync_folder(target)
        disk.sync_folder(folder)
    finally:
        lock.release()
    return target
