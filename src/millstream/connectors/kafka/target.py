"""Writes a topic of Kafka, each epoch once for readers of committed records.

    tasks            the driver                                the broker
    stage files -->  decide: one record, synced, here     -->  publish, in transactions

Promised to readers with `isolation.level=read_committed`: each row once, the rows of a key in their
order, and a part of an epoch (all of it, up to 32 MiB) at one moment. Readers of uncommitted records
may see rows twice after an error, with the same sender and number in their headers; so may all
readers of a sink with guarantee="at-least-once".

While no broker answers nothing is lost and nothing fails: the group waits, and its log has the reason.

    groups/<group>/topics/<sink>/staged/*.arrow                       records
    groups/<group>/topics/<sink>/epochs/<checkpoint>-<batch>.json     decided
    groups/<group>/topics/<sink>/epochs/<checkpoint>-<batch>.done     in the topic
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import ClassVar

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, StringType, StructType

from millstream.brokers import clients, topics
from millstream.connectors.kafka import epochs, staged
from millstream.connectors.kafka.avro_values import AvroValues
from millstream.connectors.kafka.decision import Decision, StagedFile
from millstream.connectors.kafka.publishing import (
    SENDER,
    SEQUENCE,
    Deliveries,
    Place,
    Publisher,
    Transactions,
)
from millstream.connectors.kafka.staged import StageRecords
from millstream.connectors.kafka.topic import KafkaTopic
from millstream.connectors.kafka.value_schema import avro_values, check_fields
from millstream.errors import BrokerAway, RunError, TopicMissing, UnknownColumn
from millstream.spark.failpoints import passing
from millstream.spark.io.lines import as_csv, as_json, column, json_of, spoilt_column, together
from millstream.spark.io.staging import run_through
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import from_json
from millstream.spark.served.borrowed import collected
from millstream.storage import Folder as Storage
from millstream.storage.disk import REAL

_log = logging.getLogger(__name__)


class TopicTarget(Target):
    """A topic of Kafka; see the module's first lines."""

    decides: ClassVar[bool] = True

    def __init__(self, spec: KafkaTopic, context: SinkContext) -> None:
        self._spec = spec
        self._context = context
        folder = context.folder / "topics" / context.sink
        self._staged = folder / "staged"
        self._decided = Storage(folder / "epochs")
        self._publishers: dict[str, Publisher] = {}
        self._place: Place | None = None
        self._values: AvroValues | None = None
        self._stopping = threading.Event()

    # before anything is written

    def prepare(self, schema: StructType) -> None:
        """Look for the topic and the columns.

        Raises:
            TopicMissing: The topic does not exist, and the flow does not ask for it to be made.
            UnknownColumn: The results have no such column.
            RunError: A column cannot be a record's value.
        """
        check_columns(self._spec, schema)
        if self._spec.format == "avro":
            self._values = avro_values(self._spec, self._context.root)
            check_fields(self._values, inside(self._spec, schema.names), self._spec.topic)
        self._known()

    def _known(self) -> Place:
        """Return the topic, which is looked for, and made if the flow asks for it, the first time."""
        if self._place is None:
            spec, link = self._spec, self._spec.connection
            try:
                clients.describe(link, spec.topic)
            except TopicMissing as error:
                if spec.partitions is None:
                    raise TopicMissing(error.message, hint=_how_to_make(spec)) from None
                topics.make(link, spec.topic, spec.partitions, {})
            if spec.guarantee == "exactly-once":
                epochs.ensure(link, spec.epochs)
            limit = int(topics.settings(link, spec.topic)["max.message.bytes"])
            names = (spec.topic, spec.epochs, limit, spec.partitioner)
            self._place = Place(self._context.sink, link, *names)
        return self._place

    # writing

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        name = f"{epoch.checkpoint}-{epoch.batch:09d}"
        publisher = self._publisher(self._sender(epoch))
        if self._is_decided(name) or publisher.published().whole(epoch.batch):
            # A repeated epoch: what was decided stands, whatever would be staged now.
            run_through(frame)
            self._publish(name)
            return 0
        if publisher.published().partly(epoch.batch):
            msg = f'a part of epoch {epoch.batch} is in topic "{self._spec.topic}", and the rest is lost'
            raise RunError(msg, hint=f"restore {self._staged.parent} from a backup")
        files = self._stage(frame, epoch, name)
        if files:
            # Whoever has decided and was replaced then finds its transactional id taken.
            epoch.decide(f"kafka:{self._context.owner}", "")
            passing("logged-decision")
            REAL.sync_folder(self._staged)
            decision = Decision.of(self._sender(epoch), epoch.batch, files)
            self._decided.put(f"{name}.json", decision.to_json())
        passing("decided")
        self._publish(name)
        passing("published")
        # Spark repeats the last batch only.
        self._decided.delete(f"{epoch.checkpoint}-{epoch.batch - 2:09d}.done")
        return sum(file.rows for file in files)

    def _stage(self, frame: DataFrame, epoch: Epoch, name: str) -> list[StagedFile]:
        limit = self._known().limit
        work = StageRecords(str(self._staged), name, limit, self._values)
        rows = records(frame, self._spec, _headers_bytes(self._sender(epoch)), limit)
        found = collected(rows, work)
        passing("staged")
        self._context.refuse(from_json(row.refused for row in found), epoch)
        return [StagedFile(row.file, row.rows, row.bytes) for row in found if row.file]

    def _sender(self, epoch: Epoch) -> str:
        return f"{epoch.job}/{self._context.sink}/{epoch.checkpoint}"

    def _publisher(self, sender: str) -> Publisher:
        if sender not in self._publishers:
            kind = Transactions if self._spec.guarantee == "exactly-once" else Deliveries
            self._publishers[sender] = kind(self._known(), sender, self._stopping)
        return self._publishers[sender]

    def _is_decided(self, name: str) -> bool:
        names = (f"{name}.json", f"{name}.done")
        return any(self._decided.version(one) is not None for one in names)

    def _publish(self, name: str) -> None:
        """Publish a decision, unless there is none, or it is published."""
        text = self._decided.read(f"{name}.json")
        if text is None:
            return
        decision = Decision.from_json(text)
        try:
            self._publisher(decision.sender).publish(decision, self._staged)
        except TopicMissing as error:
            raise TopicMissing(error.message, hint=_how_to_make(self._spec)) from None
        passing("in")
        # Not synced: if it is forgotten, the topic of epochs knows.
        record = self._decided.path / f"{name}.json"
        record.rename(record.with_suffix(".done"))
        for file in decision.files:
            (self._staged / file.name).unlink(missing_ok=True)

    def recover(self) -> None:
        self._staged.mkdir(parents=True, exist_ok=True)
        names = [one for one in self._decided.list() if one.endswith(".json")]
        kept = {file.name for name in names for file in self._decision(name).files}
        for path in self._staged.iterdir():
            if path.name not in kept:
                path.unlink()
        for name in names:
            try:
                # Spark runs this batch again, since it was not committed, and that waits for as
                # long as it takes.
                self._known()
            except BrokerAway as error:
                _log.warning('sink "%s" has an epoch that waits: %s', self._context.sink, error)
                return
            self._publish(name.removesuffix(".json"))

    def _decision(self, name: str) -> Decision:
        return Decision.from_json(self._decided.read(name) or b"")

    # ending

    def interrupt(self) -> None:
        """Wait for no broker any more: the run is being stopped, and the next one goes on."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of the producers; a transaction that is open is ended by the next run."""
        self.interrupt()
        while self._publishers:
            self._publishers.popitem()[1].close()


