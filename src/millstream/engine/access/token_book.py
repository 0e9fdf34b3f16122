"""The tokens of a data folder: the owner's, and those that the owner has created.

    <data>/token          the owner's, as it is
    <data>/tokens.json    the others: what they permit, and the SHA-256 of their secrets

A secret has 256 random bits, so its plain hash cannot be turned back. A running engine looks at the
files for every request: what is created, rotated or revoked counts at once.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from millstream.engine import tokens
from millstream.engine.access.permissions import OWNER, May, Token
from millstream.errors import TokenRefused
from millstream.storage import Folder

_FILE: Final = "tokens.json"
_LOCK: Final = "tokens.lock"
_LOCK_S: Final = 10.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_log = logging.getLogger(__name__)


class StoredToken(Token, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is kept. After a rotation, the earlier secret may work for a while."""

    sha256: str
    earlier: str | None = None
    earlier_until: float = 0.0

    def matches(self, digest: str, now: float) -> bool:
        earlier = self.earlier if self.earlier is not None and now < self.earlier_until else ""
        return hmac.compare_digest(digest, self.sha256) | hmac.compare_digest(digest, earlier)


class _Stored(msgspec.Struct, frozen=True):
    tokens: list[StoredToken] = []
    version: int = 1


class TokenBook:
    """The tokens of an engine, as they are now. For one thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.owner = tokens.token_of(data)
        self._created: Sequence[StoredToken] = ()
        self._seen: tuple[object, ...] = (_state(data / "token"), None)

    def find(self, given: str, now: float) -> Token | None:
        """Return the token with this secret, expired or not; None if there is none."""
        self._refresh()
        if tokens.same(given, self.owner):
            return Token(name=OWNER)
        digest = _digest(given)
        # All of them are compared: how long it takes tells nothing.
        found = [token for token in self._created if token.matches(digest, now)]
        return found[0] if found else None

    def _refresh(self) -> None:
        seen = (_state(self._data / "token"), _state(self._data / _FILE))
        if seen == self._seen:
            return
        self._seen = seen
        try:
            if seen[0] is not None:
                self.owner = tokens.read_token(self._data / "token")
            self._created = _read(self._data)
        except TokenRefused as error:
            self._created = ()
            _log.error("tokens are refused until this is fixed: %s (%s)", error, error.hint)


# changing


def create(
    data: Path,
    name: str,
    may: Sequence[May],
    *,
    now: float,
    job: str | None = None,
    expires_at: float | None = None,
) -> str:
    """Create a token and return its secret, which is stored nowhere.

    Raises:
        TokenRefused: The name is taken, or is no name.
    """
    if not _NAME.fullmatch(name) or name == OWNER:
        hint = 'letters, digits, ".", "_" and "-", the first a letter or digit'
        raise TokenRefused(f'"{name}" is not a name for a token', hint=hint)
    secret = _secret()
    with _changing(data) as kept:
        if name in kept:
            hint = f"millstream token rotate {name}, or revoke it first"
            raise TokenRefused(f'there is a token "{name}" already', hint=hint)
        kept[name] = StoredToken(
            name=name,
            may=tuple(dict.fromkeys(may)),
            job=job,
            created_at=now,
            expires_at=expires_at,
            sha256=_digest(secret),
        )
    return secret


def rotate(data: Path, name: str, *, now: float, overlap: float = 0.0) -> str:
    """Give a token another secret and return it; the earlier one works for `overlap` seconds more.

    A token that expires gets as much time again. The owner's is written to its file.

    Raises:
        TokenRefused: There is no such token.
    """
    secret = _secret()
    if name == OWNER:
        _put(data / "token", f"{secret}\n".encode())
        return secret
    with _changing(data) as kept:
        old = _named(kept, name)
        lasting = None if old.expires_at is None else old.expires_at - old.created_at
        kept[name] = msgspec.structs.replace(
            old,
            created_at=now,
            expires_at=None if lasting is None else now + lasting,
            sha256=_digest(secret),
            earlier=old.sha256 if overlap else None,
            earlier_until=now + overlap if overlap else 0.0,
        )
    return secret


def revoke(data: Path, name: str) -> None:
    """Remove a token; from now on it is refused.

    Raises:
        TokenRefused: There is no such token, or it is the owner's.
    """
    if name == OWNER:
        hint = "millstream token rotate owner"
        raise TokenRefused("the owner's token cannot be revoked, but rotated", hint=hint)
    with _changing(data) as kept:
        _named(kept, name)
        del kept[name]


def created(data: Path) -> Sequence[Token]:
    """Return the tokens that the owner has created, by name.

    Raises:
        TokenRefused: Their file cannot be read, or can be by others.
    """
    return sorted(_read(data), key=lambda token: token.name)


def _named(kept: dict[str, StoredToken], name: str) -> StoredToken:
    if name not in kept:
        raise TokenRefused(f'there is no token "{name}"', hint="millstream token ls lists them")
    return kept[name]


@contextmanager
def _changing(data: Path) -> Iterator[dict[str, StoredToken]]:
    """Let the tokens be changed by one process at a time; they are written at the end."""
    claim = Folder(data).claim(_LOCK, timeout=_LOCK_S)
    if claim is None:
        raise TokenRefused("another command changes the tokens", hint="try again")
    try:
        kept = {token.name: token for token in _read(data)}
        yield kept
        _put(data / _FILE, msgspec.json.encode(_Stored(list(kept.values()))))
    finally:
        claim.release()


# files


def _read(data: Path) -> Sequence[StoredToken]:
    file = data / _FILE
    try:
        content, mode = file.read_bytes(), file.stat().st_mode
        found = msgspec.json.decode(content, type=_Stored)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as exc:
        hint = "restore the file, or remove it and create the tokens again"
        raise TokenRefused(f'the tokens in "{file}" cannot be read: {exc}', hint=hint) from exc
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise TokenRefused(f'others can read the tokens in "{file}"', hint=f"chmod 600 {file}")
    return [token for token in found.tokens if token.name != OWNER]


def _put(file: Path, content: bytes) -> None:
    """Replace a file durably; at no moment others can read it."""
    fresh = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)


def _state(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _secret() -> str:
    return f"ms-{secrets.token_urlsafe(32)}"


def _digest(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()
