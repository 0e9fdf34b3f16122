"""The senders of a partition: index entries hold numbers, `senders` the names.

A sender's number is its line. `senders.copy` has the same names with their numbers. A line is
synced in `senders` before any entry holds its number; in the copy it need not be.

Opening decides by the numbers that the index uses. Unsound lines of numbers that it does not use
were torn by a crash, and are cut. A name that it does use comes from either file. If neither has
it, no rows are taken: what the sender sends again would be stored twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millstream.errors import CorruptSenders
from millstream.journal.kinds.files.index import DTYPE, NOBODY, SIZE, checksums, read_header
from millstream.journal.kinds.files.layout import index_file, segment_positions
from millstream.journal.kinds.files.lines import Line, checked_line, parse_lines, sound_prefix
from millstream.storage.disk import Disk, write_whole

_log = logging.getLogger(__name__)

Named = tuple[int, str]
"""A number and its sender."""


def senders_file(folder: Path) -> Path:
    return folder / "senders"


def senders_copy(folder: Path) -> Path:
    return folder / "senders.copy"


@dataclass(frozen=True, slots=True)
class Names:
    """What the two files have: `lines` and `copied` as they are, the names by number."""

    lines: Sequence[Line]
    copied: Sequence[Line]
    prefix: Sequence[str]
    known: dict[int, str]

    @property
    def sound(self) -> bool:
        return len(self.prefix) == len(self.lines)

    @property
    def sound_copy(self) -> bool:
        return [line.value for line in self.copied] == [list(one) for one in enumerate(self.prefix)]

    def missing(self, used: int) -> list[int]:
        """Return those of the first `used` numbers whose names are lost."""
        return [number for number in range(used) if number not in self.known]

    @property
    def offset(self) -> int:
        """Where in `senders` the sound lines end."""
        return self.lines[len(self.prefix) - 1].stop if self.prefix else 0


def read_names(folder: Path) -> Names:
    """Read both files."""
    lines = parse_lines(_content(senders_file(folder)))
    copied = parse_lines(_content(senders_copy(folder)))
    prefix = [str(value) for value in sound_prefix(lines)]
    known = dict(_named(line.value) for line in copied if line.sound)
    return Names(lines, copied, prefix, known | dict(enumerate(prefix)))


def read_senders(folder: Path) -> dict[int, str]:
    """Return the names by number."""
    return read_names(folder).known


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _named(value: object) -> Named:
    assert isinstance(value, list)
    return int(value[0]), str(value[1])


def used_numbers(folder: Path) -> int:
    """Return the number after the highest that any index holds."""
    highest = -1
    for first in segment_positions(folder):
        file = index_file(folder, first)
        header, raw = read_header(file), file.read_bytes()
        raw = raw[header.length :]
        entries = np.frombuffer(raw, dtype=DTYPE, count=len(raw) // SIZE)
        sound = (checksums(raw) == entries["checksum"]) & (entries["sender"] != NOBODY)
        highest = max([highest, *header.state.highest, *np.unique(entries["sender"][sound])])
    return int(highest) + 1


def damage(names: Names, used: int) -> str | None:
    """Return what is wrong with the first `used` names; None if `senders` has them all."""
    if len(names.prefix) >= used:
        return None
    lost = names.missing(used)
    if not lost:
        return f"the name of sender {len(names.prefix)} is damaged, the copy has it"
    return f"the names of senders {', '.join(map(str, lost))} are damaged, and in the copy too"


class Senders:
    """The writer's side: gives new senders a number, durable before any entry holds it."""

    def __init__(self, folder: Path, disk: Disk, needed: int) -> None:
        """Open the files; `needed` numbers or more are used by the index.

        Raises:
            CorruptSenders: The name of a number that is used is lost.
        """
        found = read_names(folder)
        self.names = list(found.prefix)
        if not found.sound or len(self.names) < needed:
            self.names = _recovered(folder, found, max(needed, used_numbers(folder)))
            write_names(folder, self.names, disk)
        elif not found.sound_copy:
            _write_copy(folder, self.names, disk)
        self._file = disk.open(senders_file(folder))
        self._copy = disk.open(senders_copy(folder))
        # Whoever wrote these lines may have been killed before it synced them.
        self._file.sync()
        disk.sync_folder(folder)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._unwritten: list[Named] = []

    def find(self, name: str) -> int | None:
        return self._numbers.get(name)

    def number(self, name: str) -> int:
        """Return a sender's number, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = len(self.names)
            self.names.append(name)
            self._numbers[name] = number
            self._unwritten.append((number, name))
        return number

    def take(self) -> list[Named]:
        """Return the senders not handed out yet, for `write`."""
        named, self._unwritten = self._unwritten, []
        return named

    def write(self, named: Sequence[Named]) -> None:
        """Make names durable."""
        if named:
            self._file.append([checked_line(name) for _, name in named])
            self._file.sync()
            self._copy.append([checked_line(one) for one in named])

    def close(self) -> None:
        self._file.close()
        self._copy.close()


def _recovered(folder: Path, found: Names, used: int) -> list[str]:
    """Return the names: of `used` numbers from either file, of those above as far as they go."""
    lost = found.missing(used)
    if lost:
        file = senders_file(folder)
        raise CorruptSenders(
            f'the names of senders {", ".join(map(str, lost))} are damaged in "{file}", at byte'
            f" {found.offset}: rows that they send again could not be told from new ones",
            file=str(file),
            offset=found.offset,
            hint="restore the file from a backup; or let millstream journal repair go on without the names",
        )
    if len(found.prefix) < used:
        _log.warning('the senders in "%s" were damaged, and are rebuilt', senders_file(folder))
    names: list[str] = []
    while len(names) in found.known:
        names.append(found.known[len(names)])
    return names


def write_names(folder: Path, names: Sequence[str], disk: Disk) -> None:
    """Write both files."""
    _write_copy(folder, names, disk)
    write_whole(disk, senders_file(folder), b"".join(checked_line(name) for name in names))


def _write_copy(folder: Path, names: Sequence[str], disk: Disk) -> None:
    lines = b"".join(checked_line(one) for one in enumerate(names))
    write_whole(disk, senders_copy(folder), lines)
