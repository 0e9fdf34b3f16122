"""What commands read from the environment."""

from __future__ import annotations

import os
import re


def engines_of_environment() -> list[str]:
    """Return the engines that MILLSTREAM_ENGINE names."""
    return [url for url in re.split(r"[\s,]+", os.environ.get("MILLSTREAM_ENGINE", "")) if url]
