"""Reading the whole state of a shard: for whoever looks at it or carries it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

from millstream.state.manifest import NO_TIME, Stored, load, no_time
from millstream.state.run_file import Hashing, RunFile, hashed, merged


def entries(
    data: bytes,
    open_file: Callable[[str], pa.Buffer],
    expired: int | None = None,
    hashing: Hashing = hashed,
    old_time: Callable[[Raw], int] = no_time,
) -> Iterator[tuple[bytes, Any, int | None]]:
    """Yield each key with its value and its time in microseconds, None if it has none.

    Args:
        data: The manifest of a shard, of any format.
        open_file: Returns the content of a run file: `StateFiles.open`.
        expired: Entries at or before this time are left out.
        hashing: How keys are hashed.
        old_time: Returns the time of a value of earlier versions, which stored none beside it.
    """
    for key, entry in whole(data, open_file, expired, hashing, old_time).items():
        assert entry is not None, "what was removed is left out"
        value, time = entry
        yield key, msgspec.msgpack.decode(value), None if time == NO_TIME else time


def whole(
    data: bytes,
    open_file: Callable[[str], pa.Buffer],
    expired: int | None = None,
    hashing: Hashing = hashed,
    old_time: Callable[[Raw], int] = no_time,
) -> RunFile:
    """Return all that a shard keeps as one run; the arguments are those of `entries`."""
    manifest = load(data, old_time)
    own: dict[bytes, Stored | None] = {
        key: (bytes(value), time) for key, (value, time) in manifest.fresh.items()
    }
    runs = [RunFile.load(open_file(run.name)) for run in manifest.runs]
    runs.append(RunFile.of(own | dict.fromkeys(manifest.removed), hashing))
    return merged(runs, whole=True, expired=expired)
