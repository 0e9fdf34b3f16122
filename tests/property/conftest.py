"""Files of these tests lie in memory, where there is such a folder.

They make and remove hundreds of thousands of files, and the disks that fail are simulated ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
NEEDED = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def in_memory() -> Iterator[None]:
    """Let `tempfile` make its folders in memory."""
    with pytest.MonkeyPatch.context() as patch:
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED:
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        yield
