"""A disk that stops at a chosen operation and then keeps only what a disk must keep.

It works on real files, which always look as the operating system would show them. Beside that it
knows what is durable. After `lose_power` the files hold everything that was synced and, of the
rest, whatever a seeded choice leaves: per sector the old bytes, the new ones, or rubbish where
nothing durable was; names as of some moment since their folder was last synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SECTOR = 512


class Crash(BaseException):
    """The machine stopped."""


@dataclass
class Content:
    """A file, whatever its name is just now."""

    current: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    writes: list[tuple[int, bytes] | int] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        if len(self.current) < offset:
            self.current.extend(bytes(offset - len(self.current)))
        self.current[offset : offset + len(data)] = data
        self.writes.append((offset, data))

    def truncate(self, size: int) -> None:
        del self.current[size:]
        self.current.extend(bytes(size - len(self.current)))
        self.writes.append(size)

    def sync(self) -> None:
        self.durable = bytes(self.current)
        self.writes = []

    def survive(self, chance: random.Random) -> None:
        """Become what the disk holds after a loss of power."""
        left = bytearray(self.durable)
        safe = len(left)
        for write in self.writes:
            if isinstance(write, int):
                if chance.random() < 0.5:
                    del left[write:]
                    left.extend(bytes(write - len(left)))
                    safe = min(safe, write)
                continue
            _survive_write(left, safe, *write, chance)
        self.current, self.durable, self.writes = left, bytes(left), []


def _survive_write(
    left: bytearray, safe: int, offset: int, data: bytes, chance: random.Random
) -> None:
    begin = offset
    while begin < offset + len(data):
        end = min((begin // _SECTOR + 1) * _SECTOR, offset + len(data))
        piece = data[begin - offset : end - offset]
        fate = chance.random()
        if fate < 0.55:
            _put(left, begin, piece)
        elif fate < 0.75:
            whole = max(
                0, min(end, safe) - begin
            )  # a sector that holds durable bytes is never torn
            rubbish = bytes(left[begin : begin + whole]) + chance.randbytes(len(piece) - whole)
            _put(left, begin, rubbish if whole < len(piece) else piece)
        begin = end


def _put(left: bytearray, offset: int, data: bytes) -> None:
    if len(left) < offset:
        left.extend(bytes(offset - len(left)))
    left[offset : offset + len(data)] = data


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: Path, content: Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content

    def append(self, buffers: Sequence[object]) -> None:
        self._disk.step()
        self._content.write(
            len(self._content.current), b"".join(memoryview(b).cast("B") for b in buffers)
        )
        self._disk.show(self._content)

    def write_at(self, offset: int, data: bytes) -> None:
        self._disk.step()
        self._content.write(offset, data)
        self._disk.show(self._content)

    def sync(self) -> None:
        self._disk.step()
        self._content.sync()

    def truncate(self, size: int) -> None:
        self._disk.step()
        self._content.truncate(size)
        self._disk.show(self._content)

    def size(self) -> int:
        return len(self._content.current)

    def close(self) -> None:
        pass


class FaultyDisk:
    """`after` operations work, then `Crash` is raised; `watch` is called after each that worked."""

    def __init__(self, seed: int = 0, after: int | None = None) -> None:
        self.after = after
        self.operations = 0
        self.watch: Callable[[], None] = lambda: None
        self._chance = random.Random(seed)
        self._names: dict[Path, Content] = {}
        self._durable_names: dict[Path, Content] = {}
        self._name_changes: dict[Path, list[Callable[[dict[Path, Content]], None]]] = {}

    def step(self) -> None:
        self.watch()
        if self.after is not None and self.after <= 0:
            raise Crash
        self.operations += 1
        if self.after is not None:
            self.after -= 1

    def show(self, content: Content) -> None:
        for path, named in self._names.items():
            if named is content:
                _overwrite(path, content.current)

    def _change(self, folder: Path, change: Callable[[dict[Path, Content]], None]) -> None:
        change(self._names)
        self._name_changes.setdefault(folder, []).append(change)

    # the protocol

    def open(self, path: Path) -> FaultyFile:
        if path not in self._names:
            self.step()
            content = Content()
            self._change(path.parent, lambda names: names.__setitem__(path, content))
            path.touch()
        return FaultyFile(self, path, self._names[path])

    def rename(self, source: Path, target: Path) -> None:
        self.step()

        def change(names: dict[Path, Content]) -> None:
            if source in names:
                names[target] = names.pop(source)

        self._change(target.parent, change)
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        self.step()
        target.hardlink_to(source)
        content = self._names[source]
        self._change(target.parent, lambda names: names.__setitem__(target, content))

    def remove(self, path: Path) -> None:
        self.step()
        self._change(path.parent, lambda names: names.pop(path, None))
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        self.step()
        for change in self._name_changes.pop(path, []):
            change(self._durable_names)

    # the end

    def lose_power(self) -> None:
        """Forget what was not synced, in a way that the seed chooses."""
        for changes in self._name_changes.values():
            for change in changes[: self._chance.randint(0, len(changes))]:
                change(self._durable_names)
        self._name_changes = {}
        for path in self._names:
            path.unlink(missing_ok=True)
        for content in {id(c): c for c in self._durable_names.values()}.values():
            content.survive(self._chance)
        self._names = dict(self._durable_names)
        for path, content in self._names.items():
            path.write_bytes(content.current)


def _overwrite(path: Path, content: bytearray) -> None:
    """Change a file in place, as readers that have it mapped would see it: never shorter for a moment."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))
