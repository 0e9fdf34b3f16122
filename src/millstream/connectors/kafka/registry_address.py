"""What can be wrong with the address of a schema registry; found before one is asked."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from millstream.errors import InvalidOption
from millstream.secrets import Secret

_LOGIN: Final = 'registry="https://user@host:8081", registry_password=ms.secret("...")'


def check_registry(address: str | None, password: Secret | None) -> None:
    """Look at the arguments `registry` and `registry_password` of a source or a sink.

    Raises:
        InvalidOption: It is no address, a password is in the flow, or one has no user.
    """
    if password is not None and not isinstance(password, Secret):
        raise InvalidOption("the password of a schema registry is not a secret", hint=_LOGIN)
    try:
        parts = urlsplit(address or "")
    except ValueError:
        parts = urlsplit("")
    if parts.password is not None:
        raise InvalidOption("the address of a schema registry holds a password", hint=_LOGIN)
    if address is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
        msg = f'"{address}" is not the address of a schema registry'
        raise InvalidOption(msg, hint='write registry="https://host:8081"')
    if password is not None and not parts.username:
        raise InvalidOption("registry_password= has no user in registry=", hint=_LOGIN)
