"""The Python packages of this environment as one archive, for executors that have a bare Python.

    millstream-python.tar.gz        unpacked by Spark beside each executor, as `millstream-python/`
      millstream/  pyarrow/  numpy/  ...

It holds Millstream and the packages that it needs in executors, as far as they are installed here,
and those that are named besides. Not PySpark: executors have it with their Spark. Files are those of
this system and this minor version of Python, which the executors must have too. Modules that are
compiled here go along: every executor would compile them again.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path, PurePosixPath
from typing import Final

from millstream.errors import InvalidOption

OURS: Final = "millstream"
#: The archive, in the environment: for those who cannot give an option, an engine's drivers.
PACKAGES: Final = "MILLSTREAM_EXECUTOR_PYTHON"
#: The folder in which executors find the packages.
FOLDER: Final = "millstream-python"
#: What executors may use of that which can be installed with Millstream; the rest is for drivers.
_EXTRAS: Final = ("kafka", "patterns", "s3", "spark")
#: What comes with Spark.
_WITH_SPARK: Final = frozenset({"pyspark", "py4j"})
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*([^;]*)(;.*)?")
_EXTRA: Final = re.compile(r"\bextra\s*==\s*\W(\w+)")
#: Parts of packages that nothing loads in an executor.
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "include"})


def pack(file: Path, also: Iterable[str] = (), without: Iterable[str] = ()) -> list[str]:
    """Write the archive, and return the names of the packages in it.

    Args:
        file: The archive.
        also: Packages that are needed besides.
        without: Packages that are not needed after all, nor what only they need.

    Raises:
        InvalidOption: One of those that are named besides is not installed.
    """
    packages = needed(also, without)
    part = file.with_name(f".{file.name}.part")
    try:
        # Most of it is machine code, which takes long to compress well.
        with tarfile.open(part, "w:gz", compresslevel=1) as archive:
            for path, name in _files(packages):
                archive.add(path, name, recursive=False)
                if path.suffix == ".py" and (compiled := Path(cache_from_source(path))).is_file():
                    inside = PurePosixPath(name).parent / "__pycache__" / compiled.name
                    archive.add(compiled, str(inside), recursive=False)
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
    return sorted(packages)


def needed(also: Iterable[str] = (), without: Iterable[str] = ()) -> dict[str, Distribution]:
    """Return the packages that executors need, by name."""
    found: dict[str, Distribution] = {}
    left_out = _WITH_SPARK | set(map(_plain, without))
    waiting = [OURS, *also]
    wanted = frozenset(map(_plain, waiting))
    while waiting:
        name = _plain(waiting.pop())
        if name in found or name in left_out:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in wanted:
                msg = f'the package "{name}" is not installed here'
                raise InvalidOption(msg, hint=f"install it: pip install {name}") from None
            continue  # of an extra, or of another system
        waiting += _required(found[name], _EXTRAS if name == OURS else ())
    return found


def _required(package: Distribution, extras: Iterable[str]) -> Iterator[str]:
    for line in package.requires or ():
        parsed = _REQUIREMENT.match(line)
        if parsed is None:
            continue
        extra = _EXTRA.search(parsed[3] or "")
        if extra is None or extra[1] in extras:
            yield parsed[1]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(packages: dict[str, Distribution]) -> Iterator[tuple[Path, str]]:
    """Yield files, and what they are called in the archive."""
    for name, package in packages.items():
        for file in package.files or ():
            if _carried(file, name):
                yield Path(str(package.locate_file(file))), str(file)
    # Where it is installed from a working copy, its list of files has none of its modules.
    place = Path(__file__).parents[2]
    for path in sorted(place.rglob("*")):
        inside = PurePosixPath(OURS) / path.relative_to(place).as_posix()
        if path.is_file() and not _LEFT_OUT & set(inside.parts):
            yield path, str(inside)


def _carried(file: PurePosixPath, package: str) -> bool:
    outside = file.parts[0] in ("..", "/") or file.suffix == ".pth"
    ours = package == OURS and file.parts[0] == OURS
    return not (outside or ours or _LEFT_OUT & set(file.parts))
