"""Replays letters in processes that are killed before their 1st, 2nd, 3rd ... write, each with a folder of its own.

python -m support.replay_killed FOLDER     prints a line of JSON for each
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.dead.choice import letters_of
from millstream.dead.replay import Order, Replayer
from millstream.dead.ways import AsWriter
from millstream.journal import DeadLetter, journal_at, journals_in
from millstream.storage import disk
from support.links import declare, journal, row, stored

#: What changes files: the process may die before any of them.
_WRITES = ("append", "write_at", "truncate", "open", "rename", "remove")


def main(folder: Path) -> None:
    # A killed process, unlike a machine without power, loses nothing that it has written.
    os.fsync = os.fdatasync = lambda _: None  # type: ignore[assignment]
    template = folder / "template"
    declare(template, partitions=2)
    with journal_at(journal(template)).dead_letters() as dead:
        texts = [json.dumps(row(n), default=str) for n in range(6)]
        dead.put_all(DeadLetter("till", n, "no row", text) for n, text in enumerate(texts))
    number, killed = 0, True
    while killed:
        data = folder / str(number)
        shutil.copytree(template, data)
        killed = _apart(lambda at=number, data=data: _dying(data, at)) != 0  # type: ignore[misc]
        assert _apart(lambda data=data: _replay(data)) == 0  # type: ignore[misc]
        states = [str(one.state) for one in letters_of(journals_in(data / "f" / "journals"))]
        rows = sorted(n for part in stored(data) for n in part)
        print(json.dumps({"killed": killed, "rows": rows, "states": states}))
        number += 1


def _apart(work: Callable[[], None]) -> int:
    """Do something in a process of its own, and return its status."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def _replay(data: Path) -> None:
    found = letters_of(journals_in(data / "f" / "journals"))
    way = AsWriter(data / "f")
    first = [one for one in found if one.letter.position < 4]
    for some in (first, found):
        Replayer(data / "f", way).replay(some, Order(late=True))


def _dying(data: Path, at: int) -> None:
    left = at

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **more: Any) -> Any:
            nonlocal left
            if left == 0:
                os._exit(9)
            left -= 1
            return call(*args, **more)

        return counting

    for kind in (type(disk.REAL), disk.RealFile):
        for name in _WRITES:
            if hasattr(kind, name):
                setattr(kind, name, counted(getattr(kind, name)))
    _replay(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
