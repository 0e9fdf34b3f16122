"""Results that go to a source of another flow: from Spark to inboxes, on this host or elsewhere.

    tasks                 the driver                          the inboxes
    stage, over links --> decide: one synced record, here --> publish, until all partitions have it

Promised: each epoch once, in all partitions or in none, whoever dies meanwhile. Not promised: that
it appears everywhere at the same moment; a reader of two partitions may see it in one before the
other. The rows of an epoch are sorted by the receiving source's time, so that none makes another of
the same epoch late; between epochs, and beside other senders, that source's lateness holds as for
everybody.

The record is what decides: before it, whatever is staged there is ignored, and is removed there
when the next epoch arrives; after it, exactly what it names is published, by whoever runs the group
next. If the job has a log, its entry there decides, and the record is a copy. While the other side
is away nothing is lost and nothing fails: the group waits, and says so in its log.

    groups/<group>/outboxes/<sink>/<checkpoint>-<batch>.json     decided
    groups/<group>/outboxes/<sink>/<checkpoint>-<batch>.done     in all partitions
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, functions

from millstream.connectors.outbox import Outbox
from millstream.errors import AlreadyWriting, LinkClosed, MillstreamError, NoAnswer, SchemaConflict
from millstream.journal import Staged
from millstream.links import envelope
from millstream.links.client import Client
from millstream.links.delivery import Delivery
from millstream.links.keys import KeyPair, read_key, read_public
from millstream.links.link import schema_of
from millstream.links.network import Address
from millstream.spark.daemon import settle
from millstream.spark.failpoints import passing
from millstream.spark.io.staging import run_through
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import Unwritable, from_json, sound

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")

#: How long one try takes at most: a run that is stopped waits for no longer.
TRY_S: Final = 5.0
#: How long a task waits for an inbox before it is reported to the driver.
TASK_S: Final = 60.0
_TOLD_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the inboxes are, with the key that the driver and its tasks connect with."""

    where: str | Path | Address
    key: KeyPair | None = field(default=None, repr=False)
    server: bytes | None = None

    def connect(self, *, sender: str | None = None, timeout: float = TRY_S) -> Client:
        return Client(self.where, sender=sender, key=self.key, server=self.server, timeout=timeout)


