"""One run at a time: the claim on a flow's data folder."""

from __future__ import annotations

from pathlib import Path

from millstream.errors import AlreadyRunning
from millstream.storage import Claim, Folder
from millstream.storage.private import make_private


def claim(folder: Path, flow: str) -> Claim:
    """Claim the folder of a flow, which is for this user alone.

    Raises:
        AlreadyRunning: Another process has it.
    """
    make_private(folder)
    storage = Folder(folder)
    taken = storage.claim("lock")
    if taken is None:
        holder = (storage.read("lock") or b"").decode() or "unknown"
        hint = "stop that one first, or run this one with another --data folder"
        raise AlreadyRunning(f'flow "{flow}" is running already, in process {holder}', hint=hint)
    return taken
