"""What can be wrong with files and folders, found before anything runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from millstream.connectors.files import Files, Folder, Replay, taken
from millstream.connectors.files.reading import layout
from millstream.errors import NotThere, RunError


def check_files(spec: Files, root: Path) -> None:
    """Look for the files of a source, and for columns and options that their format has not.

    Raises:
        NotThere: There are none, and the source does not wait for them.
        UnknownFormat: An option is not one of the format's.
        UnsupportedColumn: The format cannot hold a column.
    """
    taken.there(replace(spec, path=str(root / spec.path)))
    layout(spec.format, spec.schema.arrow(), None, spec.options)


def check_replay(spec: Replay, root: Path) -> None:
    """Look for the recording of a source, and for columns that its format cannot hold.

    Raises:
        NotThere: It does not exist.
        UnsupportedColumn: The format cannot hold a column.
    """
    path = root / spec.path
    if not path.is_file():
        raise NotThere(f'the recording "{path}" does not exist', hint="a replay reads one file")
    layout(spec.format, spec.schema.arrow(), spec.time, ())


def check_folder(spec: Folder, root: Path) -> None:
    """Find out whether a sink can write its folder.

    Raises:
        RunError: It cannot.
    """
    path = root / spec.path
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not there.is_dir():
        hint = "give the sink the path of a folder; it is created if it does not exist"
        raise RunError(f'"{path}" cannot be a folder of results: "{there}" is a file', hint=hint)
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunError(f'"{path}" cannot be written: "{there}" belongs to another user')
