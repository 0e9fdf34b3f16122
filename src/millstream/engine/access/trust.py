"""Whose certificates clients trust: the machine's, or those of MILLSTREAM_CA alone."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from millstream.errors import EngineError

VARIABLE: Final = "MILLSTREAM_CA"


def trusted(ca: Path | None = None) -> ssl.SSLContext | bool:
    """Return what verifies the certificates of engines, as httpx takes it.

    Args:
        ca: The file with the certificates of an authority, or of the engine itself; None: that of
            MILLSTREAM_CA, or else what the machine trusts.

    Raises:
        EngineError: The file holds no certificate.
    """
    named = ca or os.environ.get(VARIABLE)
    if not named:
        return True
    try:
        return ssl.create_default_context(cafile=named)
    except (OSError, ssl.SSLError) as exc:
        msg = f'the certificates in "{named}" cannot be read: {exc.strerror or exc}'
        raise EngineError(msg, hint="name a file in PEM format with --ca or MILLSTREAM_CA") from exc


def trust(ca: Path | None) -> None:
    """Verify engines with these certificates, in this process and those that it starts.

    Raises:
        EngineError: The file holds no certificate.
    """
    if ca is not None:
        trusted(ca)
        os.environ[VARIABLE] = str(ca.resolve())
