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

Sandbox = Literal["usual", "strict", "none"]
"""usual: as much as the system permits, and a line in the log about the rest.
strict: all of it, or it is not started.
none: it has the rights of its user, and what it starts may outlive it."""

SANDBOXES: Final[tuple[Sandbox, ...]] = ("usual", "strict", "none")

CONTRACTS: Final[tuple[Contract, ...]] = ("one", "stream")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use; None is no limit."""

    #: Address space, which is more than what is used: Java and Go reserve gigabytes.
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = 1024
    #: Processes and threads; where Linux is older than 6.14, not for root.
    processes: int | None = 1024
    #: The longest file that it may write.
    file_bytes: int | None = 64 << 30
    frame_bytes: int = LIMIT
    #: The answers to one input, together.
    answer_bytes: int = 256 << 20


def limits_of(**given: int | None) -> Limits:
    """Return limits, with the usual ones for those that are None."""
    named = {name: value for name, value in given.items() if value is not None}
    return Limits(**named)


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
    sandbox: Sandbox = "usual"

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
