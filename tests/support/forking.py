"""The command `millstream` in processes of their own, which are forked off one that has loaded it.

    with forking("millstream.links.host") as commands:
        done = commands.run(["run", "flow.py"], folder)

Each has its own folder, environment, output and end. What they do not repeat is the loading of
modules, which is most of what a short command does.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Commands:
    """Runs commands, one after the other."""

    def __init__(self, parent: subprocess.Popen[str]) -> None:
        self._parent = parent

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place) / "out", Path(place) / "err"
            order = {
                "arguments": list(arguments),
                "folder": str(folder),
                "environment": dict(os.environ if environment is None else environment),
                "out": str(out),
                "err": str(err),
            }
            self._parent.stdin.write(json.dumps(order) + "\n")
            self._parent.stdin.flush()
            status = self._parent.stdout.readline()
            assert status, "the process that forks has ended"
            return subprocess.CompletedProcess(
                ["millstream", *arguments], int(status), out.read_text(), err.read_text()
            )


@contextmanager
def forking(*modules: str) -> Iterator[Commands]:
    """Load the command, and modules that it would load when it runs."""
    parent = subprocess.Popen(
        [sys.executable, str(Path(__file__)), "millstream.cli.app", *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        yield Commands(parent)
        assert parent.stdin is not None
        parent.stdin.close()


# In the process that forks


def _main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_run(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(order: Mapping[str, Any]) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["millstream", *order["arguments"]]
    try:
        runpy.run_module("millstream", run_name="__main__", alter_sys=True)
        code: Any = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)


if __name__ == "__main__":
    _main()
