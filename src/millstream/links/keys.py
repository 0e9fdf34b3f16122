"""Keys: who may write to an inbox over the network.

A pair of CURVE keys lies in two text files. NAME.key holds both halves and stays with the one who
is NAME, readable by that user alone; NAME.pub holds the public half and goes to those who shall
know NAME: a producer's into the folder of an engine's producers, an engine's to its producers.

    # Millstream key "till": keep it secret.
    public = "..."       40 characters of Z85, which have no quotes among them
    secret = "..."       in NAME.key alone
    may = "rows, end"    in the engine's copy of NAME.pub: what NAME may do (grants.py)
"""

from __future__ import annotations

import logging
import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from millstream.errors import InvalidKey, KeyExists
from millstream.links import grants
from millstream.links.grants import ROWS_ONLY, Grant

_log = logging.getLogger(__name__)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LINE: Final = re.compile(
    rf'(public|secret|may|sources|senders|{"|".join(grants.QUOTAS)})\s*=\s*"([^"]*)"'
)
_HALVES: Final = ("public", "secret")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_GRANTS: Final = f'write may = "rows, end, watermark", sources, senders, {", ".join(grants.QUOTAS)}'
_AGAIN: Final = "copy the file again, or make a new key: millstream keys new NAME"

_BOTH: Final = """\
# Millstream key "{name}", both halves. Keep it secret: who has this file is "{name}".
public = "{public}"
secret = "{secret}"
"""
_PUBLIC: Final = """\
# Millstream key "{name}", the public half. Give it to those who have to recognize "{name}".
public = "{public}"
"""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The two files of a key."""

    secret: Path
    public: Path


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Whom we know, and by what (Z85)."""

    name: str
    public: bytes
    grant: Grant = ROWS_ONLY


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Who we are, and what proves it (Z85)."""

    name: str
    public: bytes
    secret: bytes = field(repr=False)


# making


def passing_keys(name: str) -> KeyPair:
    """Make a key that is in no file: it ends with those who hold it."""
    return KeyPair(name, *zmq.curve_keypair())


def new_keys(folder: Path, name: str, granted: Mapping[str, str] | None = None) -> KeyFiles:
    """Make a key and write NAME.key, which only this user can read, and NAME.pub.

    Args:
        folder: Where the files go.
        name: Whose key it is.
        granted: Lines for NAME.pub, which say what its owner may do (grants.py).

    Raises:
        KeyExists: One of the files is there already.
        InvalidKey: The name cannot be that of a file, the folder cannot be written to, or there is
            no such grant.
    """
    lines = granted or {}
    try:
        grants.parse(lines)
    except ValueError as error:
        raise InvalidKey(f'key "{name}": {error}', hint=_GRANTS) from error
    if not NAME.fullmatch(name):
        msg = f'"{name}" is not a name for a key'
        raise InvalidKey(msg, hint='letters, digits, ".", "_" and "-", the first a letter or digit')
    files = KeyFiles(folder / f"{name}.key", folder / f"{name}.pub")
    for file in (files.secret, files.public):
        if file.exists():
            raise _exists(file)
    public, secret = (half.decode() for half in zmq.curve_keypair())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(files.secret, _BOTH.format(name=name, public=public, secret=secret), 0o600)
        given = "".join(f'{line} = "{text}"\n' for line, text in lines.items())
        _write(files.public, _PUBLIC.format(name=name, public=public) + given, 0o644)
    except OSError as exc:
        msg = f'key "{name}" could not be written to "{folder}": {exc.strerror}'
        raise InvalidKey(msg, hint="give another folder") from exc
    return files


def _write(file: Path, text: str, mode: int) -> None:
    try:
        # Made with its mode, and never opened if it is there: the secret is at no moment readable
        # by others.
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as exc:
        raise _exists(file) from exc
    with os.fdopen(opened, "w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _exists(file: Path) -> KeyExists:
    msg = f'there is a key file "{file}" already'
    hint = "use another name; remove the file only if the key is no longer in use"
    return KeyExists(msg, hint=hint)


# reading


def read_key(file: Path | str) -> KeyPair:
    """Return the key in a NAME.key.

    Raises:
        InvalidKey: The file is missing, damaged, without its secret half, or readable by others
            than its owner.
    """
    path = Path(file)
    halves, _ = _read(path)
    if "secret" not in halves:
        msg = f'key file "{path}" has no secret half'
        raise InvalidKey(msg, hint=f'give "{path.with_suffix(".key")}"')
    if _open_to_others(path):
        msg = f'key file "{path}" can be read by others than its owner'
        raise InvalidKey(msg, hint=f"chmod 600 {path}; make a new key if others may have read it")
    if zmq.curve_public(halves["secret"]) != halves["public"]:
        raise InvalidKey(f'the two halves in key file "{path}" do not belong together', hint=_AGAIN)
    return KeyPair(path.stem, halves["public"], halves["secret"])


def read_public(file: Path | str) -> PublicKey:
    """Return the key in a NAME.pub.

    Raises:
        InvalidKey: The file is missing, damaged, or holds a secret half, which should never have
            come here.
    """
    path = Path(file)
    halves, fields = _read(path)
    if "secret" in halves:
        msg = f'"{path}" holds a secret half, where only the public one belongs'
        raise InvalidKey(msg, hint="give NAME.pub; if NAME.key has left its host, make a new key")
    try:
        return PublicKey(path.stem, halves["public"], grants.parse(fields))
    except ValueError as error:
        msg = f'key file "{path}": {error}'
        raise InvalidKey(msg, hint=_GRANTS) from error


def public_of(text: str) -> bytes:
    """Return the public key in a text of 40 characters.

    Raises:
        InvalidKey: It is none.
    """
    if not _z85(text):
        msg = f'"{text}" is not a public key'
        raise InvalidKey(msg, hint="give the 40 characters between the quotes in NAME.pub")
    return text.encode()


def producers(folder: Path | str) -> dict[bytes, PublicKey]:
    """Return those who may write, by public key: one for each .pub in the folder.

    Raises:
        InvalidKey: There is no such folder, a file in it is damaged, or two hold the same key.
    """
    place = Path(folder)
    if not place.is_dir():
        msg = f'there is no folder "{place}" of producers\' keys'
        raise InvalidKey(msg, hint="make it, and put the .pub files of those who may write into it")
    found: dict[bytes, PublicKey] = {}
    for one in map(read_public, sorted(place.glob("*.pub"))):
        if one.public in found:
            before = found[one.public].name
            msg = f'"{before}.pub" and "{one.name}.pub" in "{place}" hold the same key'
            raise InvalidKey(msg, hint="keep one of them: a key has one name")
        found[one.public] = one
    return found


def readable_producers(folder: Path) -> dict[bytes, PublicKey]:
    """Return those who may write, as `producers` does, without those whose files are damaged."""
    found: dict[bytes, PublicKey] = {}
    for file in sorted(folder.glob("*.pub")):
        try:
            one = read_public(file)
        except InvalidKey as error:
            _log.warning("%s; nobody is let in with it", error)
        else:
            found.setdefault(one.public, one)
    return found


def _open_to_others(path: Path) -> bool:
    return os.name == "posix" and bool(path.stat().st_mode & _OTHERS)


def _read(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the halves in a key file, the public one always among them, and its other lines."""
    found: dict[str, bytes] = {}
    fields: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        half = _LINE.fullmatch(line.strip())
        other = half is not None and half[1] not in _HALVES
        if half is None or half[1] in {**found, **fields} or not (other or _z85(half[2])):
            raise InvalidKey(f'key file "{path}" is damaged in line {number}', hint=_AGAIN)
        if other:
            fields[half[1]] = half[2]
        else:
            found[half[1]] = half[2].encode()
    if "public" not in found:
        raise InvalidKey(f'key file "{path}" has no public half', hint=_AGAIN)
    return found, fields


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        msg = f'key file "{path}" cannot be read: {exc.strerror}'
        hint = "create a key with millstream keys new NAME, or give its path"
        raise InvalidKey(msg, hint=hint) from exc
    except UnicodeDecodeError as exc:
        raise InvalidKey(f'"{path}" is not a key file', hint=_AGAIN) from exc


def _z85(text: str) -> bool:
    """Whether a text is 32 bytes in Z85."""
    if len(text) != 40 or not text.isascii():
        return False
    try:
        return bool(z85.encode(z85.decode(text.encode())) == text.encode())
    except (KeyError, struct.error):  # a character, or a number, that Z85 does not have
        return False
