"""A process that does not outlive the one that has started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(pid: int | None = None) -> None:
    """Let the kernel end this process when the thread that started it ends, in whatever way.

    With `pid`, the parent's, also if that has ended before the kernel knew.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if pid is not None and os.getppid() != pid:
        os._exit(1)