def check_columns(spec: KafkaTopic, schema: StructType) -> None:
    """Look whether results can be records of a topic.

    Raises:
        UnknownColumn: They have no such column.
        RunError: A column cannot be a record's value.
    """
    wanted = [("key", spec.key), ("value", spec.value), *(("header", c) for _, c in spec.headers)]
    for role, name in wanted:
        if name is not None and name not in schema.names:
            msg = f'results have no column "{name}", which is the {role} of topic "{spec.topic}"'
            raise UnknownColumn(msg, hint=f"they have {', '.join(schema.names)}")
    if spec.value is not None:
        kind = schema[spec.value].dataType
        if not isinstance(kind, BinaryType | StringType):
            msg = (
                f'column "{spec.value}" is {kind.simpleString()}, and a raw value is text or binary'
            )
            raise RunError(msg, hint='cast it in a sql stage, or use format="json"')


def records(frame: DataFrame, spec: KafkaTopic, beside: int, limit: int) -> DataFrame:
    """Let the JVM turn rows into records: key, value and headers in binary, with what is refused.

    Args:
        frame: The rows.
        spec: The topic.
        beside: The size of the headers that all records have.
        limit: How large a record may be.
    """
    headers = {staged.HEADER + title: name for title, name in spec.headers}
    key = functions.lit(None) if spec.key is None else functions.col(column(spec.key))
    spoilt = functions.lit(None).cast("string") if spec.value else spoilt_column(frame.schema)
    made = frame.select(
        _binary(key).alias(staged.KEY),
        _value(spec, inside(spec, frame.columns)).alias(staged.VALUE),
        *(_binary(functions.col(column(name))).alias(title) for title, name in headers.items()),
        spoilt.alias(staged.SPOILT),
        together(frame.columns).alias(staged.RECORD),
    )
    # Tasks make Avro of rows, so until then nobody knows how large the values are, or which rows fit.
    later = spec.format == "avro"
    parts = (staged.KEY, *(() if later else (staged.VALUE,)), *headers)
    lengths = (functions.octet_length(functions.col(column(part))) for part in parts)
    fixed = staged.RECORD_OVERHEAD + beside + sum(_header_bytes(name) for name, _ in spec.headers)
    size = functions.lit(fixed)
    for length in lengths:
        size += functions.coalesce(length, functions.lit(0))
    if later:
        record = json_of(functions.col(staged.RECORD))
        return made.withColumns({staged.SIZE: size.cast("long"), staged.RECORD: record})
    bad = (size > limit) | functions.col(staged.SPOILT).isNotNull()
    record = functions.when(bad, json_of(functions.col(staged.RECORD)))
    too_large = functions.when(size > limit, size.cast("long"))
    return made.withColumns({staged.SIZE: too_large, staged.RECORD: record})


