"""Who should run a job: rules without I/O, without clocks.

An engine looks at all logs and all engines in intervals of its own, and counts. What has not
changed for INTERVALS looks is taken for dead: a job's lease is lost then, and an engine is no
candidate any more. An engine that slept counts one look, not the time. An engine of which it is
known that its process has ended, because it was on the observer's host, is not waited for.

    look ──▶ Watched: how many looks without a change ──▶ free jobs ──▶ candidates, in order ──▶ claim

These rules say who *should* claim. That a job runs once rests on the claim in its log alone: two
engines that see different things, and claim both, are told apart there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: After so many looks without a change a holder, or an engine, is taken for dead.
INTERVALS: Final = 3
#: How many looks a candidate leaves to the one before it.
TURN: Final = 2


@dataclass(frozen=True, slots=True)
class Watched:
    """What changes while its owner lives, and for how many looks it has not."""

    mark: int
    quiet: int = 0

    @property
    def silent(self) -> bool:
        return self.quiet >= INTERVALS


def watched(known: Watched | None, mark: int, *, counted: bool = True) -> Watched:
    """Return what is known after another look; one before its time is not `counted`."""
    if known is None or known.mark != mark:
        return Watched(mark)
    return Watched(mark, known.quiet + counted)


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine as an observer sees it."""

    id: str
    cores: int
    #: Whether it gives its jobs away, and takes none.
    draining: bool = False
    silent: bool = False
    #: Whether it is known that its process has ended.
    gone: bool = False

    @property
    def there(self) -> bool:
        return not (self.silent or self.gone)

    @property
    def candidate(self) -> bool:
        return self.there and not self.draining


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as an observer sees it."""

    name: str
    #: The engine that has the lease; None if nobody ever had, or it was released.
    holder: str | None
    #: Looks since its log has changed.
    quiet: int
    #: Whether nobody is to run it.
    settled: bool = False
    #: Whether it is known that the holder's process has ended.
    orphaned: bool = False

    @property
    def free_for(self) -> int | None:
        """For how many looks somebody could have claimed it; None if it is not free."""
        if self.settled:
            return None
        if self.holder is None or self.orphaned:
            return self.quiet
        return self.quiet - INTERVALS if self.quiet >= INTERVALS else None


def candidates(job: str, engines: Iterable[EngineView], load: Mapping[str, int]) -> list[str]:
    """Return the engines that could run a job, in order: whoever has the fewest per core first.

    Among equals, another engine is first for each job, so that jobs spread.
    """
    able = [one for one in engines if one.candidate]
    able.sort(key=lambda one: ((load.get(one.id, 0) + 1) / one.cores, _lot(job, one.id)))
    return [one.id for one in able]


def _lot(job: str, engine: str) -> bytes:
    return hashlib.sha256(f"{job}\n{engine}".encode()).digest()


def next_candidates(jobs: Iterable[JobView], engines: Sequence[EngineView]) -> dict[str, list[str]]:
    """Return, for each job, who would run it if its holder were gone, in order.

    A free job counts as its first candidate's, so that of many free jobs everybody gets a part.
    """
    ordered = sorted(jobs, key=lambda one: one.name)
    load: dict[str, int] = {}
    for job in ordered:
        if job.holder is not None and job.free_for is None and not job.settled:
            load[job.holder] = load.get(job.holder, 0) + 1
    found: dict[str, list[str]] = {}
    for job in ordered:
        free = job.free_for is not None
        others = engines if free else [one for one in engines if one.id != job.holder]
        found[job.name] = candidates(job.name, others, load)
        if free and found[job.name]:
            first = found[job.name][0]
            load[first] = load.get(first, 0) + 1
    return found


def to_claim(me: str, jobs: Sequence[JobView], engines: Sequence[EngineView]) -> list[str]:
    """Return the jobs that an engine should claim now.

    The first candidate claims at once, the next one TURN looks later, and so on: not all of them at
    the same time, and a candidate that does not claim keeps nobody from it.
    """
    order = next_candidates(jobs, engines)
    found = []
    for job in jobs:
        free, turns = job.free_for, order[job.name]
        if free is not None and me in turns and free >= TURN * turns.index(me):
            found.append(job.name)
    return found
