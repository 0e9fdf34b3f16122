"""Requests and answers of the HTTP API, as data; jobs and engines are in `jobs.status`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from millstream.engine.jobs.status import Peer, Place, SwitchStatus
from millstream.engine.programs.contents import SHA256
from millstream.errors import SwitchRefused
from millstream.plan.drawing import Drawing
from millstream.switch.cut import WHOLE, parts
from millstream.switch.probation import Limits as ProbationLimits
from millstream.switch.probation import Trial
from millstream.switch.request import TIMEOUT, SwitchRequest

Sha256 = Annotated[str, Meta(pattern=SHA256)]
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flow to deploy: what `millstream.engine.jobs.package` has packed, in base64.

    `root` is the folder that the flow's paths count from, if it is there on the engine's host.
    """

    package: Annotated[bytes, Meta(extra_json_schema={"pattern": _BASE64})]
    name: (
        Annotated[str, Meta(min_length=1, max_length=128, pattern="^[A-Za-z][A-Za-z0-9_-]*$")]
        | None
    ) = None
    root: str | None = None
    options: dict[str, Any] = {}


class Preparation(Deployment, frozen=True, forbid_unknown_fields=True):
    """A flow to make ready; `binaries` are the SHA-256 of its programs, from node 0."""

    binaries: dict[str, Sha256] | None = None


class Beginning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the inboxes of a prepared job are, by source and partition; if its driver runs here.

    `engines` are all engines of the cluster, by their nodes.
    """

    places: dict[str, list[Place]]
    driver: bool = True
    engines: list[Peer] = []


class Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bytes that get a name."""

    sha256: Sha256


class Probation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a new version is watched, its limits, and if the old one returns beyond them."""

    seconds: Annotated[float, Meta(gt=0, le=7 * 86_400)]
    back: bool = False
    errors: Annotated[float, Meta(ge=0, le=1_000)] = 0
    dead_letters: Annotated[float, Meta(ge=0, le=1e15)] = 100
    lag_seconds: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 60.0


class Switching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version that replaces the running one: a package, as in a deployment, or the one before.

    With a `share` the package gets the results of that part of the keys; without a package the new
    version gets another share. `consent` names stages whose state may be lost, and outputs whose
    results may be repeated; `states` has the new names of states. With `since` what starts there or later is processed again. After
    `limit` seconds without a cut the switch is aborted. With `shadow` it only runs for so many
    seconds in the shadow of the running version, and is compared with it. With `until_quiet`
    sources that are idle pass their time on, so that the overlap ends without events; alone, this
    changes the switch that is going on.
    """

    package: Annotated[bytes, Meta(extra_json_schema={"pattern": _BASE64})] | None = None
    back: bool = False
    root: str | None = None
    consent: list[str] = []
    states: dict[str, str] = {}
    limit: Annotated[float, Meta(gt=0, le=86_400)] = TIMEOUT.total_seconds()
    since: Annotated[datetime, Meta(tz=True)] | None = None
    probation: Probation | None = None
    shadow: Annotated[float, Meta(gt=0, le=7 * 86_400)] | None = None
    share: Annotated[float, Meta(ge=1 / WHOLE, le=1)] | None = None
    until_quiet: bool = False

    @property
    def only_quiet(self) -> bool:
        """Whether it is about the switch that is going on."""
        new = self.package is not None or self.share is not None or self.back
        return self.until_quiet and not new

    def request(self) -> SwitchRequest:
        """Return what an engine is asked for.

        Raises:
            SwitchRefused: It is not exactly one of a package, another share, or the way back.
        """
        if self.back == (self.package is not None or self.share is not None):
            hint = 'give "package", or "share", or both; or "back": true'
            raise SwitchRefused("a switch is to a package, to another share, or back", hint=hint)
        if self.shadow is not None and self.back:
            raise SwitchRefused("a version in the shadow is a package", hint='give "package"')
        trial = None
        if (given := self.probation) is not None:
            limits = ProbationLimits(int(given.errors), int(given.dead_letters), given.lag_seconds)
            trial = Trial(given.seconds, limits, given.back)
        return SwitchRequest(
            package=self.package,
            root=self.root,
            share=None if self.share is None else parts(self.share),
            consent=tuple(self.consent),
            states=self.states,
            since=self.since,
            shadow=self.shadow is not None,
            duration=None if self.shadow is None else timedelta(seconds=self.shadow),
            timeout=timedelta(seconds=self.limit),
            trial=trial,
            until_quiet=self.until_quiet,
        )


class SwitchPlanned(msgspec.Struct, frozen=True):
    """What a switch would do: as data, as text, and the graph of the new version."""

    plan: dict[str, Any]
    text: str
    graph: Drawing | None = None
    #: When it was planned.
    at: str | None = None


class SwitchDetail(msgspec.Struct, frozen=True):
    """The switch that goes on, or the last one, and the last plan that was asked for or begun.

    The plan is kept in memory: an engine that was started again has none.
    """

    switch: SwitchStatus | None = None
    planned: SwitchPlanned | None = None


class Health(msgspec.Struct, frozen=True):
    """An engine that answers."""

    status: str = "up"


class Ready(msgspec.Struct, frozen=True):
    """An engine that can take jobs and events."""

    ready: bool
    jobs: int


class Log(msgspec.Struct, frozen=True):
    """Lines of a job's log; `next` is the place after them."""

    lines: list[str]
    next: str


class Stopping(msgspec.Struct, frozen=True):
    """An engine that ends once this is answered."""

    stopping: bool = True


class Dropped(msgspec.Struct, frozen=True):
    """Bytes that are not here any more."""

    sha256: str


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition of a journal on this engine."""

    partition: int
    begin: int
    end: int
    rows: int
    bytes: int
    segments: int
    ended: bool
    lost: int


class PartitionDetail(PartitionStatus, frozen=True):
    """A partition with its times, in microseconds since 1970, and its senders' highest numbers."""

    min_time: int | None
    running_max: int | None
    floor: int | None
    last_append_at: int | None
    highest: dict[str, int]


class ReaderStatus(msgspec.Struct, frozen=True):
    """A reader of a journal and how far behind it is."""

    reader: str
    positions: dict[str, int]
    lag: int


class JournalStatus(msgspec.Struct, frozen=True):
    """A journal in numbers."""

    name: str
    written_by: str
    time: str | None
    columns: dict[str, str]
    rows: int
    bytes: int
    partitions: list[PartitionStatus]
    readers: list[ReaderStatus]
    dead: dict[str, int]


class JournalDetail(msgspec.Struct, frozen=True):
    """A journal in detail."""

    name: str
    written_by: str
    time: str | None
    columns: dict[str, str]
    schemas: int
    partitions: list[PartitionDetail]
    readers: list[ReaderStatus]
    dead: dict[str, int]


class JournalRow(msgspec.Struct, frozen=True):
    """A row, and its position in its partition."""

    position: int
    row: dict[str, Any]


class JournalRows(msgspec.Struct, frozen=True):
    """Rows of a partition; `next` is the position after them, null at the end.

    Between `begin` and `end` lies what the partition has now; `lost` positions on this page were
    lost in a repair.
    """

    partition: int
    rows: list[JournalRow]
    next: int | None
    begin: int
    end: int
    lost: int = 0


class DamageStatus(msgspec.Struct, frozen=True):
    """Something in a journal that is not as it was written."""

    partition: int
    file: str
    offset: int
    position: int
    positions: int
    fact: str


class VerifiedJournal(msgspec.Struct, frozen=True):
    """What verifying a journal has found."""

    damages: list[DamageStatus]
    entries: int
    rows: int
    bytes: int
    lost: int
