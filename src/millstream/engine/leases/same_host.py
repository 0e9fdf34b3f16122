"""Engines on one host notice at once that the process of another has ended.

A number of a process means something in one space only: since one start of a machine, among
processes that see each other. Containers may share the name of a host, and not that.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import psutil

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@cache
def space() -> str:
    """Return where the numbers of processes are those that this process sees; "" if unknown."""
    try:
        return f"{_BOOT.read_text().strip()} {_NAMESPACE.readlink()}"
    except OSError:
        return ""


def ended(process: int, there: str) -> bool:
    """Tell whether it is known that a process of a space has ended.

    False does not mean that it lives: its number may be another's by now.
    """
    if not there or there != space():
        return False
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
