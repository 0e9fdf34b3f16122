"""Spark and its Python workers meet in a folder that only their user can enter."""

from __future__ import annotations

import os
from pathlib import Path

from millstream.spark.session import sockets


def test_each_session_has_a_folder_that_others_may_not_enter(tmp_path: Path) -> None:
    one, held = sockets.make(tmp_path)
    two, also = sockets.make(tmp_path)
    assert one is not None
    assert two is not None
    assert one != two
    assert one.is_dir()
    assert one.parent.stat().st_mode & 0o077 == 0
    for fd in (held, also):
        os.close(fd)


def test_what_killed_processes_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    lives, held = sockets.make(tmp_path)
    killed, lost = sockets.make(tmp_path)
    assert lives is not None
    assert killed is not None
    (killed / ".a.sock").touch()
    os.close(lost)  # as a kill does
    _, also = sockets.make(tmp_path)
    assert lives.exists()
    assert not killed.exists()
    for fd in (held, also):
        os.close(fd)


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"millstream-{os.getuid()}").mkdir(mode=0o755)
    assert sockets.make(tmp_path) == (None, -1)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"millstream-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert sockets.make(tmp_path) == (None, -1)


def test_paths_of_sockets_are_short_enough() -> None:
    place = sockets.folder()
    assert place is not None
    assert len(str(place / ".01234567-89ab-cdef-0123-456789abcdef.sock")) < 107
