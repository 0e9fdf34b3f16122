"""What a switch asks of the driver; each may be repeated after a crash."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.switch.record import Record


@dataclass(frozen=True, slots=True)
class Write:
    """Make the record durable, whole or not at all."""

    record: Record


@dataclass(frozen=True, slots=True)
class StartHeld:
    """Start a version that reads nothing yet."""

    version: str


@dataclass(frozen=True, slots=True)
class RunShadow:
    """Let a version run on live input, its results apart."""

    version: str


@dataclass(frozen=True, slots=True)
class AskWindows:
    """Ask every partition for its highest window, of a length.

    With `stop` it hands out nothing more until it is let go.
    """

    round: int
    step_us: int
    stop: bool = False


@dataclass(frozen=True, slots=True)
class AskConfirm:
    """Ask every partition to promise that it stays below the cut.

    It does until it is let go or learns of the cut.
    """

    round: int
    step_us: int
    bound: int | None
    cut_us: int


@dataclass(frozen=True, slots=True)
class FindFirst:
    """Look up where the new version begins to read.

    One that runs already (a share) goes on where it is.
    """

    round: int
    cut_us: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take back questions and promises: all partitions go on as before."""


@dataclass(frozen=True, slots=True)
class Release:
    """Let a version run by the record: it owns what that says, and begins where that says."""

    version: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Stop a version permanently, and take back its results from a moment on, where sinks can."""

    version: str
    since_us: int


@dataclass(frozen=True, slots=True)
class MakeReady:
    """Tell a version what the record says, and hold it still."""

    version: str


@dataclass(frozen=True, slots=True)
class Close:
    """Let the sources of a unit hand out their closing marker, to the version that leaves alone."""

    version: str
    unit: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Stop a version that has emitted all that it owns, and remove its checkpoints."""

    version: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop a version that has never owned anything, and remove its checkpoints."""

    version: str


Instruction = (
    Write
    | StartHeld
    | RunShadow
    | AskWindows
    | AskConfirm
    | FindFirst
    | LetGo
    | Release
    | Withdraw
    | MakeReady
    | Close
    | Retire
    | Remove
)
