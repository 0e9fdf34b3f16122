"""The inboxes of all jobs on an engine, under one listener."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from millstream import ingest
from millstream.clock import Clock
from millstream.engine.inboxes.follow import Following
from millstream.engine.inboxes.landing import Landing, connecting
from millstream.engine.jobs.status import CopyStatus, InboxStatus, Place
from millstream.errors import JournalError, SchemaConflict
from millstream.ingest import Settings
from millstream.links.follower import FollowerStatistics
from millstream.links.host import Listening, Source, declared_inboxes, last_port, note_address
from millstream.links.inbox import Inbox
from millstream.links.levels import Levels
from millstream.links.listener import Listener
from millstream.links.network import Address

_log = logging.getLogger(__name__)
_SENDER: Final = "millstream:flush"
_SETTLE_S: Final = 10.0


@dataclass(slots=True)
class _Open:
    """The inboxes of a job that are here, by source."""

    sources: dict[str, list[Inbox]]
    #: Those that live elsewhere, if its driver is here.
    following: Following | None = None
    #: Where runtimes send to, by source.
    landings: dict[str, Landing] = field(default_factory=dict)
    ending: bool = False

    @property
    def all(self) -> list[Inbox]:
        return [inbox for inboxes in self.sources.values() for inbox in inboxes]


class Inboxes:
    """The inboxes of jobs that live on this node: partition p on node p mod N."""

    def __init__(
        self, folder: Path, listening: Listening, *, node: int, of: int, clock: Clock
    ) -> None:
        """Take a port, the one of before if it is free; nothing is answered before `start`."""
        self._node, self._of, self._clock = node, of, clock
        self._security = listening.security
        self._jobs: dict[str, _Open] = {}
        self._guard = threading.RLock()
        self._folder = folder
        self._listener = Listener(
            folder,
            node=node,
            network=listening.network,
            port=listening.port or last_port(folder),
            security=listening.security,
            open_without_keys=listening.open_without_keys,
        )
        self._levels = Levels(clock)
        self._started = False

    def start(self) -> None:
        """Begin to answer, once the jobs that were there before are open."""
        self._listener.start()
        note_address(self._folder, self.address)
        self._started = True
        self.tick()

    @property
    def address(self) -> Address:
        return self._listener.address

    @property
    def place(self) -> Place:
        at = self.address
        return Place(at.ip, at.port, at.node, at.folder)

    def here(self, partitions: int) -> range:
        """Return which of a source's partitions live on this node."""
        return range(self._node, partitions, self._of)

    def open(
        self,
        job: str,
        folder: Path,
        places: Mapping[str, Sequence[Place]],
        *,
        driver: bool = True,
        only: Collection[str] | None = None,
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        """Open the inboxes of a job that live here, and let them be found; again changes nothing.

        With its driver here, those that live elsewhere are followed, and all partitions are kept
        level. Journals of sources that an earlier version of the job had are there still: `only`
        names those that it has now. Those that have fewer than so many `partitions`, all of them
        here, get more.

        Raises:
            JournalError: A journal cannot be opened; none of them is then.
        """
        with self._guard:
            if job in self._jobs:
                return
            found = {
                name: one
                for name, one in declared_inboxes(folder).items()
                if only is None or name in only
            }
            found = found if places or self._of > 1 else self._grown(found, partitions or {})
            _check_places(found, places)
            opened = _Open({})
            self._take_in(job, opened, found, places)
            if driver:
                self._follow(job, opened, found, places)
            self._jobs[job] = opened
            if self._started:
                _listen(opened)

    def _grown(
        self, found: Mapping[str, Source], partitions: Mapping[str, int]
    ) -> dict[str, Source]:
        return {
            name: (
                ingest.grow(description, settings, partitions.get(name, 0), self._clock),
                settings,
            )
            for name, (description, settings) in found.items()
        }

    def _take_in(
        self,
        job: str,
        opened: _Open,
        found: Mapping[str, Source],
        places: Mapping[str, Sequence[Place]],
    ) -> None:
        """Open the inboxes of sources, all of them or none, and let them be found."""
        with contextlib.ExitStack() as stack:
            fresh = {name: self._opened(one, stack) for name, one in found.items()}
            stack.pop_all()
        opened.sources |= fresh
        for name, (description, settings) in found.items():
            self._let_find(job, name, fresh[name], settings, places.get(name, ()))
            if settings.runtimes is not None:
                opened.landings[name] = self._landing(job, name, description.path, settings)
                opened.landings[name].bind()

    def _opened(self, source: Source, stack: contextlib.ExitStack) -> list[Inbox]:
        """Open the inboxes of a source that are here; the stack closes them."""
        description, settings = source
        found = []
        for partition in self.here(description.partitions):
            found.append(Inbox(description, partition, settings, clock=self._clock, wait_s=1.0))
            stack.callback(found[-1].close)
        return found

    def _let_find(
        self,
        job: str,
        name: str,
        inboxes: Sequence[Inbox],
        settings: Settings,
        places: Sequence[Place],
    ) -> None:
        if inboxes:
            at = [Address(p.ip, p.port, p.node, p.folder) for p in places]
            allowed = settings.producers
            self._listener.host(
                f"{job}.{name}", inboxes, key=settings.key, places=at or None, allowed=allowed
            )

    def extend(self, job: str, folder: Path, sources: Collection[str]) -> None:
        """Open the inboxes of sources that a new version of a job adds, which all live here; again changes nothing.

        Raises:
            JournalError: A journal cannot be opened; none of them is then.
        """
        with self._guard:
            opened = self._jobs.get(job)
            if opened is None:
                return
            known = {name: one for name, one in declared_inboxes(folder).items() if name in sources}
            found = {name: one for name, one in known.items() if name not in opened.sources}
            self._take_in(job, opened, found, {})
            for name, one in found.items():
                self._keep_level(job, name, one, opened.sources[name])
            if self._started:
                _listen(opened)

    def _keep_level(self, job: str, name: str, source: Source, inboxes: Sequence[Inbox]) -> None:
        """Keep the partitions of a source level that all live here."""
        description, settings = source
        self._levels.add(f"{job}.{name}", inboxes, settings, inboxes[description.lasting :])

    def grow(self, job: str, folder: Path, partitions: Mapping[str, int]) -> None:
        """Give sources of a job that have fewer more partitions, which all live here; again changes nothing.

        Those who send meanwhile get no answer, and ask again.

        Raises:
            JournalError: A journal cannot be opened.
        """
        with self._guard:
            opened = self._jobs.get(job)
            for name, one in declared_inboxes(folder).items() if opened is not None else ():
                if opened is not None and 0 < len(opened.sources.get(name, ())) < partitions.get(
                    name, 0
                ):
                    opened.sources[name] = self._anew(
                        job, name, one, opened.sources[name], partitions
                    )

    def _anew(
        self,
        job: str,
        name: str,
        source: Source,
        before: Sequence[Inbox],
        partitions: Mapping[str, int],
    ) -> list[Inbox]:
        """Close the inboxes of a source, let its journal grow, and open all of them."""
        paused = any(inbox.paused for inbox in before)
        self._levels.remove(f"{job}.{name}")
        for inbox in before:
            inbox.close()
        try:
            source = self._grown({name: source}, partitions)[name]
        except (
            JournalError,
            OSError,
        ) as error:  # it goes on as it was, and the next start tries again
            _log.error("the journal of %s.%s could not grow: %s", job, name, error)
        with contextlib.ExitStack() as stack:
            inboxes = self._opened(source, stack)
            stack.pop_all()
        for inbox in inboxes if paused else ():
            inbox.pause()
        self._let_find(job, name, inboxes, source[1], ())
        self._keep_level(job, name, source, inboxes)
        return inboxes

    def reduce(self, job: str, sources: Collection[str]) -> None:
        """Write what was taken for sources that a job has no more, and let go of their inboxes; their journals stay."""
        with self._guard:
            opened = self._jobs.get(job)
            if opened is None:
                return
            gone = {
                name: opened.sources.pop(name)
                for name in list(opened.sources)
                if name not in sources
            }
            landings = {name: opened.landings.pop(name) for name in gone if name in opened.landings}
            for name in gone:
                self._listener.withdraw(f"{job}.{name}")
                self._levels.remove(f"{job}.{name}")
        _close(_Open(gone, landings=landings))

    def _landing(self, job: str, source: str, folder: Path, settings: Settings) -> Landing:
        """Return where runtimes send to a source; its rows go by key to the inboxes of all engines."""
        keys = None if self._security is None else self._security.keys
        if settings.runtimes == ":0":  # anywhere, where others can reach it as they do the inboxes
            ip = f"[{self.address.ip}]" if ":" in self.address.ip else self.address.ip
            settings = msgspec.structs.replace(settings, runtimes=f"{ip}:0")

        def highest(sender: str) -> int:
            with self._guard:
                here = self._jobs[job].sources[source] if job in self._jobs else []
            return max((inbox.highest(sender) for inbox in here), default=-1)

        return Landing(
            f"{job}.{source}",
            settings,
            folder,
            connect=connecting(self.address, keys),
            highest=highest,
            clock=self._clock,
        )

    def landings(self, job: str) -> dict[str, str]:
        """Return where runtimes send to each source of a job that takes messages here."""
        with self._guard:
            found = self._jobs[job].landings if job in self._jobs else {}
            return {name: landing.at for name, landing in found.items() if landing.open}

    def _follow(
        self,
        job: str,
        opened: _Open,
        found: Mapping[str, Source],
        places: Mapping[str, Sequence[Place]],
    ) -> None:
        following = opened.following = Following(
            job, found, places, node=self._node, security=self._security, clock=self._clock
        )
        for name, (description, settings) in found.items():
            here = opened.sources[name]
            # Of those that have grown all partitions are here.
            later = here[description.lasting :] if description.earlier else ()
            self._levels.add(f"{job}.{name}", [*here, *following.of(name)], settings, later)
        following.start()

    def meet(self, job: str, timeout_s: float) -> None:
        """Wait until the other engines of a job have been reached once.

        Raises:
            EngineAway: That takes longer.
        """
        following = self._following(job)
        if following is not None:
            following.meet(timeout_s)

    def close_job(self, job: str) -> None:
        """Write what was taken, and let go of a job's inboxes."""
        with self._guard:
            opened = self._jobs.pop(job, None)
            if opened is None:
                return
            for name in opened.sources:
                self._listener.withdraw(f"{job}.{name}")
                self._levels.remove(f"{job}.{name}")
        _close(opened)

    # intake

    def pause(self, job: str) -> None:
        """Take nothing more."""
        for inbox in self._of_job(job):
            inbox.pause()

    def settled(self, job: str) -> bool:
        """Tell whether all that was taken here is durable."""
        return all(inbox.settled for inbox in self._of_job(job))

    def settle(self, job: str) -> None:
        """Wait until all that was taken here is durable, unless the disk is too slow."""
        until = time.monotonic() + _SETTLE_S
        while not self.settled(job) and time.monotonic() < until:
            time.sleep(0.005)

    def catch_up(self, job: str) -> None:
        """Wait until all that the engines of a job have taken is durable and here, unless one of them is too slow."""
        self.settle(job)
        following = self._following(job)
        if following is not None:
            following.catch_up(_SETTLE_S)

    def elsewhere(self, job: str) -> bool:
        """Tell whether partitions of a job are followed."""
        following = self._following(job)
        return following is not None and not following.empty

    def _following(self, job: str) -> Following | None:
        with self._guard:
            return self._jobs[job].following if job in self._jobs else None

    def followed(self, job: str) -> tuple[FollowerStatistics, ...]:
        """Return what the followers of a job are doing, if its driver is here."""
        following = self._following(job)
        return () if following is None else following.statistics()

    def copies(self, job: str) -> tuple[CopyStatus, ...]:
        """Return how far the copies of a job's partitions are that live elsewhere."""
        return tuple(
            CopyStatus(
                source=one.source.removeprefix(f"{job}."),
                partition=one.partition,
                original=one.original,
                rows=one.end,
                behind_bytes=one.behind_bytes,
                live=one.live,
                error=one.error,
            )
            for one in self.followed(job)
        )

    def missing(self, job: str) -> str | None:
        """Return which partition of a job cannot be followed, and why, if there is one."""
        found = next((one for one in self.followed(job) if one.error is not None), None)
        return (
            None
            if found is None
            else f"partition {found.partition} of {found.source} is not followed: {found.error}"
        )

    def away(self, job: str) -> tuple[str, ...]:
        """Return the other engines of a job that do not answer."""
        found = [one for one in self.followed(job) if one.error is not None]
        return tuple(sorted({f"node {one.partition % self._of}" for one in found}))

    def resume(self, job: str) -> None:
        for inbox in self._of_job(job):
            inbox.resume()

    def end(self, job: str) -> None:
        """End all partitions, now or as soon as the disk lets us: `tick` goes on with it."""
        with self._guard:
            if job in self._jobs:
                self._jobs[job].ending = True
        self.tick()

    def tick(self) -> None:
        """Go on with ends that are not written, and try again where a disk has refused."""
        with self._guard:
            jobs = list(self._jobs.values())
        for opened in jobs:
            for inbox in opened.all:
                inbox.working()
            if self._started:
                _listen(opened)
            if opened.ending:
                # Each is told, whatever another says.
                ended = [inbox.end(_SENDER) for inbox in opened.all]
                opened.ending = not all(ended)

    def ending(self) -> bool:
        """Tell whether ends are still to be written."""
        with self._guard:
            return any(opened.ending for opened in self._jobs.values())

    def _of_job(self, job: str) -> list[Inbox]:
        with self._guard:
            return self._jobs[job].all if job in self._jobs else []

    # looking

    def status(self, job: str) -> tuple[InboxStatus, ...]:
        """Return what each inbox of a job is doing."""
        with self._guard:
            opened = self._jobs.get(job)
            sources = {} if opened is None else opened.sources
            landings = {} if opened is None else opened.landings
            return tuple(
                self._status(name, inbox, landings.get(name))
                for name, inboxes in sources.items()
                for inbox in inboxes
            )

    def _status(self, source: str, inbox: Inbox, landing: Landing | None) -> InboxStatus:
        found = inbox.statistics()
        return InboxStatus(
            source=source,
            partition=inbox.partition,
            address=str(self.address),
            rows=found.rows,
            repeated=found.repeated,
            refused=found.refused,
            waiting=found.waiting,
            free=found.free,
            senders=found.senders,
            error=found.error,
            runtimes=landing.at if landing is not None and landing.open else None,
        )

    def close(self) -> None:
        """Write what was taken, let go of all inboxes, and stop listening."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._listener.close)
            with self._guard:
                jobs, self._jobs = self._jobs, {}
            for opened in jobs.values():
                stack.callback(_close, opened)
            stack.callback(self._levels.close)


def _check_places(found: Mapping[str, Source], places: Mapping[str, Sequence[Place]]) -> None:
    """Refuse to spread a journal over engines that is not laid out as the job is: nobody would look after some partitions."""
    for name, (description, _) in found.items():
        if name in places and (description.earlier or len(places[name]) != description.partitions):
            made = (
                f"and was made with {description.lasting}"
                if description.earlier
                else f"not {len(places[name])}"
            )
            fact = f'the journal of source "{name}" has {description.partitions} partitions, {made}'
            raise SchemaConflict(
                fact,
                hint="on several engines they stay as they were made: deploy under another name",
            )


def _listen(opened: _Open) -> None:
    for landing in opened.landings.values():
        landing.tick()


def _close(opened: _Open) -> None:
    for landing in opened.landings.values():
        landing.close()
    with contextlib.ExitStack() as stack:
        for inbox in opened.all:
            stack.callback(inbox.close)
        if opened.following is not None:
            stack.callback(opened.following.close)
