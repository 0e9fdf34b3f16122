"""Where a client finds sources: the links to their inboxes, and what they hold."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidAddress, LinkBroken, NoAnswer, NotThere, WriterBroken
from millstream.links import envelope
from millstream.links.claims import above, again
from millstream.links.keys import KeyPair
from millstream.links.link import Link, open_link
from millstream.links.network import Address, Transport, choose, own_ips
from millstream.links.registered import REGISTERED
from millstream.links.target import no_room
from millstream.links.transport import Loop

if TYPE_CHECKING:
    from millstream.links.host import Found

_log = logging.getLogger(__name__)
ASK_S: Final = 2.0
_PAUSE_S: Final = 0.02
_HOST_AND_PORT: Final = re.compile(r"[^/]+:[0-9]{1,5}")


class Directory:
    """The links of a client, opened when they are first asked for.

    Args:
        loop: Reads and writes the sockets.
        where: An address, or the data folder of flows on this host; the inboxes of one that nobody
            runs are opened.
        key: Our own key, if the other side wants keys.
        server: The other side's public key.
        timeout: How long to look for a source, in seconds.
        reads: Whether the client is an engine's own, for sources that nobody else sends to.
    """

    def __init__(
        self,
        loop: Loop,
        where: str | PathLike[str] | Address,
        key: KeyPair | None,
        server: bytes | None,
        timeout: float,
        *,
        reads: bool = False,
    ) -> None:
        self._loop, self._where, self._timeout, self._reads = loop, where, timeout, reads
        self._key, self._server = key, server
        self._links: dict[Address | str, Link] = {}
        self._hosts: dict[str, Found] = {}

    @property
    def hosting(self) -> bool:
        """Whether nobody else had the inboxes, and they were opened here."""
        return any(found.host is not None for found in self._hosts.values())

    @property
    def links(self) -> list[Link]:
        return list(self._links.values())

    @property
    def hosts(self) -> list[Found]:
        return list(self._hosts.values())

    def find(self, name: str) -> envelope.SourceInfo:
        """Return what a source holds, and where its inboxes are.

        Raises:
            NoAnswer: It took too long.
            NotThere: The engines read it, and nobody sends to it.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            link = self._first_link(name)
            with contextlib.suppress(NoAnswer):
                asked = link.call(lambda n: envelope.Ask(n, name))
                answer = result(asked, time.monotonic() + ASK_S, name)
                assert isinstance(answer, envelope.SourceInfo)
                if answer.read and not self._reads:
                    hint = "its engines read it"
                    raise NotThere(f'"{name}" takes no events from outside', hint=hint)
                if answer.notice is not None:
                    _log.warning("%s: %s", name, answer.notice)
                return answer
            if time.monotonic() > deadline:
                raise self.no_answer()
            self._loop.soon(link.renew)
            time.sleep(_PAUSE_S)

    def claim(self, info: envelope.SourceInfo, sender: str) -> int:
        """Take a sender's name over at all inboxes that answer, and return our incarnation.

        The others hear of it with the first rows. 0: they are of a version that does not know it.

        Raises:
            NoAnswer: None of them answers.
        """
        deadline = time.monotonic() + self._timeout
        links = [self.link(place, info.source) for place in [*info.inboxes, *info.later]]
        mine = above(0)
        while True:
            asked = [
                link.call(partial(_claim, info.source, sender, number, mine))
                for number, link in enumerate(links)
            ]
            found = _answers(asked, time.monotonic() + ASK_S)
            if found and None in found:
                return 0
            higher = again(mine, [one for one in found if one is not None])
            if higher is None:
                return mine
            if time.monotonic() > deadline:
                raise self.no_answer()
            if not found:
                for link in links:
                    self._loop.soon(link.renew)
                time.sleep(_PAUSE_S)
            mine = higher

    def no_answer(self) -> NoAnswer:
        return NoAnswer(
            f'no response from "{self._where}"',
            hint="is the flow or the engine running there? If it has keys, "
            "give ours (key) and its own (server)",
        )

    def link(self, place: envelope.Place, source: str) -> Link:
        """Return the link to an inbox of a source."""
        address = Address(place.ip, place.port, place.node, place.folder)
        found = self._hosts.get(source.partition(".")[0])
        if found is not None and address.folder == str(found.folder):
            # The place is where the host was: by now another one may listen, elsewhere.
            return self._opened(f"flow:{found.folder.name}", found.address)
        asked = self._links.get(Address(place.ip, place.port))
        if asked is not None and asked.transport is Transport.TCP is _way_to(address):
            return asked  # the connection over which we have asked where it is
        return self._opened(address, lambda: address)

    def _first_link(self, name: str) -> Link:
        if isinstance(self._where, Address) or str(self._where).startswith("tcp://"):
            where = self._where
            address = where if isinstance(where, Address) else Address.parse(str(where))
            return self._opened(address, lambda: address)
        text = str(self._where)
        if text.startswith(("http://", "https://")):
            from millstream.links.engine_address import address_at  # few need it

            self._where = address_at(text)
            return self._first_link(name)
        if "://" in text or (_HOST_AND_PORT.fullmatch(text) and not Path(text).exists()):
            hint = "tcp://host:port, an engine's http://host:port, or the data folder of a flow"
            raise InvalidAddress(f'"{text}" is not an address', hint=hint)
        flow = name.partition(".")[0]
        if flow not in self._hosts:
            from millstream.links.host import find  # whoever has an address hosts nothing

            self._hosts[flow] = find(self._where, name, timeout=self._timeout)
        return self._opened(f"flow:{flow}", self._hosts[flow].address)

    def _opened(self, name: Address | str, where: Callable[[], Address]) -> Link:
        if name not in self._links:
            self._links[name] = open_link(self._loop, where, keys=self._key, server=self._server)
        return self._links[name]


def _way_to(address: Address) -> Transport:
    return choose(address, own_ips=own_ips(), registered=REGISTERED)


def _claim(source: str, sender: str, partition: int, mine: int, request: int) -> envelope.Request:
    return envelope.Ask(request, source, sender, partition, mine)


def _answers(asked: list[Future[envelope.Answer]], deadline: float) -> list[int | None]:
    """Return whose the name is, from those who answer in time."""
    found = []
    for future in asked:
        with contextlib.suppress(NoAnswer, LinkBroken, WriterBroken, Late):
            answer = future.result(max(0.0, deadline - time.monotonic()))
            assert isinstance(answer, envelope.SourceInfo)
            found.append(answer.incarnation)
    return found


def result(
    future: Future[Any],
    deadline: float,
    target: str,
    late: Callable[[], NoAnswer] | None = None,
) -> Any:
    """Return what a future about a source holds.

    Raises:
        NoAnswer: It is not there at the deadline.
    """
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except Late:
        if future.done():
            return future.result()
        raise (no_room(target) if late is None else late()) from None
