"""The inboxes of all jobs on an engine, under one listener."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from millstream import ingest
from millstream.actions.handshake import secret_of
from millstream.clock import Clock
from millstream.engine.access.audit import AuditLog
from millstream.engine.inboxes.audited import audited
from millstream.engine.inboxes.follow import Following
from millstream.engine.inboxes.job_inboxes import JobInboxes
from millstream.engine.inboxes.landing import Landing, connecting
from millstream.engine.inboxes.producers import producer_statuses
from millstream.engine.inboxes.source_reader import NOTHING_READ, Reading
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.spread import SpreadSource
from millstream.engine.jobs.status import Place, Places, ProducerStatus
from millstream.errors import JournalError, SchemaConflict
from millstream.ingest import SourceSettings
from millstream.links.host import Listening, Source, declared_inboxes, last_port, note_address
from millstream.links.inbox import Inbox
from millstream.links.levels import Levels
from millstream.links.listener import Listener
from millstream.links.network import Address

_log = logging.getLogger(__name__)


class Inboxes:
    """The inboxes of jobs that live on this node: partition p on node p mod N."""

    def __init__(
        self, folder: Path, listening: Listening, *, node: int, of: int, clock: Clock
    ) -> None:
        """Take a port, the one of before if it is free; nothing is answered before `start`."""
        self._node, self._of, self._clock = node, of, clock
        self._security, self._open = listening.security, listening.open_without_keys
        self._jobs: dict[str, JobInboxes] = {}
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
        self._audit = AuditLog(Folders(folder).audit)
        self._listener.on_request = audited(self._audit)
        self._levels = Levels(clock)
        self._started = False

    def start(self) -> None:
        """Begin to answer, once the jobs that were there before are open."""
        self._listener.start()
        note_address(self._folder, self.address)
        self._started = True
        self.tick()

    def explain(
        self, notice: Callable[[str], str | None], absent: Callable[[str], tuple[str, str] | None]
    ) -> None:
        """Say what senders to a source should know, and why one is not here."""
        self._listener.sources.notice, self._listener.sources.absent = notice, absent

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
        places: Places,
        *,
        driver: bool = True,
        only: Collection[str] | None = None,
        partitions: Mapping[str, int] | None = None,
        spread: Mapping[str, SpreadSource] = NOTHING_READ,
        root: Path = Path(),
    ) -> None:
        """Open the inboxes of a job that live here, and let them be found; again changes nothing.

        With its driver here, those that live elsewhere are followed, and all partitions are kept
        level. Journals of sources that an earlier version of the job had are there still: `only`
        names those that it has now. Those that have fewer than so many `partitions`, all of them
        here, get more. What is `spread` is read here, with paths relative to `root`.

        Raises:
            JournalError: A journal cannot be opened; none of them is then.
        """
        with self._guard:
            if job in self._jobs:
                return
            found = _wanted(declared_inboxes(folder, spread), only)
            if not places and self._of == 1:
                found = _grown(found, partitions or {}, self._clock)
            _check_places(found, places)
            opened = JobInboxes(job, self.address)
            self._open_sources(job, folder, opened, found, places)
            if driver:
                self._follow(job, opened, found, places)
            self._jobs[job] = opened
            reading = Reading(self.address, self._security, self.here, root, self._clock)
            opened.readers = reading.begun(job, spread, opened.sources, found)
            if self._started:
                opened.listen()

    def _open_sources(
        self,
        job: str,
        folder: Path,
        opened: JobInboxes,
        found: Mapping[str, Source],
        places: Places,
    ) -> None:
        """Open the inboxes of sources, all of them or none, and let them be found."""
        with contextlib.ExitStack() as stack:
            fresh = {name: self._opened(one, stack) for name, one in found.items()}
            stack.pop_all()
        opened.sources |= fresh
        for name, (description, settings) in found.items():
            self._publish(f"{job}.{name}", fresh[name], settings, places.get(name, ()))
            if settings.runtimes is not None:
                opened.landings[name] = self._landing(
                    job, name, description.path, settings, secret_of(folder)
                )
                opened.landings[name].bind()

    def _opened(self, source: Source, stack: contextlib.ExitStack) -> list[Inbox]:
        """Open the inboxes of a source that are here; the stack closes them."""
        description, settings = source
        found = []
        for partition in self.here(description.partitions):
            found.append(Inbox(description, partition, settings, clock=self._clock, timeout=1.0))
            stack.callback(found[-1].close)
        return found

    def _publish(
        self, name: str, inboxes: list[Inbox], settings: SourceSettings, places: Sequence[Place]
    ) -> None:
        if inboxes:
            at = [Address(p.ip, p.port, p.node, p.folder) for p in places] or None
            key, allowed, read = settings.key, settings.producers, not settings.inbox
            self._listener.sources.host(
                name, inboxes, key=key, places=at, allowed=allowed, read=read
            )

    def extend(self, job: str, folder: Path, sources: Collection[str]) -> None:
        """Open the inboxes of sources that a new version adds, all here; again changes nothing.

        Raises:
            JournalError: A journal cannot be opened; none of them is then.
        """
        with self._guard:
            opened = self._jobs.get(job)
            if opened is None:
                return
            known = {name: one for name, one in declared_inboxes(folder).items() if name in sources}
            found = {name: one for name, one in known.items() if name not in opened.sources}
            self._open_sources(job, folder, opened, found, {})
            for name, one in found.items():
                self._keep_level(f"{job}.{name}", one, opened.sources[name])
            if self._started:
                opened.listen()

    def lift(self, job: str, floors: Mapping[str, int]) -> None:
        """Let sources of a job pass their time on when they are idle: a switch waits for them."""
        for name, floor in floors.items():
            self._levels.lift(f"{job}.{name}", floor)

    def _keep_level(self, name: str, source: Source, inboxes: Sequence[Inbox]) -> None:
        """Keep the partitions of a source level that all live here."""
        description, settings = source
        self._levels.add(name, inboxes, settings, inboxes[description.lasting :])

    def grow(self, job: str, folder: Path, partitions: Mapping[str, int]) -> None:
        """Give sources of a job more partitions, which all live here; again changes nothing.

        Those who send meanwhile get no answer, and ask again.

        Raises:
            JournalError: A journal cannot be opened.
        """
        with self._guard:
            opened = self._jobs.get(job)
            if opened is None:
                return
            for name, one in declared_inboxes(folder).items():
                before = opened.sources.get(name, ())
                if 0 < len(before) < (wanted := partitions.get(name, 0)):
                    opened.sources[name] = self._reopen(f"{job}.{name}", one, before, wanted)

    def _reopen(
        self, name: str, source: Source, before: Sequence[Inbox], partitions: int
    ) -> list[Inbox]:
        """Close the inboxes of a source, let its journal grow, and open all of them."""
        paused = any(inbox.paused for inbox in before)
        self._levels.remove(name)
        for inbox in before:
            inbox.close()
        try:
            source = _grown({name: source}, {name: partitions}, self._clock)[name]
        except (JournalError, OSError) as error:
            # It goes on as it was, and the next start tries again.
            _log.error("the journal of %s could not grow: %s", name, error)
        with contextlib.ExitStack() as stack:
            inboxes = self._opened(source, stack)
            stack.pop_all()
        for inbox in inboxes if paused else ():
            inbox.pause()
        self._publish(name, inboxes, source[1], ())
        self._keep_level(name, source, inboxes)
        return inboxes

    def reduce(self, job: str, sources: Collection[str]) -> None:
        """Release the inboxes of sources that a job no longer has; their journals stay."""
        with self._guard:
            opened = self._jobs.get(job)
            if opened is None:
                return
            names = [name for name in opened.sources if name not in sources]
            gone = {name: opened.sources.pop(name) for name in names}
            landings = {name: opened.landings.pop(name) for name in gone if name in opened.landings}
            self._withdraw(job, gone)
        JobInboxes(job, self.address, gone, landings=landings).close()

    def _withdraw(self, job: str, sources: Iterable[str]) -> None:
        for name in sources:
            self._listener.sources.withdraw(f"{job}.{name}")
            self._levels.remove(f"{job}.{name}")

    def _landing(
        self, job: str, source: str, folder: Path, settings: SourceSettings, secret: bytes
    ) -> Landing:
        """Return where runtimes send to a source; rows go by key to the inboxes of all engines."""
        keys = None if self._security is None else self._security.keys
        return Landing(
            f"{job}.{source}",
            _reachable(settings, self.address),
            folder,
            connect=connecting(self.address, keys),
            highest=lambda sender: self.job(job).highest(source, sender),
            clock=self._clock,
            secret=secret,
            open_without_keys=self._open,
        )

    def _follow(
        self, job: str, opened: JobInboxes, found: Mapping[str, Source], places: Places
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

    def close_job(self, job: str) -> None:
        """Write what was taken, and release a job's inboxes."""
        with self._guard:
            opened = self._jobs.pop(job, None)
            if opened is None:
                return
            self._withdraw(job, opened.sources)
        opened.close()

    def job(self, job: str) -> JobInboxes:
        """Return the inboxes of a job; if it is not open, it has none."""
        with self._guard:
            return self._jobs.get(job) or JobInboxes(job, self.address)

    def producers(self, job: str) -> tuple[ProducerStatus, ...]:
        """Return the producers with quotas that have sent to a job."""
        return producer_statuses(self._listener.metering.statistics(), job)

    def away(self, job: str) -> tuple[str, ...]:
        """Return the other engines of a job that do not answer."""
        return self.job(job).away(self._of)

    # the ends of streams

    def end(self, job: str) -> None:
        """End all partitions, now or as soon as the disk lets us: `tick` goes on with it."""
        self.job(job).begin_ending()
        self.tick()

    def tick(self) -> None:
        """Go on with ends that are not written, and try again where a disk has refused."""
        with self._guard:
            jobs = list(self._jobs.values())
        for opened in jobs:
            opened.tick(listen=self._started)

    def ending(self) -> bool:
        """Tell whether ends are still to be written."""
        with self._guard:
            return any(opened.ending for opened in self._jobs.values())

    def close(self) -> None:
        """Write what was taken, release all inboxes, and stop listening."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._audit.close)
            stack.callback(self._listener.close)
            with self._guard:
                jobs, self._jobs = self._jobs, {}
            for opened in jobs.values():
                stack.callback(opened.close)
            stack.callback(self._levels.close)


def _reachable(settings: SourceSettings, at: Address) -> SourceSettings:
    """Return settings whose runtimes, if they may be anywhere, are reached as the inboxes are."""
    if settings.runtimes != ":0":
        return settings
    ip = f"[{at.ip}]" if ":" in at.ip else at.ip
    return msgspec.structs.replace(settings, runtimes=f"{ip}:0")


def _wanted(found: Mapping[str, Source], only: Collection[str] | None) -> dict[str, Source]:
    return {name: one for name, one in found.items() if only is None or name in only}


def _grown(
    found: Mapping[str, Source], partitions: Mapping[str, int], clock: Clock
) -> dict[str, Source]:
    """Give journals that have fewer partitions more of them."""
    return {
        name: (ingest.grow(description, settings, partitions.get(name, 0), clock), settings)
        for name, (description, settings) in found.items()
    }


def _check_places(found: Mapping[str, Source], places: Places) -> None:
    """Refuse to spread a journal over engines if some of its partitions would be nobody's."""
    for name, (description, _) in found.items():
        if name in places and (description.earlier or len(places[name]) != description.partitions):
            if description.earlier:
                made = f"and was made with {description.lasting}"
            else:
                made = f"not {len(places[name])}"
            fact = f'the journal of source "{name}" has {description.partitions} partitions, {made}'
            hint = "on several engines they stay as they were made: deploy under another name"
            raise SchemaConflict(fact, hint=hint)
