"""What a task says if its host does not see a folder of the driver's.

Whether all do is found out at the start; executors may come later. Imported by executors.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millstream.errors import JournalMissing, RunError

_HINT: Final = (
    "executors that come later must see what the first ones saw: mount the folder on their "
    "hosts too, or run with --serve always"
)


@contextmanager
def expected_here(folder: str) -> Iterator[None]:
    """Explain an error inside, if the reason is that there is no such folder on this host.

    Raises:
        RunError: There is none.
    """
    try:
        yield
    except (JournalMissing, FileNotFoundError) as error:
        if "://" in folder or Path(folder).exists():
            raise
        msg = f'host "{socket.gethostname()}" does not see the folder "{folder}"'
        raise RunError(msg, hint=_HINT) from error
