"""Topics of Kafka as sources; as targets of sinks they are in `topic.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from millstream.brokers.connection import Connection, connection, from_yaml
from millstream.connectors.kafka.registry_address import check_registry
from millstream.connectors.kafka.topic import KafkaTopic, kafka_topic
from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.spec import Tree
from millstream.flow.spelling import intended
from millstream.secrets import Secret

if TYPE_CHECKING:
    from millstream.flow.document import Entry

__all__ = ["Kafka", "KafkaTopic", "connector", "kafka", "kafka_topic"]

RecordFormat = Literal["json", "csv", "raw", "avro", "protobuf"]
Loss = Literal["fail", "accept"]
Start = str | tuple[tuple[int, int], ...]

FORMATS: Final = ("json", "csv", "raw", "avro", "protobuf")
#: Arguments that only some formats have.
_FURTHER: Final = {"avro": ("schema_file", "registry"), "protobuf": ("schema_file", "message")}
#: What Kafka knows of a record beside its value, and the types of columns that can hold it.
METADATA: Final = {
    "key": ("string", "binary"),
    "headers": ("map<string,string>", "map<string,binary>"),
    "timestamp": ("timestamp",),
    "partition": ("int", "bigint"),
    "offset": ("bigint",),
    "topic": ("string",),
}


@dataclass(frozen=True, slots=True)
class Kafka(SourceSpec):
    """A topic, read partition by partition in the order of its records."""

    kind: ClassVar[str] = "kafka"
    reader: ClassVar[str] = "millstream.connectors.kafka.origin:open_kafka"
    checker: ClassVar[str | None] = "millstream.connectors.kafka.checks:check_kafka"
    extra: ClassVar[str | None] = "kafka"

    topic: str
    connection: Connection
    schema: Schema
    format: RecordFormat = "json"
    start: Start = "earliest"
    stop: Literal["latest"] | None = None
    #: (what Kafka knows of a record, column), such as ("key", "customer").
    metadata: tuple[tuple[str, str], ...] = ()
    schema_file: str | None = None
    message: str | None = None
    registry: str | None = None
    registry_password: Secret | None = None
    tombstones: bool = False
    loss: Loss = "fail"
    group: str | None = None

    @property
    def bounded(self) -> bool:
        return self.stop is not None

    @property
    def place(self) -> str:
        return self.topic

    @property
    def spread(self) -> bool:
        # Which partitions have ended is known where all of them are read.
        return self.stop is None

    @classmethod
    def from_yaml(cls, entry: Entry) -> Kafka:
        given = entry.texts_or_named("start")
        start: Any = given[0] if isinstance(given, list) and given else given
        if isinstance(given, dict):
            start = {_whole(partition): _whole(offset) for partition, offset in given.items()}
        return _made(
            entry.needed("kafka", "a topic"),
            Schema.parse(entry.needed("schema", "columns")),
            from_yaml(entry),
            format=entry.text("format") or "json",
            start=start or "earliest",
            stop=entry.text("stop"),
            metadata=entry.named("metadata"),
            schema_file=entry.text("schema_file"),
            message=entry.text("message"),
            registry=entry.text("registry"),
            registry_password=entry.secret("registry_password") or entry.text("registry_password"),
            tombstones=entry.flag("tombstones"),
            loss=entry.text("loss") or "fail",
            group=entry.text("group"),
        )

    def to_yaml(self) -> Tree:
        start = self.start if isinstance(self.start, str) else dict(self.start)
        return {
            "kafka": self.topic,
            "schema": self.schema.ddl,
            **self.connection.to_yaml(),
            "format": self.format,
            "start": start,
            "stop": self.stop,
            "metadata": dict(self.metadata) or None,
            "schema_file": self.schema_file,
            "message": self.message,
            "registry": self.registry,
            "registry_password": self.registry_password,
            "tombstones": self.tombstones or None,
            "loss": None if self.loss == "fail" else self.loss,
            "group": self.group,
        }


def kafka(
    topic: str,
    ddl: str,
    *,
    servers: str,
    format: str = "json",
    start: str | datetime | Mapping[int, int] = "earliest",
    stop: str | None = None,
    metadata: Mapping[str, str] | None = None,
    schema_file: str | None = None,
    message: str | None = None,
    registry: str | None = None,
    registry_password: Secret | None = None,
    tombstones: bool = False,
    loss: str = "fail",
    group: str | None = None,
    user: str | None = None,
    password: Secret | None = None,
    mechanism: str | None = None,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    certificate_key: str | Secret | None = None,
    options: Mapping[str, object] | None = None,
) -> Kafka:
    """The records of a Kafka topic, each once.

    Args:
        topic: Its name.
        ddl: The columns, as in Spark SQL.
        servers: The brokers: "host:9092", or several with commas between them.
        format: What the values hold: "json", "csv", "raw" (one column), "avro" or "protobuf".
        start: Where to begin the first time: "earliest", "latest", a time, or offsets by partition.
        stop: "latest" ends the source where the topic ends when it is first read.
        metadata: Columns that hold what Kafka knows of a record: {"key": "customer"}; also
            "headers", "timestamp", "partition", "offset" and "topic".
        schema_file: For Avro its schema; for Protobuf a .proto file or a descriptor set.
        message: The name of the Protobuf message.
        registry: The address of a schema registry, for Avro.
        registry_password: The password of the user in that address.
        tombstones: Make a row of a record without a value; without this it is passed over.
        loss: What to do if records are gone that were not read: "fail" or "accept".
        group: The consumer group that shows in Kafka's tools how far the source has come.
        user: For brokers with logins.
        password: The user's, as a secret.
        mechanism: "SCRAM-SHA-512" (if there is a user), "SCRAM-SHA-256" or "PLAIN".
        tls: Encrypt, and check the broker's certificate.
        ca: A file with the certificates to trust.
        certificate: A file with the certificate that the client shows.
        certificate_key: Its key: a file, or a secret.
        options: Further settings of librdkafka.
    """
    reached = connection(
        servers,
        user=user,
        password=password,
        mechanism=mechanism,
        tls=tls,
        ca=ca,
        certificate=certificate,
        certificate_key=certificate_key,
        options=options,
    )
    return _made(
        topic,
        Schema.parse(ddl),
        reached,
        format=format,
        start=start,
        stop=stop,
        metadata=metadata,
        schema_file=schema_file,
        message=message,
        registry=registry,
        registry_password=registry_password,
        tombstones=tombstones,
        loss=loss,
        group=group,
    )


def _made(
    topic: str,
    schema: Schema,
    reached: Connection,
    *,
    format: str,
    start: str | datetime | Mapping[int, int],
    stop: str | None,
    metadata: Mapping[str, str] | None,
    loss: str,
    **rest: Any,  # the fields that are taken as they are
) -> Kafka:
    if not topic.strip():
        raise InvalidOption("a Kafka source has no topic", hint='name one: ms.kafka("orders", ...)')
    if format not in FORMATS:
        hint = intended(format, FORMATS, "it can be")
        raise InvalidOption(f'a Kafka source has no format "{format}"', hint=hint)
    if stop not in (None, "latest"):
        hint = 'stop="latest" ends it where the topic ends when it is first read'
        raise InvalidOption(f'a Kafka source cannot stop at "{stop}"', hint=hint)
    if loss not in ("fail", "accept"):
        raise InvalidOption(f'loss="{loss}" means nothing', hint='"fail" or "accept"')
    found = Kafka(
        topic,
        reached,
        schema,
        cast("RecordFormat", format),
        start=_start(start),
        stop=cast("Literal['latest'] | None", stop),
        metadata=_metadata(metadata or {}, schema),
        loss=cast("Loss", loss),
        **rest,
    )
    _check_format(found)
    return found


def _whole(text: str) -> int | str:
    """Return the number that a text is; what is none is refused with the place of its entry."""
    return int(text) if text.isdecimal() else text


def _start(start: str | datetime | Mapping[int, int]) -> Start:
    if isinstance(start, Mapping):
        for partition, offset in start.items():
            if not (isinstance(partition, int) and isinstance(offset, int)) or offset < 0:
                msg = f"start={{{partition!r}: {offset!r}}} is not an offset of a partition"
                raise InvalidOption(msg, hint="write start={0: 1200, 1: 0}")
        return tuple(sorted(start.items()))
    if start in ("earliest", "latest"):
        return str(start)
    try:
        moment = start if isinstance(start, datetime) else datetime.fromisoformat(start)
    except (TypeError, ValueError):
        hint = '"earliest", "latest", a time such as "2026-11-16T08:00:00Z", or {partition: offset}'
        raise InvalidOption(f'a Kafka source cannot start at "{start}"', hint=hint) from None
    if moment.tzinfo is None:
        msg = f'the time "{start}" to start at has no zone'
        raise InvalidOption(msg, hint=f'write "{moment.isoformat()}Z" for UTC')
    return moment.isoformat()


def _metadata(given: Mapping[str, str], schema: Schema) -> tuple[tuple[str, str], ...]:
    for what, column in given.items():
        if what not in METADATA:
            hint = intended(what, tuple(METADATA), "it knows")
            raise InvalidOption(f'Kafka knows no "{what}" of a record', hint=hint)
        found = schema.find(column)
        if found is None:
            msg = f'metadata names the column "{column}", which the source does not have'
            raise InvalidOption(msg, hint=f'add it: "{column} {METADATA[what][0]}"')
        type_ = (found.type or "").replace(" ", "").lower()
        if type_ not in METADATA[what]:
            msg = f'column "{column}" is of type {found.type}, and holds the {what} of a record'
            raise InvalidOption(msg, hint=f"it can be {' or '.join(METADATA[what])}")
    columns = [column.lower() for column in given.values()]
    if len(set(columns)) < len(columns):
        msg = f"two entries of metadata have the same column: {', '.join(given.values())}"
        raise InvalidOption(msg, hint="give each a column of its own")
    return tuple(sorted(given.items()))


def _check_format(spec: Kafka) -> None:
    values = value_columns(spec)
    if spec.format == "raw" and (len(values) != 1 or values[0][1] not in ("string", "binary")):
        msg = f"a raw value fills one column of type string or binary, not {len(values)} columns"
        raise InvalidOption(msg, hint='such as "body string"; further columns are metadata=')
    if spec.format == "avro" and (spec.schema_file is None) == (spec.registry is None):
        msg = "Avro needs a schema: a file or a registry, and not both"
        raise InvalidOption(msg, hint='schema_file="orders.avsc" or registry="https://host:8081"')
    if spec.format == "protobuf" and (spec.schema_file is None or spec.message is None):
        msg = "Protobuf needs a schema file and the name of a message in it"
        raise InvalidOption(msg, hint='schema_file="shop.proto", message="shop.Order"')
    given = {"schema_file": spec.schema_file, "registry": spec.registry, "message": spec.message}
    for name, value in given.items():
        takers = [one for one, names in _FURTHER.items() if name in names]
        if value is not None and spec.format not in takers:
            msg = f'{name}= is for format "{takers[0]}", and the format is "{spec.format}"'
            raise InvalidOption(msg, hint=f'leave {name}= out, or give format="{takers[0]}"')
    check_registry(spec.registry, spec.registry_password)


def value_columns(spec: Kafka) -> list[tuple[str, str | None]]:
    """Return the columns, with their types, that the value of a record fills."""
    known = {column.lower() for _, column in spec.metadata}
    return [(one.name, one.type) for one in spec.schema if one.name.lower() not in known]


connector = Connector(sources=(Kafka,), targets=(KafkaTopic,))
