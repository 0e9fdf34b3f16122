"""What is deployed: the file of a flow or a scheme and the Python modules beside it, as one zip.

    millstream.json      {"flow": "flights.py"}: which of the files is the flow
    flights.py           the flow
    airports.py          a module beside it
    prices/__init__.py   a package beside it, whole

Tables, recordings and programs that the flow names by path are not in it: they are read where the
flow was deployed from, if the engine can see that folder.
"""

from __future__ import annotations

import io
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from millstream.errors import BadPackage, NotLoadable

MOST_BYTES: Final = 32 << 20
MOST_FILES: Final = 2_000
_MANIFEST: Final = "millstream.json"
_SUFFIXES: Final = (".py", ".yaml", ".yml", ".json")
#: What reading a damaged zip can raise.
_UNREADABLE: Final = (
    OSError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
#: The oldest moment that a zip can hold: the same files make the same bytes.
_WHEN: Final = (1980, 1, 1, 0, 0, 0)


class Manifest(msgspec.Struct, frozen=True):
    """Which file of a package is the flow."""

    flow: str


def pack(flow: Path) -> bytes:
    """Return the package of a flow's file; the same files make the same bytes.

    Raises:
        NotLoadable: There is no such file, or it is no flow's.
        BadPackage: What lies beside it is too much.
    """
    if not flow.is_file():
        raise NotLoadable(f'there is no file "{flow}"', hint="name a flow.py or a flow.yaml")
    if flow.suffix not in _SUFFIXES:
        hint = "name a flow.py, a flow.yaml or a scheme.yaml"
        raise NotLoadable(f'"{flow}" is neither Python nor YAML', hint=hint)
    files = {flow.name: flow, **dict(_beside(flow.resolve().parent))}
    _check_size(len(files), sum(file.stat().st_size for file in files.values()))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            zipfile.ZipInfo(_MANIFEST, _WHEN), msgspec.json.encode(Manifest(flow.name))
        )
        for name in sorted(files):
            archive.writestr(
                zipfile.ZipInfo(name, _WHEN), files[name].read_bytes(), zipfile.ZIP_DEFLATED
            )
    return packed.getvalue()


def _beside(folder: Path) -> Iterator[tuple[str, Path]]:
    """Find the modules and packages of a folder."""
    for one in sorted(folder.iterdir()):
        if one.suffix == ".py" and one.is_file():
            yield one.name, one
        elif one.is_dir() and (one / "__init__.py").is_file():
            for file in sorted(one.rglob("*")):
                inside = file.relative_to(folder)
                if file.is_file() and "__pycache__" not in inside.parts:
                    yield inside.as_posix(), file


def _check_size(files: int, size: int) -> None:
    if files > MOST_FILES or size > MOST_BYTES:
        raise BadPackage(
            f"a package has {files:,} files and {size >> 20} MB, "
            f"more than {MOST_FILES:,} or {MOST_BYTES >> 20} MB",
            hint="put the flow into a folder of its own, with the modules that it needs",
        )


def unpack(package: bytes, folder: Path) -> Path:
    """Replace a folder by the files of a package, and return the path of the flow's.

    Raises:
        BadPackage: It is no package, is too large, or would write elsewhere; the folder is as it
            was.
    """
    fresh = folder.with_name(f"{folder.name}.new")
    with _opened(package) as archive:
        found = _checked(archive)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            archive.extractall(fresh)
        except _UNREADABLE as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise BadPackage(f"a package cannot be unpacked: {error}") from error
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder / found.flow


def _opened(package: bytes) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(package))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        hint = "millstream deploy makes one of a flow"
        raise BadPackage("what was deployed is not a zip", hint=hint) from error


def _checked(archive: zipfile.ZipFile) -> Manifest:
    entries = archive.infolist()
    _check_size(len(entries) - 1, sum(entry.file_size for entry in entries))
    for entry in entries:
        path = PurePosixPath(entry.filename)
        odd = "\\" in entry.filename or ":" in entry.filename or not path.parts
        if (
            path.is_absolute()
            or ".." in path.parts
            or odd
            or stat.S_ISLNK(entry.external_attr >> 16)
        ):
            raise BadPackage(f'a package holds "{entry.filename}", which lies outside of it')
    try:
        found = msgspec.json.decode(archive.read(_MANIFEST), type=Manifest)
    except (KeyError, *_UNREADABLE, msgspec.MsgspecError) as error:
        raise BadPackage(f"a package has no {_MANIFEST} that can be read") from error
    flow = PurePosixPath(found.flow)
    if found.flow not in archive.namelist() or len(flow.parts) != 1 or flow.suffix not in _SUFFIXES:
        hint = "a flow.py or a flow.yaml, at its top"
        raise BadPackage(f'a package has no flow "{found.flow}"', hint=hint)
    return found
