"""Which engine runs which job, for people and programs."""

from __future__ import annotations

import msgspec

from millstream.engine.leases.loads import EngineLoad


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as something that some engine runs; `since` is ISO 8601 in UTC, by that engine's clock."""

    job: str
    #: The state on its engine; "waiting" if no engine has it, or none has reported it yet.
    state: str
    engine: str | None = None
    url: str = ""
    since: str | None = None
    #: The number of the last claim in its log; None if the job has none.
    generation: int | None = None
    #: Who takes it if its engine dies.
    next: str | None = None
    #: Whether the engine that was asked runs it.
    here: bool = False
    #: Why the engine that was asked could not run it, if it has tried.
    reason: str | None = None


class MoveStatus(msgspec.Struct, frozen=True):
    """A job that an engine has moved away: where to, and for how many seconds nobody ran it."""

    job: str
    state: str
    to: str | None = None
    pause_s: float | None = None


class Tasks(msgspec.Struct, frozen=True):
    """All tasks that an engine knows, and how it was drained of its own."""

    engine: str
    draining: bool
    tasks: tuple[TaskStatus, ...]
    moves: tuple[MoveStatus, ...] = ()
    #: Where engines that share jobs are asked, by their ids.
    engines: dict[str, str] = {}
    #: How busy the engines of the cluster are, by their ids, or as "node 1" without a coordination.
    loads: dict[str, EngineLoad] = {}
