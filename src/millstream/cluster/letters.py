"""The dead letters of a job on a cluster, as the engine with its driver has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from millstream.cluster.client import job_path
from millstream.cluster.engines import Engines
from millstream.engine.http.dead_messages import (
    DiscardAnswer,
    LetterPage,
    LetterStatus,
    ReplayAnswer,
)

_AT_ONCE: Final = 1_000
#: How many seconds longer than others these may take.
_SENDING_S: Final = 600.0


class JobLetters(Engines):
    """What a cluster is asked about dead letters."""

    def dead_letters(self, job: str, journal: str | None = None) -> Iterator[LetterStatus]:
        """Yield the dead letters of a job, oldest first."""
        engine, start = self._driver(job), 0
        while True:
            query = {"journal": journal, "from": start, "limit": _AT_ONCE}
            page = engine.get(job_path(job, "dead"), LetterPage, **query)
            yield from page.letters
            if page.next is None:
                return
            start = page.next

    def replay_letters(
        self, job: str, ids: Sequence[str], *, to: str | None = None, late: bool = False
    ) -> ReplayAnswer:
        """Replay dead letters, each once, and return which were, and why others were not."""
        return self._replayed(job, "replay", [{"ids": part} for part in _parts(ids)], to, late)

    def replay_edited(
        self,
        job: str,
        rows: Mapping[str, Mapping[str, Any]],
        *,
        to: str | None = None,
        late: bool = False,
    ) -> ReplayAnswer:
        """Replay dead letters with other rows, by id; all of them, or none."""
        return self._replayed(job, "replay/edited", [{"rows": dict(rows)}], to, late)

    def discard_letters(self, job: str, ids: Sequence[str]) -> int:
        """Discard dead letters, and return how many were not before."""
        engine, path = self._driver(job), job_path(job, "discard")
        answers = [engine.post(path, DiscardAnswer, {"ids": part}) for part in _parts(ids)]
        return sum(one.discarded for one in answers)

    def _replayed(
        self, job: str, what: str, bodies: list[dict[str, Any]], to: str | None, late: bool
    ) -> ReplayAnswer:
        engine, path = self._driver(job), job_path(job, what)
        replayed: list[str] = []
        refused: dict[str, str] = {}
        for body in bodies:
            order = {**body, "to": to, "late": late}
            answer = engine.post(path, ReplayAnswer, order, extra=_SENDING_S)
            replayed += answer.replayed
            refused |= answer.refused
        return ReplayAnswer(replayed, refused)


def _parts(ids: Sequence[str]) -> list[list[str]]:
    return [list(ids[at : at + _AT_ONCE]) for at in range(0, len(ids), _AT_ONCE)]
