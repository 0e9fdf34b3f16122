"""A user's program, as data: what to run, with what, within which limits."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from millstream.actions.frames import LIMIT
from millstream.errors import ActionMissing

Contract = Literal["one", "stream"]
"""one: each input has one answer, an empty one means no output.
stream: each input has any number of answers, closed by an empty one."""

CONTRACTS: Final[tuple[Contract, ...]] = ("one", "stream")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use; None is no limit."""

    #: Address space, which is more than what is used: Java and Go reserve gigabytes.
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = 1024
    frame_bytes: int = LIMIT
    #: The answers to one input, together.
    answer_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its surroundings: no environment but `env`, and no shell."""

    argv: tuple[str, ...]
    contract: Contract = "one"
    env: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    #: Whom to run as; only root may say.
    user: str | None = None
    #: The addresses (IP:port, TCP) that it may connect to; None: it has this host's network.
    #: Where the system does not permit to close a network, it is not started.
    whitelist: tuple[str, ...] | None = None

    def found(self, folder: Path) -> tuple[str, ...]:
        """Return the arguments with the program's whole path; a relative one counts from `folder`.

        Raises:
            ActionMissing: It is not there, or may not be run.
        """
        name, *rest = self.argv
        if "/" in name:
            path = folder / name
            found = str(path) if shutil.which(str(path)) else None
        else:
            found = shutil.which(
                name, path=dict(self.env).get("PATH", "/usr/local/bin:/usr/bin:/bin")
            )
        if found is None:
            there = "may not be run" if (folder / name).is_file() else "is not there"
            hint = f"looked for it from {folder}"
            raise ActionMissing(f'the program "{name}" {there}', hint=hint)
        return (found, *rest)
