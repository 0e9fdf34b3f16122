"""The token of an engine, which every change needs.

<data>/token          made at the first start, readable by its owner alone
<data>/engine.json    where the engine listens: how commands on the same host find the token
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import msgspec

from millstream.errors import TokenRefused
from millstream.storage import Folder

_BYTES: Final = 32
_LEAST: Final = 16
_NOTE: Final = "engine.json"


class _Note(msgspec.Struct, frozen=True):
    url: str
    pid: int


def token_of(data: Path) -> str:
    """Return the token of the engine with this data folder; it is made if there is none.

    Raises:
        TokenRefused: The file can be read by others, or holds no token.
    """
    file = data / "token"
    data.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(file)
    made = secrets.token_urlsafe(_BYTES)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(f"{made}\n")
        opened.flush()
        os.fsync(opened.fileno())
    return made


def read_token(file: Path) -> str:
    """Return the token in a file.

    Raises:
        TokenRefused: There is none, others can read it, or it holds no token.
    """
    try:
        text = file.read_text().strip()
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as exc:
        hint = "name its file with --token-file"
        raise TokenRefused(f'the token "{file}" cannot be read: {exc}', hint=hint) from exc
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise TokenRefused(f'others can read the token "{file}"', hint=f"chmod 600 {file}")
    if len(text) < _LEAST or not text.isascii() or any(one.isspace() for one in text):
        hint = "remove the file and start the engine again: it makes a new one"
        raise TokenRefused(f'"{file}" holds no token', hint=hint)
    return text


def same(given: str, token: str) -> bool:
    """Tell whether two tokens are the same, in a time that does not depend on the difference."""
    return hmac.compare_digest(given.encode(), token.encode())


# on the same host


def note(data: Path, url: str) -> None:
    """Note in an engine's data folder where it listens."""
    Folder(data).put(_NOTE, msgspec.json.encode(_Note(url, os.getpid())))


def forget(data: Path) -> None:
    """Remove the note."""
    Folder(data).delete(_NOTE)


def local_token(data: Path, url: str) -> str | None:
    """Return the token of an engine on this host that listens at `url`, with its data in `data`.

    That it says so is not enough: the folder is ours and names that very address.
    """
    try:
        if data.stat().st_uid != os.getuid():
            return None
        noted = msgspec.json.decode(Folder(data).read(_NOTE) or b"", type=_Note)
        os.kill(noted.pid, 0)
    except (OSError, msgspec.MsgspecError):
        return None
    return read_token(data / "token") if noted.url == url else None
