"""Topics of Kafka as targets of sinks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, cast, get_args

from millstream.brokers.connection import Connection, connection, from_yaml
from millstream.connectors.kafka.registry_address import check_registry
from millstream.errors import InvalidOption
from millstream.flow.spec import Tree
from millstream.flow.stages import forms
from millstream.flow.targets import TargetSpec
from millstream.secrets import Secret

if TYPE_CHECKING:
    from millstream.flow.document import Entry

ValueFormat = Literal["json", "csv", "raw", "avro"]
Guarantee = Literal["exactly-once", "at-least-once"]
Partitioner = Literal["murmur2", "crc32", "fnv1a"]

#: The topic that says which epochs are in, beside the results.
EPOCHS: Final = "millstream.epochs"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class KafkaTopic(TargetSpec):
    """A topic of Kafka; each result is in it once, for readers of committed records."""

    kind: ClassVar[str] = "kafka_topic"
    title: ClassVar[str] = "kafka topic"
    writer: ClassVar[str] = "millstream.connectors.kafka.target:open_topic"
    extra: ClassVar[str | None] = "kafka"
    # Brokers move, and a topic that is there is not made.
    incidental: ClassVar[tuple[str, ...]] = ("connection", "partitions", "registry_password")
    added: ClassVar[tuple[str, ...]] = ("schema_file", "registry", "registry_password")

    topic: str
    connection: Connection
    key: str | None = None
    format: ValueFormat = "json"
    #: The column that is the record's value, in format "raw".
    value: str | None = None
    #: The names of headers, and the columns that they are filled from.
    headers: tuple[tuple[str, str], ...] = ()
    guarantee: Guarantee = "exactly-once"
    partitioner: Partitioner = "murmur2"
    #: Make the topic with so many partitions if it does not exist.
    partitions: int | None = None
    epochs: str = EPOCHS
    #: For Avro: a file with the schema, a registry that has it, or takes it, or both.
    schema_file: str | None = None
    registry: str | None = None
    registry_password: Secret | None = None

    @property
    def place(self) -> str:
        return self.topic

    @property
    def seen_again(self) -> str:
        return (
            f'readers of topic "{self.topic}" get them a second time, after those that are there, '
            'with another "millstream-sender"'
        )

    @classmethod
    def from_yaml(cls, entry: Entry) -> KafkaTopic:
        partitions = entry.number("partitions")
        return _made(
            entry.needed("kafka_topic", "the name of a topic"),
            from_yaml(entry),
            key=entry.text("key"),
            format=entry.text("format") or "json",
            value=entry.text("value"),
            headers=entry.named("headers"),
            guarantee=entry.text("guarantee") or "exactly-once",
            partitioner=entry.text("partitioner") or "murmur2",
            partitions=None if partitions is None else int(partitions),
            epochs=entry.text("epochs") or EPOCHS,
            schema_file=entry.text("schema_file"),
            registry=entry.text("registry"),
            registry_password=entry.secret("registry_password") or entry.text("registry_password"),  # type: ignore[arg-type]
        )

    def to_yaml(self) -> Tree:
        tree: Tree = {"kafka_topic": self.topic, **self.connection.to_yaml(), "key": self.key}
        tree |= {"format": self.format, "value": self.value, "headers": dict(self.headers) or None}
        tree |= {"guarantee": self.guarantee, "partitioner": self.partitioner}
        epochs = None if self.epochs == EPOCHS else self.epochs
        tree |= {"schema_file": self.schema_file, "registry": self.registry}
        tree |= {"registry_password": self.registry_password}
        return forms.given({**tree, "partitions": self.partitions, "epochs": epochs})


def kafka_topic(
    topic: str,
    *,
    servers: str,
    key: str | None = None,
    format: ValueFormat = "json",
    value: str | None = None,
    headers: Sequence[str] | Mapping[str, str] | None = None,
    guarantee: Guarantee = "exactly-once",
    partitioner: Partitioner = "murmur2",
    partitions: int | None = None,
    epochs: str = EPOCHS,
    schema_file: str | None = None,
    registry: str | None = None,
    registry_password: Secret | None = None,
    user: str | None = None,
    password: Secret | None = None,
    mechanism: str | None = None,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    certificate_key: str | Secret | None = None,
    options: Mapping[str, object] | None = None,
) -> KafkaTopic:
    """Results as records of a Kafka topic, each once for readers of committed records.

    Args:
        topic: The topic's name.
        servers: "host:9092", or several with commas between them.
        key: The column that is the record's key, and decides on the partition.
        format: What a record's value is: "json", "csv", "avro", or "raw", a single column.
        value: The column for format "raw"; "value" if it is left out.
        headers: Columns that become headers, and are not in the value; or names of headers with
            their columns.
        guarantee: "exactly-once" with transactions, or "at-least-once" without.
        partitioner: How keys are divided: "murmur2" as Kafka's Java clients do it, "crc32" as
            librdkafka does, or "fnv1a".
        partitions: Make the topic with so many partitions if it does not exist.
        epochs: The topic that says which epochs are in; it is made if it does not exist.
        schema_file: For Avro a file with the schema; with a registry too, it is registered there.
        registry: For Avro the address of a registry that has the schema of "<topic>-value".
        registry_password: The password of the user in that address.
        user: For a broker with logins (SASL).
        password: The user's, as a secret.
        mechanism: "SCRAM-SHA-512" (if there is a user), "SCRAM-SHA-256" or "PLAIN".
        tls: Encrypt, and check the broker's certificate.
        ca: A file with the certificates to trust; those of the system if it is left out.
        certificate: A file with the certificate that the client shows.
        certificate_key: The key of that certificate: a file, or a secret.
        options: Further settings of librdkafka.
    """
    link = connection(
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
    named = headers if headers is None or isinstance(headers, Mapping) else {h: h for h in headers}
    return _made(
        topic,
        link,
        key=key,
        format=format,
        value=value,
        headers=named,
        guarantee=guarantee,
        partitioner=partitioner,
        partitions=partitions,
        epochs=epochs,
        schema_file=schema_file,
        registry=registry,
        registry_password=registry_password,
    )


def _made(
    topic: str,
    link: Connection,
    *,
    key: str | None,
    format: str,
    value: str | None,
    headers: Mapping[str, str] | None,
    guarantee: str,
    partitioner: str,
    partitions: int | None,
    epochs: str,
    schema_file: str | None,
    registry: str | None,
    registry_password: Secret | None,
) -> KafkaTopic:
    for name in (topic, epochs):
        if not _NAME.fullmatch(name) or name in (".", ".."):
            hint = 'letters, digits, ".", "_" and "-", at most 249 of them'
            raise InvalidOption(f'"{name}" cannot be the name of a Kafka topic', hint=hint)
    if topic == epochs:
        raise InvalidOption(f'topic "{topic}" cannot hold results and epochs', hint="name two")
    for what, given, known in (
        ("format", format, ValueFormat),
        ("guarantee", guarantee, Guarantee),
        ("partitioner", partitioner, Partitioner),
    ):
        if given not in get_args(known):
            msg = f'a Kafka topic cannot have the {what} "{given}"'
            raise InvalidOption(msg, hint=f"one of {', '.join(get_args(known))}")
    if value is not None and format != "raw":
        msg = f'value="{value}" is for format "raw", and the format is "{format}"'
        raise InvalidOption(msg, hint="choose columns with a sql stage")
    if partitions is not None and partitions < 1:
        raise InvalidOption(f"a Kafka topic cannot have {partitions} partitions", hint="1 or more")
    _check_avro(format, schema_file, registry)
    check_registry(registry, registry_password)
    return KafkaTopic(
        topic,
        link,
        key,
        cast("ValueFormat", format),
        (value or "value") if format == "raw" else None,
        tuple((headers or {}).items()),
        cast("Guarantee", guarantee),
        cast("Partitioner", partitioner),
        partitions,
        epochs,
        schema_file,
        registry,
        registry_password,
    )


def _check_avro(format: str, schema_file: str | None, registry: str | None) -> None:
    hint = 'schema_file="orders.avsc", registry="https://host:8081", or both'
    given = {"schema_file": schema_file, "registry": registry}
    named = [name for name, value in given.items() if value is not None]
    if format == "avro" and not named:
        raise InvalidOption("a Kafka topic of Avro needs a schema", hint=hint)
    if format != "avro" and named:
        msg = f'{named[0]}= is for format "avro", and the format is "{format}"'
        raise InvalidOption(msg, hint='use format="avro", or leave it out')
