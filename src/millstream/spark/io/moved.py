"""A checkpoint that lies elsewhere than when it was written: its data folder was moved or copied.

Spark writes down where the schemas of state are by their whole paths. What lies below the
checkpoint's own folder is there as before, so the beginning of a path is replaced.
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Final

from millstream.spark.io.checkpoint import Checkpoint
from millstream.storage import Folder, Storage, storage_at

_SCHEMA: Final = re.compile(r'"(?P<before>[^"]*)(?P<inside>/state/\d+/_stateSchema/[^"]*)"')


def settle_in(checkpoint: Checkpoint) -> None:
    """Let the state of a checkpoint be found where the checkpoint is now; nobody runs it yet."""
    storage = storage_at(f"{checkpoint.address or checkpoint.folder}/{checkpoint.id}")
    scheme = "file:" if checkpoint.address is None else ""
    for operator in count():
        folder = f"state/{operator}/_metadata"
        names = [*storage.list(folder), *storage.list(f"{folder}/v2")]
        if not names:
            return
        for name in names:
            _settle(storage, name, f"{scheme}{checkpoint.spark_location}")


def _settle(storage: Storage, name: str, location: str) -> None:
    text = (storage.read(name) or b"").decode()
    here = relocated(text, location)
    if here != text:
        if isinstance(storage, Folder):
            file = storage.path / name
            # First: without a checksum Hadoop compares nothing, with an old one it refuses the file.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        storage.put(name, here.encode())


def relocated(text: str, location: str) -> str:
    """Return the metadata of an operator with the paths that a checkpoint at `location` has."""
    before = json.dumps(location, ensure_ascii=False)[1:-1]
    return _SCHEMA.sub(lambda found: f'"{before}{found["inside"]}"', text)
