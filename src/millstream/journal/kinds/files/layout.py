"""Where things lie in a journal's folder.

DIR/journal.json              schemas, partitions now and before, time column, who writes
DIR/p0000/<position>.arrow    a segment: an Arrow IPC stream (schema, then record batches)
DIR/p0000/<position>.index    its index: a header with the state at its start, then fixed-size entries
DIR/p0000/mark                up to where the index is known to be synced
DIR/p0000/senders             the senders' names; entries hold their numbers
DIR/p0000/senders.copy        the same with numbers, in case one of the two is damaged
DIR/p0000/claims              who has which sender's name
DIR/p0000/ends                senders that have ended, while others have not
DIR/p0000/lock                held by the one writer
DIR/p0000/copy.json           there only if the partition is written on another host, and this is a copy of it
DIR/epochs, DIR/staged/       decisions of groups, and what they decide about
DIR/readers/<name>.json       positions that readers have committed
DIR/dead/                     the dead letters, a journal of their own
DIR/aside/                    damaged bytes that `repair` has put away
"""

from __future__ import annotations

import os
from pathlib import Path

FORMAT = 1
GROWN = 2  # there were fewer partitions: who does not know of that would lay rows out otherwise
DATA = ".arrow"
INDEX = ".index"
UNFINISHED = ".unfinished"


def description_file(path: Path) -> Path:
    return path / "journal.json"


def partition_folder(path: Path, partition: int) -> Path:
    return path / f"p{partition:04d}"


def data_file(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}{DATA}"


def index_file(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}{INDEX}"


def copy_file(folder: Path) -> Path:
    return folder / "copy.json"


def segment_positions(folder: Path) -> list[int]:
    """Return the first positions of the segments, in order.

    A segment exists once its index does: that file appears by a rename.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 readers ask often, and paths are slow to make
    except FileNotFoundError:
        return []
    return sorted(int(name.removesuffix(INDEX)) for name in names if name.endswith(INDEX))


def segment_bytes(folder: Path, first: int) -> int:
    """Return the size of a segment, as far as it is there."""
    files = (data_file(folder, first), index_file(folder, first))
    return sum(file.stat().st_size for file in files if file.exists())


def readers_folder(path: Path) -> Path:
    return path / "readers"


def staged_folder(path: Path) -> Path:
    return path / "staged"


def epochs_file(path: Path) -> Path:
    return path / "epochs"


def dead_folder(path: Path) -> Path:
    return path / "dead"


def aside_folder(path: Path) -> Path:
    return path / "aside"
