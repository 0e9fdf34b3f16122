"""The partitions of a job that live on other engines, followed here because its driver does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from millstream.clock import Clock
from millstream.engine.jobs.status import Place, Places
from millstream.errors import EngineAway
from millstream.ingest import SourceSettings
from millstream.journal import Description
from millstream.links.follower import Follower, FollowerStatistics
from millstream.links.host import read_address
from millstream.links.listener import Security
from millstream.links.network import Address


class Following:
    """The followers of one job. Any thread may call."""

    def __init__(
        self,
        job: str,
        sources: Mapping[str, tuple[Description, SourceSettings]],
        places: Places,
        *,
        node: int,
        security: Security | None,
        clock: Clock,
    ) -> None:
        """Follow, once it is started, what lives elsewhere.

        Args:
            job: Its name.
            sources: Its inboxes, as they are declared here.
            places: Where all their partitions are.
            node: Which engine this is.
            security: Our key, which the other engines have too.
            clock: Tells when rows have come.
        """
        keys = None if security is None else security.keys
        server = None if keys is None else keys.public
        self._followers: dict[str, list[Follower]] = {name: [] for name in sources}
        for name, (description, _) in sources.items():
            for partition, place in enumerate(places.get(name, ())):
                if place.node != node:
                    original = f"{job}.{name}", partition, _where(place)
                    one = Follower(
                        description.path, *original, keys=keys, server=server, clock=clock
                    )
                    self._followers[name].append(one)

    def start(self) -> None:
        for follower in self._all:
            follower.start()

    @property
    def _all(self) -> list[Follower]:
        return [follower for followers in self._followers.values() for follower in followers]

    @property
    def empty(self) -> bool:
        """Whether nothing lives elsewhere."""
        return not self._all

    def of(self, source: str) -> list[Follower]:
        """Return those of a source."""
        return self._followers.get(source, [])

    def meet(self, timeout: float) -> None:
        """Wait until it is known of every partition where it begins: before that a driver cannot.

        Raises:
            EngineAway: That takes longer.
        """
        until = time.monotonic() + timeout
        for follower in self._all:
            if not follower.met(max(0.0, until - time.monotonic())):
                found = follower.statistics()
                raise EngineAway(
                    f'partition {found.partition} of "{found.source}" at {found.original} '
                    "was not reached yet",
                    hint=found.error or "is the engine running there?",
                )

    def catch_up(self, timeout: float) -> bool:
        """Wait until all that the others have is here; False if that takes longer."""
        until = time.monotonic() + timeout
        behind = [one for one in self._all if not one.catch_up(max(0.0, until - time.monotonic()))]
        return not behind

    def statistics(self) -> tuple[FollowerStatistics, ...]:
        return tuple(follower.statistics() for follower in self._all)

    def close(self) -> None:
        """Stop; the copies stay."""
        for follower in self._all:
            follower.stop()


def _where(place: Place) -> Callable[[], Address]:
    address = Address(place.ip, place.port, place.node, place.folder)
    return partial(_found, address)


def _found(address: Address) -> Address:
    """Return where an engine is: on this host it notes its port, elsewhere it has to keep it."""
    moved = None if address.folder is None else read_address(Path(address.folder))
    return address if moved is None or moved.ip != address.ip else moved
