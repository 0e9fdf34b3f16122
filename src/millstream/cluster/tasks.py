"""Which engine runs which job: asked of any engine that answers."""

from __future__ import annotations

from millstream.cluster.engines import Engines
from millstream.engine.leases.tasks import Tasks
from millstream.errors import EngineAway


class EngineTasks(Engines):
    """The tasks of engines that share a coordination."""

    def tasks(self) -> Tasks:
        """Return which engine runs which job, as the first engine that answers has seen it.

        Raises:
            EngineAway: None answers.
        """
        away: EngineAway | None = None
        for engine in self._engines:
            try:
                return engine.get("/tasks", Tasks)
            except EngineAway as error:
                away = away or error
        assert away is not None
        raise away

    def drain_tasks(self) -> Tasks:
        """Begin to move the jobs of the engine, the first one that was named, to others."""
        return self._engines[0].post("/tasks/drain", Tasks)
