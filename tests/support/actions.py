"""Programs for tests of actions."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millstream.actions.program import Limits, Program

ROOT = Path(__file__).parents[2]
SDK = ROOT / "sdk"
_LIMITS = Limits()
PYTHON = str(Path(sys.executable))


def python(
    folder: Path, code: str, *args: str, contract: str = "one", limits: Limits = _LIMITS, **env: str
) -> Program:
    """Return a program in Python, with the SDK at hand as `action`."""
    file = folder / f"program_{abs(hash(code))}.py"
    head = f"import os, signal, sys, time\nsys.path.insert(0, {str(SDK / 'python')!r})\nimport millstream_action as action\n"
    file.write_text(head + textwrap.dedent(code), encoding="utf-8")
    return Program((PYTHON, "-S", str(file), *args), contract, tuple(sorted(env.items())), limits)


def sdk_program(name: str, *args: str, contract: str = "one") -> Program:
    """Return one of the SDKs' test programs, in Python."""
    return Program((PYTHON, "-S", str(SDK / "python" / "programs.py"), name, *args), contract)


def c_program(folder: Path) -> Path:
    """Return the SDKs' test programs, in C."""
    if shutil.which("gcc") is None:
        pytest.skip("cannot here: no C compiler")
    target = folder / "programs"
    source = str(SDK / "c" / "programs.c")
    subprocess.run(["gcc", "-std=c11", "-O2", "-o", str(target), source], check=True)
    return target


def marked() -> str:
    """Return an argument that a program and what it starts can be found by; `sleep` takes it."""
    return f"600.{random.randrange(10**12):012d}"


def running(marker: str) -> list[psutil.Process]:
    """Return the processes with this argument: in a PID namespace they have other numbers."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if marker in one.cmdline() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found
