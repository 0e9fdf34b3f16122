"""Write the state of a shard as this version does: `PYTHONPATH=tests python -m upgrade.state.make`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.state import NO_TIME, Entry, ShardState, StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder

HERE = Path(__file__).parent


def key(number: int) -> bytes:
    return msgspec.msgpack.encode([f"k{number}"])


def main() -> None:
    place = HERE / "format_1"
    files = StateFiles(Folder(place), "totals", retain=2, inline=400)
    data = b""
    changes: list[dict[bytes, Entry | None]] = [
        {key(n): Entry(msgspec.msgpack.encode({"n": n}), n) for n in range(40)},
        {key(n): Entry(msgspec.msgpack.encode({"n": -n}), 100) for n in range(30, 45)},
        {key(0): None, key(50): Entry(msgspec.msgpack.encode(None), NO_TIME)},
    ]
    for change in changes:
        data = ShardState(load(data), files, 3).commit(change) or data
    (place / "manifest.bin").write_bytes(data)


if __name__ == "__main__":
    main()
