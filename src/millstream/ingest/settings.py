"""What a source asks of its rows, kept beside its journal, where `millstream send` finds it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.clock import Clock
from millstream.errors import NotThere
from millstream.flow.sources import Intake, Payload
from millstream.ingest.checks import Rules
from millstream.ingest.feed import Idleness
from millstream.journal import Description, journal_at, journal_kept
from millstream.storage import Folder

if TYPE_CHECKING:  # a producer should not have to load what describes flows
    from millstream.flow.schema import Schema
    from millstream.flow.stages import Source

_FILE: Final = "source.json"


class SourceSettings(msgspec.Struct, frozen=True):
    """The rules of a source, as data."""

    source: str
    time: str | None
    key: str | None
    ahead: timedelta
    idle: timedelta
    lateness: timedelta
    inbox: bool = False
    producers: list[str] | None = None
    #: Where runtimes send to, host:port, and what their messages hold.
    runtimes: str | None = None
    format: Payload = "json"
    #: The nodes that may send there, with proof of the secret; None: any.
    nodes: list[str] | None = None

    @property
    def rules(self) -> Rules:
        return Rules(self.time, self.key, self.ahead)

    @property
    def idleness(self) -> Idleness:
        return Idleness(self.idle, self.lateness)


def declare(source: Source, folder: Path) -> tuple[Description, SourceSettings]:
    """Make the journal of a source, or widen it, and keep the source's rules beside it.

    One that is there keeps the partitions that it has: see `grow`.

    Raises:
        SchemaConflict: The journal holds other columns.
    """
    description = journal_kept(folder, source.address).create(
        source.schema.arrow(), partitions=source.partitions, time=source.time
    )
    intake = source.origin.intake
    options = intake or Intake()
    settings = SourceSettings(
        source=source.name,
        time=source.time,
        key=source.key,
        ahead=source.ahead,
        idle=source.idle,
        lateness=source.lateness,
        inbox=intake is not None,
        producers=None if options.producers is None else list(options.producers),
        runtimes=options.runtimes,
        nodes=None if options.nodes is None else list(options.nodes),
        format=options.format,
    )
    Folder(folder).put(_FILE, msgspec.json.encode(settings))
    return description, settings


def declare_inbox(
    name: str, schema: Schema, folder: Path, *, time: str | None
) -> tuple[Description, SourceSettings]:
    """Make the journal of an inbox that belongs to no flow, as `declare` does for a source."""
    description = journal_at(folder).create(schema.arrow(), partitions=1, time=time)
    none = timedelta(0)
    settings = SourceSettings(name, time, None, timedelta(days=1), none, none, inbox=True)
    Folder(folder).put(_FILE, msgspec.json.encode(settings))
    return description, settings


def declared(folder: Path) -> tuple[Description, SourceSettings]:
    """Return the journal of a source as `declare` has left it.

    Raises:
        JournalMissing: There is no journal.
        NotThere: It is not the journal of a source.
    """
    description = journal_at(folder).describe()
    found = Folder(folder).read(_FILE)
    if found is None:
        msg = f'the journal "{folder.name}" takes no events from outside'
        raise NotThere(msg, hint="send to a source of the flow: millstream send FLOW.SOURCE")
    return description, msgspec.json.decode(found, type=SourceSettings)


def grow(
    description: Description, settings: SourceSettings, partitions: int, clock: Clock
) -> Description:
    """Give the journal of a source more partitions, if it has fewer, and return what it is then.

    Raises:
        AlreadyWriting: Someone has it open for writing.
    """
    if description.partitions >= partitions:
        return description
    lateness = settings.lateness // timedelta(microseconds=1)
    return journal_at(description.path).grow(partitions, lateness_us=lateness, clock=clock)
