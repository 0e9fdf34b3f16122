"""The end of a log that grows, and what has come since one looked.

A log is `run.log` and, once that is large, `run.log.1` before it. A place in it is "inode:offset",
so that somebody who follows it goes on in the older file when a new one was begun.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.errors import RequestRefused

_MOST: Final = 1 << 20


def last(log: Path, lines: int, contains: str = "") -> tuple[list[str], str]:
    """Return the last lines that contain a text, in capitals or not, and the place after them."""
    text = b""
    place = ""
    for file in _files(log):
        found, place = _read(file, 0)
        text += found
    return _matching(_lines(text), contains)[-lines:], place


def since(log: Path, place: str, contains: str = "") -> tuple[list[str], str]:
    """Return the whole lines after a place that contain a text, and the place after them.

    A megabyte of the log is read at most.

    Raises:
        RequestRefused: This is no place in a log.
    """
    inode, offset = _place(place)
    files = _files(log)
    known = [number for number, file in enumerate(files) if file.stat().st_ino == inode]
    text = b""
    for number, file in enumerate(files[known[0] :] if known else files):
        found, place = _read(file, offset if known and number == 0 else 0, _MOST - len(text))
        text += found
        if len(text) >= _MOST:
            break
    return _matching(_lines(text), contains), place


def _matching(lines: list[str], contains: str) -> list[str]:
    wanted = contains.lower()
    return [one for one in lines if wanted in one.lower()] if wanted else lines


def _files(log: Path) -> list[Path]:
    return [file for file in (log.with_name(f"{log.name}.1"), log) if file.is_file()]


def _place(text: str) -> tuple[int, int]:
    inode, _, offset = text.partition(":")
    if not text:
        return -1, 0
    if not (inode.isdigit() and offset.isdigit()):
        raise RequestRefused(f'"{text}" is no place in a log', hint='give the last value of "next"')
    return int(inode), int(offset)


def _read(file: Path, offset: int, most: int | None = None) -> tuple[bytes, str]:
    """Return the whole lines of a file from an offset on, and the place after them."""
    with file.open("rb") as opened:
        opened.seek(offset)
        found = opened.read(-1 if most is None else max(0, most))
        whole = found[: found.rfind(b"\n") + 1]
        # A line that is longer than all one may have at once is cut.
        taken = found if most is not None and not whole and len(found) >= most else whole
        return taken, f"{file.stat().st_ino}:{offset + len(taken)}"


def _lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()
