"""The settings of a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.actions.program import Program


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What a runtime hosts and whom it talks to.

    It is a source if it listens nowhere, a sink if it sends nowhere. `generation` is that of this
    node's life: whoever starts it with an empty queue gives it a higher one than before. None takes
    the queue's, or the time of its making.
    """

    name: str
    program: Program
    folder: Path
    listens: str | None = None
    outs: tuple[str, ...] = ()
    service: str | None = None
    generation: int | None = None
    #: End when a source has ended and all of it was taken.
    once: bool = False
    #: Start no program, end when all that the queue has was taken: of a source.
    drain: bool = False
    time_limit_s: float = 60.0
    attempts: int = 3
    queue_bytes: int = 1 << 30
    #: The file of the secret that neighbours have to prove; None: the plain protocol, in which
    #: anybody who can connect may send.
    secret: Path | None = None
    #: The nodes that may send here, "scheme_node"; None: any.
    nodes: tuple[str, ...] | None = None
    #: Listen without a secret where other hosts can reach us.
    open_without_secret: bool = False

    @property
    def source(self) -> bool:
        """Whether it takes no messages."""
        return self.listens is None
