"""The engines of a cluster: which of them answer, and which has a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from millstream.cluster.client import DEFAULT, PATIENCE_S, PAUSE_S, EngineClient, job_path
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import EngineStatus, JobStatus
from millstream.engine.leases.tasks import Tasks, TaskStatus
from millstream.errors import EngineAway, EnginesDiffer, MillstreamError, NoSuchJob
from millstream.links.network import Address, spanning

Asked = TypeVar("Asked")


class Engines:
    """One or several engines, found and asked."""

    def __init__(
        self,
        urls: Sequence[str] = (DEFAULT,),
        token: str | Mapping[str, str] | None = None,
        *,
        timeout: float = 60.0,
    ) -> None:
        """Name the engines; nothing is asked yet.

        Args:
            urls: All engines of the cluster, in any order.
            token: The token of all of them, or of each by its URL; None: those of engines on this
                host are looked up.
            timeout: How long an engine may take to answer.
        """
        given = token if isinstance(token, Mapping) else dict.fromkeys(urls, token)
        self._engines = [EngineClient(url, given.get(url), timeout=timeout) for url in urls]
        self._away: dict[EngineClient, EngineAway] = {}
        #: Engines that share jobs with the one that was named, as far as any has said.
        self._others: set[str] = set()
        #: Whether the engines that were named share their jobs, as far as they were asked.
        self._shares = False

    # engines

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(engine.url for engine in self._engines)

    def engines(self) -> list[EngineStatus]:
        """Return the status of all engines, by node number.

        Raises:
            EngineAway: One of them does not answer.
            WrongNodes: Their numbers are not 0 to N-1, each once.
            LoopbackInCluster: They are on several hosts, and one listens on its own alone.
            EnginesDiffer: They are some of another number of engines.
        """
        found = self._ask_all()
        if self._away:
            raise next(iter(self._away.values()))
        return found

    @property
    def away(self) -> tuple[str, ...]:
        """The engines that did not answer when they were last asked."""
        return tuple(engine.url for engine in self._away)

    def _ask_all(self) -> list[EngineStatus]:
        """Ask all engines for their node, and order them by it, those that are away last."""
        answered: list[tuple[EngineStatus, EngineClient]] = []
        self._away = {}
        for engine in self._engines:
            try:
                answered.append((engine.about(), engine))
            except EngineAway as error:
                self._away[engine] = error
        answered.sort(key=lambda one: one[0].node)
        found = [about for about, _ in answered]
        self._shares = any(about.shares for about in found)
        if not self._away:
            self._check(found)
        self._engines = [*(engine for _, engine in answered), *self._away]
        return found

    def _there(self) -> list[EngineClient]:
        """Return the engines that answer, node 0 first, which has the drivers.

        Raises:
            EngineAway: It does not answer.
        """
        if len(self._engines) == 1:
            return self._engines
        found = self._ask_all()
        if self._away and (not found or found[0].node != 0):
            raise next(iter(self._away.values()))
        return [engine for engine in self._engines if engine not in self._away]

    def _whole(self) -> list[EngineClient]:
        """Return all engines, node 0 first.

        Raises:
            EngineAway: One of them does not answer.
        """
        found = self._there()
        if self._away:
            raise next(iter(self._away.values()))
        return found

    def _check(self, found: Sequence[EngineStatus]) -> None:
        if any(one.shares for one in found):
            if alone := next((one for one in found if not one.shares), None):
                msg = f"the engine at {alone.url} shares no jobs with the others"
                raise EnginesDiffer(msg, hint="start it with --coordination, as the others")
            return
        spanning([Address(one.inbox.ip, one.inbox.port, one.node) for one in found])
        for one in found:
            if one.of != len(found):
                msg = f"the engine at {one.url} is node {one.node} of {one.of}, not of {len(found)}"
                hint = "name every engine of the cluster, each with --engine"
                raise EnginesDiffer(msg, hint=hint)

    def _raise_away(self) -> None:
        for error in self._away.values():
            raise error

    def gone(self, timeout: float = 60.0) -> bool:
        """Wait until no engine answers any more; return whether that is so."""
        until = time.monotonic() + timeout
        for engine in self._engines:
            while self._answers(engine):
                if time.monotonic() > until:
                    return False
                time.sleep(PAUSE_S)
        return True

    def _answers(self, engine: EngineClient) -> bool:
        try:
            engine.get("/health", dict[str, Any])
        except EngineAway:
            return False
        return True

    # finding

    def _with(self, job: str) -> list[tuple[EngineClient, JobStatus]]:
        """Return the engines that answer and have a job, that of its driver first.

        For a shared job, this is the engine that currently runs it.

        Raises:
            NoSuchJob: None of them has it.
        """
        return self._where(job, partial(self._having, job))

    def _where(self, job: str, ask: Callable[[], Asked]) -> Asked:
        """Ask about a job, and if another engine has it by now, ask that one.

        Raises:
            NoSuchJob: No engine has it.
        """
        self._narrow()
        try:
            return ask()
        except NoSuchJob:
            if not self.go_to(job):
                raise
            return ask()

    def _narrow(self) -> None:
        """Of engines that share their jobs, ask the first that answers: it knows where each job is."""
        if len(self._engines) == 1:
            return
        self._ask_all()
        if self._shares:
            self._others |= set(self.urls)
            first, *others = self._engines
            for engine in others:
                engine.close()
            self._engines, self._away = [first], {}

    def _having(self, job: str) -> list[tuple[EngineClient, JobStatus]]:
        missing: NoSuchJob | None = None
        found: list[tuple[EngineClient, JobStatus]] = []
        for engine in self._there():
            try:
                found.append((engine, engine.get(job_path(job), JobStatus)))
                job = found[0][1].name  # ids are each engine's own
            except NoSuchJob as error:
                missing = error
        if not found and missing is not None:
            raise missing
        return found

    def _driver(self, job: str) -> EngineClient:
        return self._with(job)[0][0]

    def go_to(self, job: str) -> bool:
        """Ask the engine that runs a job from now on; return whether that is another than before.

        That may be if engines share the job, and the one that was named does not have it, or does
        not answer. A job that no engine runs stays the business of the one that was named.
        """
        self._narrow()
        if len(self._engines) != 1:
            return False
        asked = self._engines[0]
        with contextlib.suppress(NoSuchJob, EngineAway):
            status = asked.get(job_path(job), JobStatus)
            if status.state is not JobState.MOVED:
                return False
        for url in [asked.url, *sorted(self._others - {asked.url})]:
            there = self._place(job, url)
            if there is not None and there != asked.url:
                self._engines = [asked.elsewhere(there)]
                asked.close()
                return True
        return False

    def _place(self, job: str, url: str) -> str | None:
        """Return where a job runs, as the engine at a URL has seen it."""
        # The id of a job is its name and a number.
        names = {job, job.rpartition("-")[0]}
        task = next((one for one in self._tasks_at(url) if one.job in names), None)
        if task is None:
            return None
        return url if task.here else task.url or None

    def _tasks_at(self, url: str) -> Sequence[TaskStatus]:
        """Return the tasks that an engine knows, and note who the others are."""
        asked = self._engines[0]
        client = asked if url == asked.url else asked.elsewhere(url)
        try:
            listed = client.get("/tasks", Tasks)
        except MillstreamError:  # it is away, or of a version before
            return ()
        finally:
            if client is not asked:
                client.close()
        self._others |= set(listed.engines.values())
        return listed.tasks

    def _follow(
        self, job: str, engine: EngineClient, away: EngineAway | NoSuchJob, since: float
    ) -> EngineClient:
        """Return whom to ask about a job when an engine has lost it, or has not answered since.

        Raises:
            EngineAway: Nobody has answered for too long.
            NoSuchJob: Nobody has it, or it does not arrive.
        """
        moved = self.go_to(job)
        if time.monotonic() - since > PATIENCE_S or (
            isinstance(away, NoSuchJob) and not moved and not self._others
        ):
            raise away
        time.sleep(PAUSE_S)
        return self._engines[0] if moved else engine

    # closing

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
