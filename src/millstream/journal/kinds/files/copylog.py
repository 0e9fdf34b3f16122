"""The log of a copy: the same files as `log.py` writes, from bytes that were written elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xxhash

from millstream.errors import AlreadyWriting
from millstream.journal.kinds.files.index import (
    DTYPE,
    SIZE,
    Entries,
    Header,
    State,
    read_header,
    state_after,
)
from millstream.journal.kinds.files.layout import (
    copy_file,
    data_file,
    index_file,
    segment_positions,
)
from millstream.journal.kinds.files.log import PartitionLog
from millstream.journal.kinds.files.replica_chunk import NOWHERE, Reached
from millstream.storage.disk import DiskFile


def copied_from(folder: Path) -> str | None:
    """Return where the original of a partition is, if this folder is a copy of it."""
    try:
        return str(json.loads(copy_file(folder).read_bytes())["original"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # damaged: a copy all the same
        return "an unknown address"


def written_here(folder: Path) -> bool:
    """Tell whether a partition was written in this folder, not copied to it."""
    return copied_from(folder) is None and bool(segment_positions(folder))


def refuse_copy(folder: Path, what: str) -> None:
    """Refuse to write where a copy is kept.

    Raises:
        AlreadyWriting: The partition is a copy.
    """
    original = copied_from(folder)
    if original is not None:
        msg = f"{what} is a copy of the one at {original}, which is where it is written"
        hint = f'if it is not written there any more, remove "{copy_file(folder)}"'
        raise AlreadyWriting(msg, hint=hint)


class CopyLog(PartitionLog):
    """Writes a copy of a partition. Opening it recovers as a writer does."""

    def _begin_first(self) -> None:
        """Leave it: a copy has no segment before it is given one."""
        self._first = NOWHERE

    def _restore_start(self, data: DiskFile, header: Header) -> None:
        """Leave it: an empty segment is asked for again."""

    def reached(self) -> Reached:
        """Return how far the files go."""
        if self._first == NOWHERE:
            return Reached()
        if self._entries == 0:
            # Its beginning is not known to be sound: without a checksum it is sent again.
            return Reached(self._first, end=self.state.position)
        path = index_file(self._folder, self._first)
        header = read_header(path)
        with path.open("rb") as source:
            checksum = xxhash.xxh3_64_intdigest(source.read(header.length))
            source.seek(header.length + (self._entries - 1) * SIZE)
            last = np.frombuffer(source.read(SIZE), dtype=DTYPE)[0]
        return Reached(
            segment=self._first,
            header=checksum,
            entries=self._entries,
            entry=int(last["checksum"]),
            data=self._data_size(),
            end=self.state.position,
        )

    def begin(self, header: Header, raw: bytes, message: bytes) -> None:
        """Begin a segment: its header, and how its data begins."""
        self._begin(header.first, header.version, message, raw)
        self.state = header.state.copy()

    def append_data(self, data: bytes) -> None:
        """Write data; not durable, and seen by nobody, before `append_index`."""
        assert self._data is not None
        self._data.append([data])

    def append_index(self, entries: Entries) -> None:
        """Make the data durable, then the entries, and show them."""
        assert self._data is not None
        assert self._index is not None
        self._data.sync()
        self._index.append([entries.tobytes()])
        self._index.sync()
        self.state = state_after(self.state, entries)
        self._entries += len(entries)
        self._mark.set(self._first, self._entries, self.state.position)

    def clear(self) -> None:
        """Remove all segments, the oldest first: a crash leaves the newest."""
        self._close_files()
        for first in segment_positions(self._folder):
            self._disk.remove(index_file(self._folder, first))
            self._disk.remove(data_file(self._folder, first))
        self._disk.sync_folder(self._folder)
        self._first, self._entries, self.state = NOWHERE, 0, State()
