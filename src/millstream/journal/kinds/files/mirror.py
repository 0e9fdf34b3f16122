"""The copy of a partition that is written on another host: the same files, byte for byte.

    piece -> names of senders, sync -> data, ... -> data sync -> index entries, sync -> mark

The order is the writer's own (`log.py`), and so is what a crash leaves and what opening does about
it: the copy goes on where its sound entries end. Pieces are taken without waiting for the disk;
`sync` makes all of them durable and shows them to readers.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from millstream.errors import AlreadyWriting, CopyDiffers, CorruptBatch
from millstream.journal.base import Kind, Trimmed
from millstream.journal.kinds.files.copylog import CopyLog, copied_from, written_here
from millstream.journal.kinds.files.description import adopt, schema_count
from millstream.journal.kinds.files.index import SIZE, Entries, State, parse_header, sound_run
from millstream.journal.kinds.files.layout import copy_file, partition_folder, segment_positions
from millstream.journal.kinds.files.replica_chunk import ReplicaChunk
from millstream.journal.kinds.files.retention import trim_to
from millstream.journal.kinds.files.senders import Senders
from millstream.storage.disk import REAL, Disk, make_folder, write_whole
from millstream.storage.lock import Lock

_log = logging.getLogger(__name__)


class Mirror:
    """Writes the copy of one partition; not safe for several threads.

    After an error nothing more is taken: close it and open it again, it goes on where its files
    end.
    """

    def __init__(
        self,
        path: Path | str,
        partition: int,
        *,
        original: str,
        disk: Disk = REAL,
        timeout: float = 0.0,
    ) -> None:
        """Take the partition for copying.

        Args:
            path: The journal's folder, which may not be there yet.
            partition: Which one.
            original: Where it is copied from, for those who find the copy.
            disk: Where it lies.
            timeout: How long to wait for another process that has it.

        Raises:
            AlreadyWriting: Someone has it, or it is written here: it is no copy.
            CorruptIndex: The copy is damaged before its end.
        """
        self.path, self.partition = Path(path), partition
        self._disk = disk
        self._folder = partition_folder(self.path, partition)
        make_folder(disk, self._folder)
        self._lock = Lock(self._folder / "lock", disk, what=self._what, timeout=timeout)
        try:
            self._claim(original)
            self._log = CopyLog(self._folder, (), disk, generation=self._lock.generation)
            self._senders = Senders(self._folder, disk, self._log.numbers_used)
        except BaseException:
            self._lock.release()
            raise
        self._queued: list[Entries] = []
        self._digest = xxhash.xxh3_64()
        #: How much of the next entry's data is there.
        self._partial = 0
        self.reached = replace(self._log.reached(), senders=len(self._senders.names))

    @property
    def _what(self) -> str:
        return f'partition {self.partition} of journal "{self.path}"'

    def _claim(self, original: str) -> None:
        known = copied_from(self._folder)
        if written_here(self._folder):
            msg = f"{self._what} is written here, and cannot be a copy of the one at {original}"
            hint = "a partition is written on one engine; remove what is here if it is not"
            raise AlreadyWriting(msg, hint=hint)
        if known != original:
            write_whole(
                self._disk, copy_file(self._folder), json.dumps({"original": original}).encode()
            )

    @property
    def state(self) -> State:
        """What is known at the end of what readers see."""
        return self._log.state

    @property
    def begin(self) -> int | None:
        """The first position that is still there; None before the first piece."""
        return next(iter(segment_positions(self._folder)), None)

    @property
    def pending(self) -> int:
        """How many entries were taken and wait for `sync`."""
        return sum(map(len, self._queued))

    # taking

    def take(self, piece: ReplicaChunk) -> bool:
        """Take the piece that follows `reached`, and return whether it has rows; `sync` shows them.

        Raises:
            CopyDiffers: It does not follow.
            CorruptBatch: Its bytes are not those that were written.
            SchemaConflict: The journal here is declared differently.
        """
        if piece.description:
            adopt(self.path, piece.description, disk=self._disk)
            self.reached = replace(self.reached, schemas=schema_count(piece.description))
        self._name(piece.senders)
        if piece.anew:
            self._clear(piece)
        data = self._begun(piece) if piece.header else piece.data
        entries = self._checked(piece, data)
        if data:
            self._log.append_data(data)
        self._move(len(data), entries)
        return bool((entries["kind"] == Kind.ROWS).any())

    def _name(self, senders: tuple[str, ...]) -> None:
        for name in senders:
            self._senders.number(name)
        self._senders.write(self._senders.take())
        self.reached = replace(self.reached, senders=len(self._senders.names))

    def _clear(self, piece: ReplicaChunk) -> None:
        if self.begin is not None:
            _log.warning(
                "%s is copied again from %d on: its original no longer has what follows",
                self._what,
                piece.begin,
            )
        self._queued.clear()
        self._log.clear()

    def _begun(self, piece: ReplicaChunk) -> bytes:
        """Begin the segment of a piece, and return the data that follows its beginning."""
        self.sync()
        header = parse_header(piece.header)
        if header is None or header.first != piece.segment or len(piece.data) < header.data_start:
            raise self._damaged(piece, "the beginning of a segment")
        self._log.begin(header, piece.header, piece.data[: header.data_start])
        self._digest.reset()
        self._partial = 0
        self.reached = replace(
            self.reached,
            segment=header.first,
            header=xxhash.xxh3_64_intdigest(piece.header),
            entries=0,
            entry=0,
            data=header.data_start,
            end=header.first,
        )
        return piece.data[header.data_start :]

    def _checked(self, piece: ReplicaChunk, data: bytes) -> Entries:
        """Return the entries of a piece, if they are sound and follow what is there."""
        start = piece.start + len(piece.data) - len(data)
        if (data or piece.index) and (piece.segment, start) != (
            self.reached.segment,
            self.reached.data,
        ):
            msg = f"bytes from {start} on of segment {piece.segment} do not follow what {self._what} holds"
            raise CopyDiffers(msg, hint="open the copy again")
        entries = sound_run(piece.index, self.reached.end, self.reached.data - self._partial)
        if len(entries) * SIZE != len(piece.index):
            raise self._damaged(piece, f"entry {self.reached.entries + len(entries)}")
        self._check_data(piece, memoryview(data), entries)
        return entries

    def _check_data(self, piece: ReplicaChunk, data: memoryview, entries: Entries) -> None:
        at = 0
        for entry in entries[entries["length"] > 0]:
            stop = int(entry["offset"]) + int(entry["length"]) - self.reached.data
            self._digest.update(data[at:stop])
            if self._digest.intdigest() != int(entry["data_checksum"]):
                raise self._damaged(piece, f"the batch at position {entry['position']}")
            self._digest.reset()
            at, self._partial = stop, 0
        self._digest.update(data[at:])
        self._partial += len(data) - at

    def _move(self, size: int, entries: Entries) -> None:
        self.reached = replace(self.reached, data=self.reached.data + size)
        if len(entries):
            self._queued.append(entries)
            last = entries[-1]
            self.reached = replace(
                self.reached,
                entries=self.reached.entries + len(entries),
                entry=int(last["checksum"]),
                end=int(last["position"]) + int(last["count"]),
            )

    def _damaged(self, piece: ReplicaChunk, what: str) -> CorruptBatch:
        return CorruptBatch(
            f"{what} of {self._what} is damaged in its original, or was on the way",
            file=str(self.path),
            position=self.reached.end,
            offset=piece.start,
            hint="millstream journal verify, on the engine where it is written, shows what is damaged there",
        )

    def sync(self) -> None:
        """Make durable what was taken, and show it to readers."""
        if self._queued:
            self._log.append_index(np.concatenate(self._queued))
            self._queued.clear()

    # keeping

    def trim(self, begin: int) -> Trimmed:
        """Remove what the original no longer has, unless a reader here needs it."""
        have = self.begin
        if have is None or have >= begin:
            return Trimmed(0, 0, 0)
        return trim_to(self.path, self.partition, begin, disk=self._disk)

    def close(self) -> None:
        """Let go of the partition; what was taken since the last `sync` is taken again."""
        self._log.close()
        self._senders.close()
        self._lock.release()
