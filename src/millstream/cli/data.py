"""The data folder that a command looks into."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.errors import JournalMissing

#: That of `millstream run`, then that of an engine.
_DATA: Final = (Path(".millstream"), Path(".millstream-engine"))


def data_of(given: Path | None) -> Path:
    """Return the data folder that a command is about.

    Raises:
        JournalMissing: It cannot be read.
    """
    data = given or next((one for one in _DATA if one.is_dir()), _DATA[0])
    if data.is_dir() and not os.access(data, os.R_OK | os.X_OK):
        hint = "only the user that runs the flow or the engine can read its data folder"
        raise JournalMissing(f'the data folder "{data}" cannot be read', hint=hint)
    return data