class InboxTarget(Target):
    """The inboxes of a source of another flow; see the module's first lines."""

    decides: ClassVar[bool] = True

    def __init__(self, target: Outbox, context: SinkContext) -> None:
        """Write to `target`; keep decisions in the group's folder."""
        self._target = target
        self._context = context
        self._name = name = context.sink
        self._place = _place(target, context.root)
        self._records = context.folder / "outboxes" / name
        self._decider = f"outbox:{context.owner}"
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._ending: threading.Thread | None = None

    # writing

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        from millstream.spark.io.checkpoint import write_whole  # not wanted in executors

        record = self._records / f"{epoch.checkpoint}-{epoch.batch:09d}.json"
        if record.exists() or _done(record).exists():
            # A repeated epoch: what was decided stands, whatever would be staged now.
            run_through(frame)
            if record.exists():
                self._until(lambda: self._publish(record))
            return 0
        sender = self._named(epoch.sender)
        staged, refused = self._stage(frame, sender, epoch.batch)
        passing("staged")
        self._context.refuse(refused, epoch)
        if staged:
            decision = {
                "sender": sender,
                "epoch": epoch.batch,
                "staged": [asdict(one) for one in staged],
            }
            content = epoch.decide(self._decider, json.dumps(decision))
            passing("logged-decision")
            if content is not None:
                write_whole(record, content)
        passing("decided")
        if record.exists():
            self._until(lambda: self._publish(record))
        passing("published")
        # Spark repeats the last batch only.
        _done(self._records / f"{epoch.checkpoint}-{epoch.batch - 2:09d}.json").unlink(
            missing_ok=True
        )
        self._rest()
        return sum(one.rows for one in staged)

    def _named(self, sender: str) -> str:
        """Return a sender's name: it begins with that of our key, unless it began without it."""
        key, marker = self._place.key, self._records / "named by key"
        if key is None or (not marker.exists() and any(self._records.glob("*-*"))):
            return f"{sender}/{self._name}"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        return f"{key.name}/{sender}/{self._name}"

    def _stage(
        self, frame: DataFrame, sender: str, epoch: int
    ) -> tuple[list[Staged], list[Unwritable]]:
        while True:
            card = self._until(self._card)
            rows = routed(frame, card, self._target.source)
            work = StageInbox(self._reached(card), self._target.source, sender, epoch, TASK_S)
            found = rows.mapInArrow(work, StageInbox.ANSWER).collect()
            silent = [row.silent for row in found if row.silent]
            if not silent:
                staged = [Staged(**json.loads(row.staged)) for row in found if row.staged]
                return staged, from_json(row.refused for row in found)
            _log.warning(
                'sink "%s" stages epoch %s again: a task got no answer: %s',
                self._name,
                epoch,
                silent[0],
            )
            self._stopping.wait(1.0)

    def _card(self) -> envelope.SourceInfo:
        """Ask all inboxes whether they are there: a task that waits for one holds a core."""
        client, source = self._opened(), self._target.source
        card = client.info(source)
        places: dict[Any, int] = {place: number for number, place in enumerate(card.inboxes)}
        for partition in places.values():
            answer = client.ask(source, partition, lambda n: envelope.Ask(n, source), timeout=TRY_S)
            assert isinstance(answer, envelope.SourceInfo)
            card = answer
        return card

    def _reached(self, card: envelope.SourceInfo) -> Place:
        """Return where tasks find the inboxes: they do not look for the host of a data folder."""
        if not isinstance(self._place.where, Path):
            return self._place
        first = card.inboxes[0]
        return Place(Address(first.ip, first.port, first.node, first.folder))

    def _publish(self, record: Path) -> None:
        decision = json.loads(record.read_text())
        staged = [Staged(**one) for one in decision["staged"]]
        delivery = Delivery(
            self._opened(),
            self._target.source,
            decision["sender"],
            decision["epoch"],
            timeout=TRY_S,
        )
        delivery.publish(staged)
        # Not synced: if it is forgotten, publishing again finds the epoch in every partition.
        record.rename(_done(record))

    def recover(self) -> None:
        self._records.mkdir(parents=True, exist_ok=True)
        self._take_over()
        for record in sorted(self._records.glob("*.json")):
            try:
                self._publish(record)
            except _AWAY as error:
                # Spark runs this batch again, since it was not committed, and that waits for as
                # long as it takes.
                _log.warning(
                    'sink "%s" has an epoch that waits for %s: %s',
                    self._name,
                    self._place.where,
                    error,
                )
                return

    def _take_over(self) -> None:
        """Decide here what the job's log has decided: what it names is staged in the inboxes."""
        from millstream.spark.io.checkpoint import write_whole  # as above

        for checkpoint, one in self._context.standing(self._decider).items():
            record = self._records / f"{checkpoint}-{one.epoch:09d}.json"
            if not record.exists() and not _done(record).exists():
                write_whole(record, one.content)

    # ending

    def end(self, sender: str, _: int) -> None:
        """End the source there, if the flow says so; goes on behind while it does not answer."""
        if self._target.end and self._ending is None:
            self._ending = threading.Thread(
                target=self._end, args=(sender,), name="outbox end", daemon=True
            )
            self._ending.start()
            self._ending.join(TRY_S)

    def _end(self, sender: str) -> None:
        def attempt() -> None:
            # A sender of its own, whose only event has the number 0: ending twice changes nothing.
            with self._place.connect(sender=self._named(sender)) as client:
                client.end(self._target.source)

        try:
            self._until(attempt)
        except LinkClosed:
            _log.warning(
                'sink "%s" has not ended "%s": the next run does', self._name, self._target.source
            )
        except MillstreamError:
            _log.exception('sink "%s" could not end "%s"', self._name, self._target.source)

    # waiting

    def interrupt(self) -> None:
        """Wait for nobody any more: the run is being stopped, and the next one goes on."""
        if self._ending is not None:
            self._ending.join(TRY_S)
        self._stopping.set()

    def close(self) -> None:
        """Let go of the links."""
        self.interrupt()
        if self._client is not None:
            self._client.abort()
            self._client = None

    def _opened(self) -> Client:
        if self._client is None:
            self._client = self._place.connect()
        return self._client

    def _rest(self) -> None:
        """Release inboxes that this run hosted for an epoch, so that their flow can open them."""
        if self._client is not None and self._client.hosting:
            self._client.close()
            self._client = None

    def _until(self, attempt: Callable[[], _Found]) -> _Found:
        """Try until there is an answer."""
        told = -_TOLD_EVERY_S
        while not self._stopping.is_set():
            try:
                return attempt()
            except _AWAY as error:
                if time.monotonic() - told >= _TOLD_EVERY_S:
                    told = time.monotonic()
                    _log.warning('sink "%s" waits for %s: %s', self._name, self._place.where, error)
                self._stopping.wait(0.2)
        raise LinkClosed(f'sink "{self._name}" was stopped while it waited for {self._place.where}')


