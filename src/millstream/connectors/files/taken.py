"""Folders of files: which there are, which have been taken, which have changed since.

A log beside the journal (`files.jsonl`) has a line for every file that was begun
and another for every one that was taken whole. It saves work and finds changes;
what keeps a row from being taken twice are the places of rows that the journal
itself remembers of the sender "file:<path>".

A file may grow by whole lines while the source follows it. One whose beginning is
no longer what was taken is left alone, and a dead letter says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import xxhash

from millstream.connectors.files import Files
from millstream.connectors.files.reading import BEGINNING, Place, packed
from millstream.errors import NotThere
from millstream.flow.formats import SUFFIXES

_END: Final = 64 << 10
_WILD: Final = frozenset("*?[")


class TakenFile(msgspec.Struct, frozen=True):
    """A file as it was when it was begun, and how much of it has been taken since."""

    file: str
    size: int
    modified: int
    digest: str
    records: int = 0
    offset: int = 0
    done: bool = False
    left_alone: bool = False

    @property
    def place(self) -> Place:
        return Place(self.records, self.offset)


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the source: `name` is its path below the source's folder."""

    name: str
    path: Path
    size: int
    modified: int

    @property
    def sender(self) -> str:
        return f"file:{self.name}"


# Which files there are


def find(spec: Files) -> list[Found]:
    """Return the files of a source now, in the order of their names.

    Names that begin with "." or "_" and names that end in ".tmp" are passed over: a file is written
    under such a name and moved to its place when it is whole.
    """
    root = Path(root_of(spec.path))
    paths = [
        path for path in _paths(spec) if path.is_file() and not _hidden(path.relative_to(root))
    ]
    return sorted((found(path, root) for path in paths), key=lambda one: one.name)


def root_of(path: str) -> str:
    """Return the folder that names are relative to: the fixed part of a glob."""
    fixed = Path(path)
    while _WILD & set(str(fixed)):
        fixed = fixed.parent
    return str(fixed.parent if str(fixed) == path and fixed.is_file() else fixed)


def there(spec: Files, *, begun: bool = False) -> None:
    """Raise `NotThere` if a source that does not wait for files has none to look at.

    An empty folder has none and is no mistake. One with files of other formats only is, unless the
    source was begun before: its files may have been moved away since.
    """
    if spec.follow:
        return
    if Path(spec.path).exists():
        if not begun:
            _refuse_others(spec)
        return
    if not _WILD & set(spec.path):
        hint = "follow=True waits for files to appear"
        raise NotThere(f'"{spec.path}" does not exist', hint=hint)
    if not find(spec):
        hint = "follow=True waits for files to appear"
        raise NotThere(f'no file matches "{spec.path}"', hint=hint)


def _refuse_others(spec: Files) -> None:
    folder = Path(spec.path)
    if not folder.is_dir() or find(spec):
        return
    others = [
        one for one in folder.rglob("*") if one.is_file() and not _hidden(one.relative_to(folder))
    ]
    if not others:
        return
    counts = Counter(_suffix(one) or "without a suffix" for one in others)
    shown = ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common(5))
    fitting = [name for name, known in SUFFIXES.items() if set(counts) & set(known)]
    hint = f'say format="{fitting[0]}"' if fitting else "give its files a suffix of the format"
    msg = f'"{spec.path}" has no file of format "{spec.format}", which end in '
    msg += f"{' or '.join(SUFFIXES[spec.format])}; it has {shown}"
    raise NotThere(msg, hint=f"{hint}, or name the files: {spec.path}/*")


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _paths(spec: Files) -> Iterator[Path]:
    path = Path(spec.path)
    if path.is_file():
        yield path
    elif path.is_dir():
        suffixes = SUFFIXES[spec.format]
        yield from (
            one
            for one in path.rglob("*")
            if one.name.lower().removesuffix(".gz").endswith(suffixes)
        )
    elif _WILD & set(spec.path):
        root = Path(root_of(spec.path))
        yield from root.glob(str(path.relative_to(root)))


def found(path: Path, root: Path) -> Found:
    """Return what there is to say about a file now."""
    facts = path.stat()
    return Found(path.relative_to(root).as_posix(), path, facts.st_size, facts.st_mtime_ns)


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts) or path.suffix == ".tmp"


# Which have been taken


State = Literal["new", "begun", "unfinished", "done", "grown", "changed"]


def state_of(found: Found, taken: TakenFile | None, *, settled: bool) -> State:
    """Tell what a file is to a source; `settled` if nobody seems to be writing it any more.

    A file is "new", "begun" (and to be read on), "unfinished" (it can be read only once it has
    settled), "done", has "grown" since it was done, or was "changed" so that it no longer begins
    with what was taken.
    """
    whole_only = packed(found.path) or found.path.suffix == ".parquet"
    if whole_only and not settled:
        return "unfinished"
    if taken is None:
        return "new"
    if taken.left_alone:
        return "done"
    if (found.size, found.modified) != (taken.size, taken.modified) and not _begins_as(
        found, taken
    ):
        return "changed"
    if not taken.done:
        return "begun"
    # Beyond what was taken: more lines, or a last line without its end, which counts once the file
    # has settled.
    more = found.size > taken.size or (settled and found.size > taken.offset)
    return "grown" if more and not whole_only else "done"


def _begins_as(found: Found, taken: TakenFile) -> bool:
    return found.size >= taken.size and digest(found.path, taken.size) == taken.digest


def digest(path: Path, size: int) -> str:
    """Return a digest of the first `size` bytes: their number, their beginning and their end."""
    hasher = xxhash.xxh3_128(str(size).encode())
    with path.open("rb") as file:
        hasher.update(file.read(min(_END, size)))
        file.seek(max(size - _END, 0))
        hasher.update(file.read(min(_END, size)))
    return hasher.hexdigest()


def begun(found: Found, place: Place = BEGINNING) -> TakenFile:
    """Return the line for a file that is begun as it is now, or read on from a place."""
    content = digest(found.path, found.size)
    return TakenFile(found.name, found.size, found.modified, content, place.records, place.offset)


class TakenLog:
    """What is known of the files of a source; one process writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken = {one.file: one for one in _read(path)}

    def get(self, name: str) -> TakenFile | None:
        return self._taken.get(name)

    def put(self, taken: TakenFile) -> None:
        """Add a line; it is on disk when this returns."""
        with self._path.open("ab") as file:
            # The newline goes first: it ends a line that a crash may have torn.
            file.write(b"\n" + msgspec.json.encode(taken) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._taken[taken.file] = taken


def _read(path: Path) -> Iterator[TakenFile]:
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=TakenFile)
        except msgspec.DecodeError:
            # A line that a crash has torn: the file is looked at again.
            continue
