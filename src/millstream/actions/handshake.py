"""Who may send: both ends of a connection prove that they have the secret of their scheme.

    upstream ── hello with a nonce ──▶ downstream
    upstream ◀────── nonce, proof ──── downstream
    upstream ── proof, messages ... ─▶ downstream

    hello    u32 length │ scheme_node#generation, a space, 64 hexadecimal digits: the nonce
    nonce    32 random bytes
    proof    HMAC-SHA256(secret, role │ upstream's nonce │ downstream's nonce │ hello), 32 bytes

A proof holds for its connection, its role and its hello alone. A hello without a nonce belongs to
the plain protocol: whoever can connect may send it, in any name. Messages are neither signed nor
encrypted: somebody who can change what is on its way needs no secret.

The secret is a file that its owner alone can read: 16 characters or more.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, Self

from millstream.errors import BadBytes, InvalidKey, PeerRefused

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
#: How long a connection may take to say and prove who it is.
HELLO_S: Final = 10.0
_LEAST: Final = 16
_U32: Final = Struct(">I")
_UPSTREAM, _DOWNSTREAM = b"millstream upstream\0", b"millstream downstream\0"


def proof(secret: bytes, role: bytes, nonces: bytes, hello: bytes) -> bytes:
    """Return what only those who have the secret can make."""
    return hmac.digest(secret, role + nonces + hello, hashlib.sha256)


# the downstream's half


class Challenge:
    """What a downstream asks after a hello with a nonce: send `question`, then look at the proof."""

    def __init__(self, secret: bytes, hello: bytes, theirs: bytes, ours: bytes) -> None:
        nonces = theirs + ours
        self.question = ours + proof(secret, _DOWNSTREAM, nonces, hello)
        self._expected = proof(secret, _UPSTREAM, nonces, hello)

    def check(self, answer: bytes) -> None:
        """Refuse a proof that is none.

        Raises:
            PeerRefused: It was not made with our secret.
        """
        if not hmac.compare_digest(answer, self._expected):
            raise PeerRefused("an upstream has another secret", hint="give both the same --secret")


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in: those who prove `secret`, and if `plain` others too; `nodes` alone, if given.

    Without a secret only the plain protocol is left.
    """

    secret: bytes | None = field(default=None, repr=False)
    plain: bool = True
    nodes: frozenset[str] | None = None

    @classmethod
    def of(cls, secret: bytes | None, nodes: Iterable[str] | None = None) -> Self:
        """Let in who proves the secret; if there is none, whoever comes."""
        return cls(secret, secret is None, None if nodes is None else frozenset(nodes))

    def challenge(self, node: str, hello: bytes) -> Challenge | None:
        """Return what to ask who says `hello` as `node`; None if it may begin.

        Raises:
            PeerRefused: It is not let in.
        """
        if self.nodes is not None and node not in self.nodes:
            raise PeerRefused(f'"{node}" is not expected here')
        _, space, text = hello.partition(b" ")
        nonce = _nonce(text) if space else None
        if nonce is None:
            if not self.plain:
                raise PeerRefused(f'"{node}" has no secret', hint="start it with --secret")
            return None
        if self.secret is None:
            hint = "start it with --secret"
            raise PeerRefused(f'"{node}" has a secret, and this end has none', hint=hint)
        return Challenge(self.secret, hello, nonce, secrets.token_bytes(NONCE_BYTES))


def _nonce(text: bytes) -> bytes:
    try:
        found = bytes.fromhex(text.decode())
    except ValueError:
        found = b""
    if len(found) != NONCE_BYTES:
        hint = "expected 64 hexadecimal digits"
        raise BadBytes(f"a hello has the nonce {text[:80]!r}", hint=hint)
    return found


# the upstream's half


class Introduction:
    """What an upstream says first: send `hello`, and `feed` what comes back until it is `over`."""

    def __init__(self, who: str, secret: bytes | None) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        name = who if secret is None else f"{who} {nonce.hex()}"
        self.over = secret is None
        self.hello = _U32.pack(len(name.encode())) + name.encode()
        self._secret, self._nonce, self._rest = secret, nonce, b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take bytes of the downstream; return what to send it, and those that follow.

        Raises:
            PeerRefused: It does not have our secret.
        """
        if self._secret is None or self.over:
            return b"", data
        self._rest += data
        if len(self._rest) < NONCE_BYTES + PROOF_BYTES:
            return b"", b""
        theirs = self._rest[:NONCE_BYTES]
        answer = self._rest[NONCE_BYTES : NONCE_BYTES + PROOF_BYTES]
        hello, nonces = self.hello[_U32.size :], self._nonce + theirs
        if not hmac.compare_digest(answer, proof(self._secret, _DOWNSTREAM, nonces, hello)):
            raise PeerRefused("it has another secret", hint="give both the same --secret")
        self.over = True
        return proof(self._secret, _UPSTREAM, nonces, hello), self._rest[len(nonces) :]


# secrets


def read_secret(file: Path) -> bytes:
    """Return the secret in a file.

    Raises:
        InvalidKey: The file is missing, readable by others, or holds no secret.
    """
    try:
        text = file.read_bytes().strip()
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        raise InvalidKey(f'the secret "{file}" cannot be read: {error.strerror}') from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidKey(f'others can read the secret "{file}"', hint=f"chmod 600 {file}")
    if len(text) < _LEAST:
        hint = "make one: openssl rand -hex 32 > FILE; chmod 600 FILE"
        raise InvalidKey(f'"{file}" holds no secret', hint=hint)
    return text


def secret_of(folder: Path) -> bytes:
    """Return the secret of the runtimes with their data in `folder`; it is made if there is none.

    Raises:
        InvalidKey: The file is readable by others, or holds no secret.
    """
    file = secret_file(folder)
    if not file.exists():
        keep_secret(folder, secrets.token_hex(32).encode(), replace=False)
    return read_secret(file)


def secret_file(folder: Path) -> Path:
    """Return the file of the secret of the runtimes with their data in `folder`."""
    return folder / "runtimes.secret"


def keep_secret(folder: Path, secret: bytes, *, replace: bool = True) -> None:
    """Write down a secret that was made elsewhere, for its owner alone."""
    folder.mkdir(parents=True, exist_ok=True)
    file = secret_file(folder)
    fresh = folder / f".{file.name}.{secrets.token_hex(8)}"
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "wb") as out:
        out.write(secret + b"\n")
        out.flush()
        os.fsync(out.fileno())
    try:
        if replace:
            fresh.replace(file)
        else:
            file.hardlink_to(fresh)
    except FileExistsError:
        pass  # somebody was quicker: theirs counts
    finally:
        fresh.unlink(missing_ok=True)