#: Errors that mean: not now.
_AWAY: Final = (NoAnswer, AlreadyWriting)


def _done(record: Path) -> Path:
    return record.with_suffix(".done")


def _place(target: Outbox, root: Path) -> Place:
    where = target.address if target.address.startswith("tcp://") else root / target.address
    if target.key_file is None or target.server_file is None:
        return Place(where)
    return Place(
        where,
        read_key(str(root / target.key_file)),
        read_public(str(root / target.server_file)).public,
    )


def routed(frame: DataFrame, card: envelope.SourceInfo, source: str) -> DataFrame:
    """Return the rows of each partition in one task, in the order of the receiving source's time.

    Raises:
        SchemaConflict: That source has no such columns, or its time or key would be null in every
            row.
    """
    _check_columns(frame.columns, card, source)
    count = len(card.inboxes)
    if card.key is None or count == 1:
        spread = frame.repartition(count)
    else:
        place = functions.pmod(
            functions.xxhash64(functions.col(_quoted(card.key)).cast("string")),
            functions.lit(count),
        ).cast("int")
        spread = frame.repartitionById(count, place)
    if card.time is None:
        return spread
    return spread.sortWithinPartitions(functions.col(_quoted(card.time)))


def _check_columns(columns: Sequence[str], card: envelope.SourceInfo, source: str) -> None:
    known = schema_of(card).names
    unknown = [name for name in columns if name not in known]
    if unknown:
        msg = f'results have column "{unknown[0]}", which "{source}" does not have'
        hint = f"its columns are {', '.join(known)}; choose and rename with a sql stage"
        raise SchemaConflict(msg, hint=hint)
    for what, name in (("time", card.time), ("key", card.key)):
        if name is not None and name not in columns:
            msg = f'results have no column "{name}", which is the {what} of "{source}"'
            hint = f"they have {', '.join(columns)}; choose and rename with a sql stage"
            raise SchemaConflict(msg, hint=hint)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def open_outbox(spec: Outbox, context: SinkContext) -> InboxTarget:
    """Open the inboxes that a sink writes to."""
    return InboxTarget(spec, context)


# In the executors


@dataclass(frozen=True, slots=True)
class StageInbox:
    """Stage rows in the inboxes of a source; the driver waits for those that do not answer."""

    #: What is staged, a row that is not, or why there was no answer.
    ANSWER: ClassVar[str] = "staged string, refused string, silent string"

    place: Place
    source: str
    sender: str
    epoch: int
    limit_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        context = TaskContext.get()
        client = _client(self.source, self.place, self.limit_s)
        delivery = Delivery(client, self.source, self.sender, self.epoch, timeout=self.limit_s)
        refused: list[Unwritable] = []
        answers: list[tuple[str | None, ...]]
        try:
            number = 0 if context is None else context.partitionId()
            staged = delivery.stage(self._sound(batches, refused), number)
            answers = [(json.dumps(asdict(one)), None, None) for one in staged]
            answers += [(None, one.to_json(), None) for one in refused]
        except NoAnswer as error:
            for _ in batches:
                """Spark expects a task to read its rows."""
            answers = [(None, None, str(error))]
        if answers:
            columns = [pa.array(column, pa.string()) for column in zip(*answers, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=["staged", "refused", "silent"])

    def _sound(
        self, batches: Iterator[pa.RecordBatch], refused: list[Unwritable]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, found = sound(batch)
            refused += found
            yield rows


_clients: dict[str, tuple[Place, Client]] = {}


def _client(source: str, place: Place, limit_s: float) -> Client:
    """Return this process's client for a source, which later tasks use too."""
    known = _clients.get(source)
    if known is None or known[0] != place:
        if known is not None:
            known[1].abort()
        known = _clients[source] = (place, place.connect(timeout=limit_s))
    return known[1]
