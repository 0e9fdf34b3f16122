"""A process that does not outlive the one that has started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(pid: int) -> None:
    """Let the kernel end this process when the thread of process `pid` ends that has started it, however that goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pid:
        os._exit(1)  # it was gone before the kernel knew
