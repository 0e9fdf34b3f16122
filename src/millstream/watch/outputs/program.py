"""Programs: each complex event is given to a program as a frame of JSON, as actions get rows.

The program answers every frame with one of its own, which may be empty; what it answers is not
used. It gets an event again if it died or hung over it, and after a few tries the event is put
aside. So it may see an event twice, with the same run id.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from millstream.actions.child import Child, check_sandbox, exchange
from millstream.actions.frames import Decoder, encode
from millstream.actions.program import Program
from millstream.errors import ActionFailed, ActionMissing, BadBytes, InvalidOption
from millstream.watch.aside import Aside
from millstream.watch.outbox import Entry

_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 60.0
_READ: Final = 1 << 16
_log = logging.getLogger(__name__)


class ProgramOutput:
    """A program that is kept running."""

    def __init__(
        self, program: Program, folder: Path, aside: Aside, *, timeout: float = _TIMEOUT_S
    ) -> None:
        """Check the program, whose working directory is `folder`; it starts with the first event.

        Raises:
            ActionMissing: It is not there, or may not be run.
        """
        program.found(Path.cwd())
        check_sandbox(program)
        self.name = f"program {shlex.join(program.argv)}"
        self._program, self._folder, self._aside, self._timeout = program, folder, aside, timeout
        self._child: Child | None = None
        self._decoder = Decoder()

    def deliver(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._give(entry)

    def _give(self, entry: Entry) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._exchange(encode(entry.json))
            except ActionMissing:
                raise
            except (ActionFailed, BadBytes) as error:
                self.close()
                reason = error.message
                _log.warning("%s (try %d of %d)", reason, attempt, _ATTEMPTS)
            else:
                return
        self._aside.put(reason, entry.json, run=entry.run, number=entry.number)

    def _exchange(self, frame: bytes) -> None:
        if self._child is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._child = Child(self._program, self._folder, _log.info)
            self._decoder = Decoder(self._program.limits.frame_bytes)
        room = bytearray(_READ)
        until = time.monotonic() + self._timeout
        exchange(
            self._child,
            iter([memoryview(frame)]),
            lambda: memoryview(room),
            lambda count: bool(self._decoder.feed(bytes(room[:count]))),
            until,
        )

    def close(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None


def make(rest: str, *, aside: Any, data: Path, **_context: object) -> ProgramOutput:
    """Return the output for a command line; a relative program counts from here."""
    argv = shlex.split(rest)
    if not argv:
        raise InvalidOption('the output "program" has no program', hint="write program:./alarm")
    if "/" in argv[0]:
        argv[0] = str(Path(argv[0]).absolute())
    name = Path(argv[0]).name
    return ProgramOutput(Program(tuple(argv)), data / "programs" / name, aside(f"program_{name}"))