def inside(spec: KafkaTopic, names: Sequence[str]) -> list[str]:
    """Return the columns that are in a record's value."""
    headed = {name for _, name in spec.headers}
    return [name for name in names if name not in headed]


def _value(spec: KafkaTopic, names: list[str]) -> Column:
    match spec.format:
        case "avro":
            return together(names)
        case "raw":
            assert spec.value is not None
            return _binary(functions.col(column(spec.value)))
        case "csv":
            return _binary(as_csv(names))
        case "json":
            return _binary(as_json(names))


def _binary(value: Column) -> Column:
    """Return text as UTF-8, binary as it is, and anything else as its text."""
    return value.cast("string").cast("binary")


def _header_bytes(name: str) -> int:
    return len(name.encode()) + staged.HEADER_OVERHEAD


def _headers_bytes(sender: str) -> int:
    """Return the size of the headers of ours."""
    return _header_bytes(SENDER) + len(sender.encode()) + _header_bytes(SEQUENCE) + 20


def _how_to_make(spec: KafkaTopic) -> str:
    return (
        f"kafka-topics.sh --bootstrap-server {spec.connection.servers} --create --topic "
        f"{spec.topic} --partitions 3; or give the sink partitions=3, and it makes the topic"
    )


def open_topic(spec: KafkaTopic, context: SinkContext) -> TopicTarget:
    """Open the topic of a sink."""
    return TopicTarget(spec, context)
