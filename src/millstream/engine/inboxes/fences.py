"""Which life of each node may send to a source: a later one fences the earlier, for good."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from millstream.errors import Fenced
from millstream.journal.disk import REAL


class Fences:
    """The highest generation of each node that has come, on disk before anything of it is taken."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, int] = {}
        if file.is_file():
            self._known = msgspec.json.decode(file.read_bytes(), type=dict[str, int])

    def pass_(self, node: str, generation: int) -> None:
        """Let a life of a node in, and fence those before it.

        Raises:
            Fenced: It was replaced by a later one.
        """
        fence = self._known.get(node, 0)
        if generation < fence:
            raise Fenced(
                f'"{node}#{generation}" was replaced by generation {fence}',
                hint="it may be stopped",
            )
        if generation > fence:
            self._save({**self._known, node: generation})
            self._known[node] = generation

    def _save(self, known: dict[str, int]) -> None:
        fresh = self._file.with_suffix(".new")
        with fresh.open("wb") as sink:
            sink.write(msgspec.json.encode(known))
            sink.flush()
            os.fsync(sink.fileno())
        fresh.replace(self._file)
        REAL.sync_folder(self._file.parent)
