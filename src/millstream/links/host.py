"""The host of a flow's inboxes: the process that has their partitions open; how it is found.

    .millstream/<flow>/inboxes.json      where it listens
    .millstream/<flow>/inbox_<port>      its IPC socket

`millstream run` hosts the inboxes of its flow. If nobody does, a client that is given the data
folder hosts them itself for as long as it is open; another client that comes meanwhile connects to
it, and takes over when it goes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.clock import Clock, SystemClock
from millstream.errors import AlreadyWriting, NotThere
from millstream.ingest import SourceSettings, declared
from millstream.journal import Description
from millstream.links.inbox import Inbox, InboxStatistics
from millstream.links.levels import Levels
from millstream.links.listener import Listener, Security
from millstream.links.network import Address, ipc_path
from millstream.links.transport import listening
from millstream.storage import Folder

_log = logging.getLogger(__name__)
_FILE: Final = "inboxes.json"
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and who may send."""

    network: str | None = None
    port: int = 0
    security: Security | None = None
    open_without_keys: bool = False


class _Note(msgspec.Struct, frozen=True):
    ip: str
    port: int
    node: int
    pid: int


Source = tuple[Description, SourceSettings]


class Host:
    """All inboxes of a flow, open in this process."""

    def __init__(
        self,
        folder: Path,
        sources: Mapping[str, Source],
        *,
        listening_at: Listening | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the inboxes of `sources`, by their names in the flow; its data are in `folder`.

        Raises:
            AlreadyWriting: Another process hosts them.
        """
        self._folder = folder
        self._clock = clock or SystemClock()
        self._inboxes: dict[str, list[Inbox]] = {}
        self._settings = {name: settings for name, (_, settings) in sources.items()}
        self._levels = Levels(self._clock)
        self._listener: Listener | None = None
        try:
            for name, (description, settings) in sources.items():
                self._inboxes[name] = []
                for partition in range(description.partitions):
                    self._inboxes[name].append(
                        Inbox(description, partition, settings, clock=self._clock)
                    )
            self._listen(listening_at or Listening())
        except BaseException:
            self.close()
            raise
        for name, (description, settings) in sources.items():
            inboxes = self._inboxes[name]
            self._levels.add(name, inboxes, settings, inboxes[description.lasting :])

    def _listen(self, how: Listening) -> None:
        listener = self._listener = Listener(
            self._folder,
            network=how.network,
            # The port of before, if it is free: producers need not look for us after a restart.
            port=how.port or last_port(self._folder),
            security=how.security,
            open_without_keys=how.open_without_keys,
        )
        for name, inboxes in self._inboxes.items():
            settings = self._settings[name]
            listener.sources.host(
                f"{self._folder.name}.{name}", inboxes, key=settings.key, allowed=settings.producers
            )
        listener.start()
        note_address(self._folder, listener.address)

    @property
    def address(self) -> Address:
        assert self._listener is not None
        return self._listener.address

    def inbox(self, source: str, partition: int = 0) -> Inbox:
        return self._inboxes[source][partition]

    def statistics(self) -> dict[str, list[InboxStatistics]]:
        """Return the numbers of each source's inboxes."""
        return {
            name: [inbox.statistics() for inbox in inboxes]
            for name, inboxes in self._inboxes.items()
        }

    def lift(self, source: str, floor: int) -> None:
        """Let a source pass its time on to `floor` when all of it is idle."""
        self._levels.lift(source, floor)

    def level(self) -> int | None:
        """Give idle partitions the floors that are due; return when the next can become idle.

        What was staged and never published is removed, too.
        """
        for inbox in (inbox for inboxes in self._inboxes.values() for inbox in inboxes):
            inbox.epochs.expire(paused=inbox.paused)
        return self._levels.level()

    def close(self) -> None:
        """Write what was taken, and release the inboxes."""
        with contextlib.ExitStack() as stack:  # all of them, whatever one of them says
            if self._listener is not None:
                stack.callback(self._listener.close)
            for inboxes in self._inboxes.values():
                for inbox in inboxes:
                    stack.callback(inbox.close)
            stack.callback(self._levels.close)


# finding


@dataclass(slots=True)
class Found:
    """Who hosts the inboxes of a flow: another process, or this one, if there was nobody."""

    folder: Path
    timeout: float
    host: Host | None = None
    _last: Address | None = field(default=None)
    #: One thread at a time: two that find nobody would close each other's.
    _guard: Any = field(default_factory=threading.RLock)  # the type of a lock has no name

    def address(self) -> Address:
        """Return where the inboxes are now; open them if nobody has them.

        Raises:
            NotThere: The flow has no inboxes.
            AlreadyWriting: Someone has them and does not listen.
        """
        with self._guard:
            until = time.monotonic() + (self.timeout if self._last is None else 0.0)
            while (at := read_address(self.folder)) is None:
                try:
                    self._open()
                except AlreadyWriting:
                    if time.monotonic() >= until:
                        if self._last is None:
                            raise
                        return self._last
                    time.sleep(_PAUSE_S)
            self._last = at
            return at

    def _open(self) -> None:
        self.close()
        self.host = Host(self.folder, declared_inboxes(self.folder))

    def close(self) -> None:
        """Release the inboxes, if this process has them."""
        with self._guard:
            if self.host is not None:
                self.host.close()
                self.host = None


def find(data: str | PathLike[str], target: str, *, timeout: float) -> Found:
    """Return who hosts the inbox of "flow.source" in a data folder.

    Raises:
        NotThere: There is no such source, or it takes no events from outside.
        AlreadyWriting: Someone has its journal and does not listen, for longer than `timeout`.
    """
    flow, _, source = target.partition(".")
    folder = Path(data).resolve() / flow
    known = declared_inboxes(folder)
    if source not in known:
        there = sorted(
            f"{file.parts[-4]}.{file.parts[-2]}"
            for file in Path(data).glob("*/journals/*/source.json")
        )
        make = f"millstream send {target} --flow FILE makes it, and so does millstream run"
        hint = f"{make}; there are {', '.join(there)}" if there else make
        raise NotThere(f'there is no inbox of "{target}" in {data}', hint=hint)
    found = Found(folder, timeout)
    found.address()
    return found


def declared_inboxes(folder: Path, spread: Collection[str] = ()) -> dict[str, Source]:
    """Return the sources of a flow that take events from outside, as they were declared last.

    Also those that engines read themselves, which are `spread`.
    """
    found = {}
    for file in sorted(folder.glob("journals/*/source.json")):
        with contextlib.suppress(NotThere):
            description, settings = declared(file.parent)
            if settings.inbox or file.parent.name in spread:
                found[file.parent.name] = (description, settings)
    return found


def read_address(folder: Path) -> Address | None:
    """Return where a flow's inboxes are listened for, if anybody does."""
    note = _read(folder)
    if note is None or not listening(ipc_path(folder, note.port)):
        return None
    return Address(note.ip, note.port, note.node, str(folder.resolve()))


def note_address(folder: Path, address: Address) -> None:
    """Leave word where the inboxes in this folder are listened for."""
    note = _Note(address.ip, address.port, address.node, os.getpid())
    Folder(folder).put(_FILE, msgspec.json.encode(note))


def last_port(folder: Path) -> int:
    """Return the port that was listened on in this folder before, or 0."""
    note = _read(folder)
    return 0 if note is None else note.port


def _read(folder: Path) -> _Note | None:
    try:
        return msgspec.json.decode(Folder(folder).read(_FILE) or b"", type=_Note)
    except msgspec.MsgspecError:
        return None
