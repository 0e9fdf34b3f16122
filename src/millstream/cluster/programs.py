"""The programs that engines keep for the actions of flows."""

from __future__ import annotations

import hashlib
import io
import re
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from millstream.cluster.client import Sent, content_path
from millstream.cluster.engines import Engines
from millstream.engine.jobs.status import BinaryStatus
from millstream.engine.programs.contents import MOST_BYTES
from millstream.errors import BadBinary, NoSuchAction
from millstream.flow.binary import NAME


class Programs(Engines):
    """What a cluster is asked about programs."""

    def add_action(self, name: str, file: Path, *, progress: Sent | None = None) -> BinaryStatus:
        """Add a program to the engines, as a new version of `name`, unless the newest is the same.

        Node 0 gets it; the others do when a flow is deployed that names it.

        Raises:
            BadBinary: It is no file, empty, or too large.
        """
        path, engine = _action(name), self._there()[0]
        try:
            with file.open("rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                total = opened.seek(0, io.SEEK_END)
                if not 0 < total <= MOST_BYTES:
                    hint = f"a program has 1 byte to {MOST_BYTES >> 20} MB"
                    raise BadBinary(f'"{file}" has {total:,} bytes', hint=hint)
                engine.send_content(sha256, total, partial(_read_at, opened), progress=progress)
        except OSError as exc:
            hint = "name the file of a program"
            raise BadBinary(f'"{file}" cannot be read: {exc.strerror}', hint=hint) from exc
        return engine.post(path, BinaryStatus, {"sha256": sha256})

    def actions(self) -> list[BinaryStatus]:
        """Return all versions of all programs that the engines keep, by name, oldest first."""
        return self._there()[0].get("/actions", list[BinaryStatus])

    def action(self, name: str) -> list[BinaryStatus]:
        """Return all versions of a program, oldest first.

        Raises:
            NoSuchAction: There is none.
        """
        return self._there()[0].get(_action(name), list[BinaryStatus])

    def remove_action(self, name: str, version: int | None = None) -> list[BinaryStatus]:
        """Have the engines forget a version of a program, or all of them.

        Raises:
            NoSuchAction: There is none.
            ActionInUse: A job was deployed with it.
            EngineAway: An engine does not answer; nothing is removed.
        """
        first, *others = self._whole()
        gone = first.delete(_action(name), list[BinaryStatus], version=version)
        for engine in others:
            for one in gone:
                engine.delete(content_path(one.sha256), dict[str, Any])
        return gone


def _action(name: str) -> str:
    if re.fullmatch(NAME, name) is None:
        hint = "a name is a letter, then letters, digits, dots, dashes and underscores"
        raise NoSuchAction(f'"{name}" is not the name of an action', hint=hint)
    return f"/actions/{name}"


def _read_at(file: BinaryIO, offset: int, limit: int) -> bytes:
    file.seek(offset)
    return file.read(limit)
