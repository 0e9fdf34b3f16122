"""What commands read from the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from millstream import secrets


def engines_of_environment() -> list[str]:
    """Return the engines that MILLSTREAM_ENGINE names."""
    return [url for url in re.split(r"[\s,]+", os.environ.get("MILLSTREAM_ENGINE", "")) if url]


def secrets_beside(data: Path) -> None:
    """Have secrets looked for in a data folder, unless the environment names another place."""
    os.environ.setdefault(secrets.PLACE, str(data.resolve() / "secrets"))
