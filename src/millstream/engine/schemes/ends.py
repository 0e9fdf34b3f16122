"""The end of a stream in a scheme with stages: a stage's source ends when all its runtimes have.

    numgen has ended ─▶ "filter2_in" ends ─▶ group "filter2_out" finishes ─▶ all has arrived ─▶ ...

A source that has ended has had all its messages acknowledged, and so has everybody between it and
the stage.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from millstream.actions.scheme import Scheme
from millstream.engine.schemes import mixing
from millstream.engine.schemes.egress import Egress
from millstream.errors import MillstreamError
from millstream.journal import journal_at
from millstream.links.client import Client
from millstream.links.host import read_address

_log = logging.getLogger(__name__)
_LIMIT_S: Final = 20.0


class Ends:
    """Ends the sources of stages, each when its time has come."""

    def __init__(
        self, scheme: Scheme, data: Path, ended: Callable[[str], bool], egress: Mapping[str, Egress]
    ) -> None:
        """Watch over the stages of a scheme.

        Args:
            scheme: The scheme, which has the job's name.
            data: The folder of the job's data.
            ended: Tells whether a runtime that is a source has ended.
            egress: What stages send to runtimes.
        """
        self._scheme, self._ended, self._egress = scheme, ended, egress
        self._engine, self._journals = data.parents[1], data / scheme.name / "journals"
        self._inside = mixing.stages(scheme)
        fed = [name for name in self._inside if self._runtimes(name)]
        self._left = [name for name in fed if not self._over(mixing.source_of(name))]
        self._working: threading.Thread | None = None

    def _runtimes(self, name: str) -> list[str]:
        return [one for one in self._scheme.upstreams(name) if one not in self._inside]

    def _over(self, journal: str) -> bool:
        part = journal_at((self._journals / journal).resolve()).reader().partition(0)
        return part.state_at(part.end).ended

    def step(self) -> None:
        """End what is due; one after the other, elsewhere than on this thread."""
        if self._working is not None and self._working.is_alive():
            return
        self._left = [name for name in self._left if not self._over(mixing.source_of(name))]
        due = [
            name for name in self._left if all(self._silent(one) for one in self._runtimes(name))
        ]
        if due:
            self._working = threading.Thread(
                target=self._end, args=(due[0],), name=f"end of {due[0]}", daemon=True
            )
            self._working.start()

    def _silent(self, node: str) -> bool:
        """Tell whether a runtime has nothing more to send."""
        upstreams = self._scheme.upstreams(node)
        return all(map(self._done, upstreams)) if upstreams else self._ended(node)

    def _done(self, node: str) -> bool:
        if node not in self._inside:
            return self._silent(node)
        return self._over(mixing.journal_of(node)) and self._egress[node].idle

    def _end(self, name: str) -> None:
        address = read_address(self._engine)
        if address is None:
            return
        try:
            with Client(address, timeout=_LIMIT_S) as client:
                client.end(f"{self._scheme.name}.{mixing.source_of(name)}")
        except MillstreamError as error:  # it drains, for example: again later
            _log.info("the source of %s could not be ended: %s", name, error)
