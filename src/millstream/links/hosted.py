"""The sources whose inboxes stand behind a listener, and who may send to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import NotAllowed, NotThere
from millstream.journal import Description, journal_at
from millstream.links import envelope
from millstream.links.inbox import Inbox
from millstream.links.network import Address


@dataclass(frozen=True, slots=True)
class _Hosted:
    """A source whose inboxes, or some of them, are here."""

    description: Description
    key: str | None
    inboxes: Mapping[int, Inbox]
    places: Sequence[Address]
    allowed: frozenset[str] | None
    read: bool


class HostedSources:
    """Sources by name, "flow.source"; `address` is the listener's."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sources: dict[str, _Hosted] = {}
        #: Returns what senders to a source should know, though their rows are taken.
        self.notice: Callable[[str], str | None] = lambda _source: None
        #: Returns why a source is not here, and what helps, if that is known.
        self.absent: Callable[[str], tuple[str, str] | None] = lambda _source: None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def host(
        self,
        source: str,
        inboxes: Iterable[Inbox],
        *,
        key: str | None = None,
        places: Sequence[Address] | None = None,
        allowed: Iterable[str] | None = None,
        read: bool = False,
    ) -> None:
        """Let a source's inboxes take requests.

        Args:
            source: Its name, "flow.source".
            inboxes: Those of its partitions that are here.
            key: The column that decides a row's partition.
            places: The address of every partition's inbox; None: all are here.
            allowed: The producers that may send over TCP, by name; None: all that are known.
            read: Whether engines read it: programs may not send.
        """
        here = {inbox.partition: inbox for inbox in inboxes}
        description = next(iter(here.values())).described()
        found = list(places) if places is not None else [self._address] * description.partitions
        names = None if allowed is None else frozenset(allowed)
        self._sources[source] = _Hosted(description, key, here, found, names, read)

    def read(self, source: str) -> bool:
        """Tell whether engines read a source, and nobody sends to it."""
        return source in self._sources and self._sources[source].read

    def withdraw(self, source: str) -> None:
        """Take no more requests for a source."""
        self._sources.pop(source, None)

    def info(
        self,
        source: str,
        request: int = 0,
        producer: str | None = None,
        *,
        incarnation: int | None = None,
    ) -> envelope.SourceInfo:
        """Return what a source holds and where its inboxes are.

        Raises:
            NotThere: There is no such source here.
            NotAllowed: The producer is not on its list.
        """
        hosted = self._find(source, producer)
        description = journal_at(hosted.description.path).describe()
        places = [envelope.Place(one.ip, one.port, one.node, one.folder) for one in hosted.places]
        return envelope.SourceInfo(
            request=request,
            source=source,
            schema=description.schema.serialize().to_pybytes(),
            version=description.version,
            time=description.time,
            key=hosted.key,
            inboxes=places[: description.lasting],
            ended=all(inbox.progress().ended for inbox in hosted.inboxes.values()),
            later=places[description.lasting :],
            incarnation=incarnation,
            notice=self.notice(source),
            read=hosted.read,
        )

    def inbox(self, source: str, partition: int, producer: str | None = None) -> Inbox:
        """Return an inbox.

        Raises:
            NotThere: It is not here.
            NotAllowed: The producer is not on its list.
        """
        inbox = self._find(source, producer).inboxes.get(partition)
        if inbox is None:
            msg = f'partition {partition} of "{source}" is not at {self._address}'
            raise NotThere(msg, hint="ask where it is")
        return inbox

    def _find(self, source: str, producer: str | None) -> _Hosted:
        hosted = self._sources.get(source)
        if hosted is None:
            known = ", ".join(sorted(self._sources)) or "none"
            why, hint = self.absent(source) or ("", f"its sources: {known}")
            msg = f'there is no source "{source}" at {self._address}'
            raise NotThere(f"{msg}: {why}" if why else msg, hint=hint)
        allowed = hosted.allowed
        if producer is not None and allowed is not None and producer not in allowed:
            hint = "ask its owner to list the key"
            raise NotAllowed(f'producer "{producer}" may not send to "{source}"', hint=hint)
        return hosted
