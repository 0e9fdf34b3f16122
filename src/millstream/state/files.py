"""Where run files lie: beside the checkpoint that names them.

    keys/<stage>/<shard>/<touch>-<random>.<hash>.arrow

Whatever hands over, retires or removes a checkpoint takes them along. In a folder a file is mapped
where it is. From elsewhere it is fetched once to a folder of the host that all processes of this
user share. A name is used once, so whatever is known under it is never stale. The hash of the content
is for whoever looks for damage (`verifying`); names of earlier versions have none.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import xxhash

from millstream.errors import RunError
from millstream.state.manifest import INLINE, Manifest, load
from millstream.state.run_file import RunFile
from millstream.storage import Folder, Storage
from millstream.storage.private import FOLDER

#: So many runs stay mapped in a process.
_MAPPED: Final = 1024
#: So many bytes stay on a host of what was fetched.
_MOST: Final = 8 << 30

_mapped: OrderedDict[str, RunFile] = OrderedDict()


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The run files of a stage.

    Args:
        storage: Where the checkpoint is.
        stage: The stage's name.
        retain: For so many touches of a shard a file that was replaced stays. A manifest that
            anybody may still go back to must not lie further behind.
        inline: A manifest of more bytes moves its own entries to a file.
        imported: The token of the state that shards take over: see `importing`.
    """

    storage: Storage
    stage: str
    retain: int
    inline: int = INLINE
    imported: str = ""

    def taken_over(self, shard: int, manifest: Manifest) -> Manifest:
        """Return what a shard goes on with: what was imported for it, if it has not got that yet."""
        if not self.imported or manifest.imported == self.imported:
            return manifest
        content = self.storage.read(imported_name(self.stage, self.imported, shard))
        return Manifest(imported=self.imported) if content is None else load(content)

    def put(self, shard: int, touch: int, content: bytes) -> str:
        """Store a new file, and return its name."""
        name = f"{self.folder(shard)}/{touch:08d}-{uuid.uuid4().hex}.{hash_of(content)}.arrow"
        self.storage.put(name, content)
        return name

    def run(self, name: str) -> RunFile:
        """Return the run in a file."""
        found = _mapped.get(name)
        if found is None:
            found = _mapped[name] = RunFile.load(self.open(name))
            while len(_mapped) > _MAPPED:
                _mapped.popitem(last=False)
        else:
            _mapped.move_to_end(name)
        return found

    def open(self, name: str) -> pa.Buffer:
        """Return the content of a file, mapped.

        Raises:
            RunError: It is not there.
        """
        path = self.storage.path / name if isinstance(self.storage, Folder) else self._fetched(name)
        try:
            return pa.memory_map(str(path)).read_buffer()
        except FileNotFoundError as error:
            raise self._lost(name) from error

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        _mapped.pop(name, None)
        self.storage.delete(name)
        if not isinstance(self.storage, Folder):
            (_host_folder() / _last(name)).unlink(missing_ok=True)

    def before(self, shard: int, touch: int) -> Iterator[str]:
        """Yield the names of a shard's files that were written before a touch."""
        for name in self.storage.list(self.folder(shard)):
            number = _last(name).partition("-")[0]
            if number.isdigit() and int(number) < touch:
                yield name

    def folder(self, shard: int) -> str:
        """Return where the files of a shard are."""
        return f"keys/{self.stage}/{shard}"

    def _fetched(self, name: str) -> Path:
        path = _host_folder() / _last(name)
        if path.exists():
            os.utime(path)
            return path
        content = self.storage.read(name)
        if content is None:
            raise self._lost(name)
        part = path.with_name(f".{uuid.uuid4().hex}")
        part.write_bytes(content)
        part.rename(path)
        _make_room(path.parent)
        return path

    def _lost(self, name: str) -> RunError:
        hint = "restore it; or remove the checkpoint to run the group again from the beginning"
        return RunError(f'stage "{self.stage}" keeps state in {name}, which is gone', hint=hint)


def hash_of(content: bytes) -> str:
    """Return the hash of a file's content."""
    return xxhash.xxh3_64_hexdigest(content)


def hash_in(name: str) -> str | None:
    """Return the hash in a file's name; None if an earlier version has written it."""
    parts = _last(name).split(".")
    return parts[1] if len(parts) == 3 else None


def imported_name(stage: str, token: str, shard: int) -> str:
    """Return the name of the manifest that was imported for a shard."""
    return f"keys/{stage}/imported/{token}/{shard}"


def retained(batches: int) -> int:
    """Return for how many touches files stay if one may go back so many batches.

    A batch touches a shard at most twice, with rows and with a timer; the rest is a margin, for
    drivers that were replaced and are about to find it out.
    """
    return 2 * batches + 8


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _host_folder() -> Path:
    """Return the folder of fetched files, of this user alone."""
    path = Path(tempfile.gettempdir()) / f"millstream-state-{os.getuid()}"
    path.mkdir(mode=FOLDER, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        hint = "remove it, or set TMPDIR"
        raise RunError(f'"{path}" belongs to another user', hint=hint)
    return path


def _make_room(folder: Path) -> None:
    """Remove what was not used for the longest time, until the rest is small enough."""
    found = []
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= _MOST:
            return
        path.unlink(missing_ok=True)  # who has it mapped keeps it
        total -= size
