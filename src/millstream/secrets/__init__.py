"""Secrets apart from flows: a flow has the name, and who uses the secret reads its value then.

Where a value is looked for, in this order:

    MILLSTREAM_SECRET_KAFKA_PASSWORD     a variable of the environment, for "kafka-password"
    $MILLSTREAM_SECRETS/kafka-password   a file of a folder, such as one that a container mounts
    kafka-password = ...                 a line of the file $MILLSTREAM_SECRETS, for its owner alone

Engines and `millstream run` set MILLSTREAM_SECRETS to "secrets" in their data folder, unless it is
set. A value is read again for every use, so that one can be replaced without a restart; it is in no
plan, fingerprint, package, log or answer, since all of these are made of the name.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import InvalidName, SecretMissing

PLACE: Final = "MILLSTREAM_SECRETS"
_VARIABLE: Final = "MILLSTREAM_SECRET_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LINE: Final = re.compile(r"\s*([^\s=#]+)\s*=\s?(.*)")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Secret:
    """The name of a secret, which stands for its value."""

    name: str

    def __str__(self) -> str:
        return f'secret "{self.name}"'

    @property
    def variable(self) -> str:
        """The variable of the environment that may hold it."""
        return _VARIABLE + re.sub(r"[^A-Z0-9]", "_", self.name.upper())


def secret(name: str) -> Secret:
    """A secret by its name: a password, or an address with one in it.

    The value is not part of the flow. The engine, or `millstream run`, reads it when it is needed:
    from the environment, a file, or a mounted folder.
    """
    if not _NAME.fullmatch(name):
        hint = 'letters, digits, ".", "_" and "-", the first a letter or digit'
        raise InvalidName(f'"{name}" is not a name for a secret', hint=hint)
    return Secret(name)


def value_of(given: str | Secret) -> str:
    """Return the value of a secret as it is now; text as it is.

    Raises:
        SecretMissing: It is nowhere, or others can read the file.
    """
    if isinstance(given, str):
        return given
    found = os.environ.get(given.variable)
    place = os.environ.get(PLACE)
    if found is None and place:
        found = (
            _in_folder(given, Path(place)) if Path(place).is_dir() else _in_file(given, Path(place))
        )
    if not found:
        where = f' or to "{place}"' if place else f", or name a file or folder with {PLACE}"
        hint = f"add it to the environment as {given.variable}{where}"
        raise SecretMissing(f"{given} has no value here", hint=hint)
    return found


def _in_folder(wanted: Secret, folder: Path) -> str | None:
    try:
        # Who has mounted the folder decides who reads it. One newline at the end is the editor's.
        return (folder / wanted.name).read_text().removesuffix("\n")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SecretMissing(f"{wanted} cannot be read: {_why(error)}") from None


def _in_file(wanted: Secret, file: Path) -> str | None:
    try:
        with file.open() as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SecretMissing(f'the secrets in "{file}" cannot be read: {_why(error)}') from None
    if stat.S_IMODE(mode) & _OTHERS:
        raise SecretMissing(f'others can read the secrets in "{file}"', hint=f"chmod 600 {file}")
    lines = (_LINE.fullmatch(line) for line in text.splitlines())
    return next((line[2] for line in lines if line is not None and line[1] == wanted.name), None)


def _why(error: Exception) -> str:
    # Not the text of a decoding error, which has bytes of the secret in it.
    return (error.strerror or "") if isinstance(error, OSError) else "it is not text"


def hidden(text: str, *given: str | Secret | None) -> str:
    """Return a text, such as a foreign error's, without the values of secrets."""
    for one in given:
        if isinstance(one, Secret):
            text = text.replace(value_of(one), "***")
    return text
