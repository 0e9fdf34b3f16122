"""How to reach a Kafka cluster: data that is part of a flow, with the names of secrets in it.

    connection("b1:9093,b2:9093", user="shop", password=secret("kafka-password"), tls=True)

`Connection.configuration` turns it into the settings of librdkafka, where it is used. Further
settings are `options`; those on which a promise of Millstream rests are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

from millstream.errors import InvalidOption
from millstream.secrets import Secret, value_of

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,@\[\]]+):[0-9]{1,5}")

#: Settings that are arguments here.
_ARGUMENTS: Final = {
    "bootstrap.servers": "servers",
    "metadata.broker.list": "servers",
    "security.protocol": "tls and user",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "user",
    "sasl.password": "password",
    "ssl.ca.location": "ca",
    "ssl.ca.pem": "ca",
    "ssl.certificate.location": "certificate",
    "ssl.certificate.pem": "certificate",
    "ssl.key.location": "certificate_key",
    "ssl.key.pem": "certificate_key",
    "ssl.key.password": "certificate_key",
    "group.id": "group",
}
_ONCE: Final = "every record counts once"
_ORDER: Final = "records keep their order, and none is lost"
_TRUST: Final = "the broker is the one that it claims to be"
#: Settings that Millstream sets itself, and what depends on them.
_PROMISES: Final = {
    "acks": _ORDER,
    "allow.auto.create.topics": "topics are made by those who own them",
    "auto.offset.reset": _ONCE,
    "check.crcs": "damaged records are found",
    "delivery.report.only.error": _ORDER,
    "delivery.timeout.ms": _ORDER,
    "enable.auto.commit": _ONCE,
    "enable.auto.offset.store": _ONCE,
    "enable.idempotence": _ORDER,
    "enable.partition.eof": "a source knows the end of a partition",
    "enable.gapless.guarantee": _ORDER,
    "enable.ssl.certificate.verification": _TRUST,
    "group.instance.id": _ONCE,
    "group.protocol": _ONCE,
    "isolation.level": "records of aborted transactions are not read",
    "max.in.flight": _ORDER,
    "max.in.flight.requests.per.connection": _ORDER,
    "message.max.bytes": "a record that is too large becomes a dead letter",
    "message.send.max.retries": _ORDER,
    "message.timeout.ms": _ORDER,
    "partitioner": "a key stays in its partition",
    "plugin.library.paths": "a flow loads no libraries of others",
    "queuing.strategy": _ORDER,
    "request.required.acks": _ORDER,
    "retries": _ORDER,
    "ssl.endpoint.identification.algorithm": _TRUST,
    "ssl.engine.location": "a flow loads no libraries of others",
    "transaction.timeout.ms": _ONCE,
    "transactional.id": _ONCE,
}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the brokers are, and who we are to them. `connection` makes and checks one."""

    servers: str
    user: str | None = None
    password: Secret | None = None
    mechanism: str | None = None
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    #: The private key of the certificate: a path, or a secret with the key itself (PEM).
    certificate_key: str | Secret | None = None
    options: tuple[tuple[str, str], ...] = ()

    def configuration(self) -> dict[str, str]:
        """Return the settings of librdkafka, with the values of secrets as they are now.

        Raises:
            SecretMissing: A secret has no value here.
        """
        found = {**dict(self.options), "bootstrap.servers": self.servers}
        encrypted = "SSL" if self.tls else "PLAINTEXT"
        found["security.protocol"] = f"SASL_{encrypted}" if self.user is not None else encrypted
        if self.user is not None:
            assert self.password is not None
            found["sasl.mechanisms"] = self.mechanism or MECHANISMS[0]
            found["sasl.username"] = self.user
            found["sasl.password"] = value_of(self.password)
        if self.ca is not None:
            found["ssl.ca.location"] = self.ca
        if self.certificate is not None:
            found["ssl.certificate.location"] = self.certificate
        if isinstance(self.certificate_key, Secret):
            found["ssl.key.pem"] = value_of(self.certificate_key)
        elif self.certificate_key is not None:
            found["ssl.key.location"] = self.certificate_key
        return found

    def described(self) -> dict[str, Any]:
        """Return what it is, for descriptions: without what was left out, and without values."""
        tree = self.to_yaml()
        return {k: {"secret": v.name} if isinstance(v, Secret) else v for k, v in tree.items()}

    def to_yaml(self) -> dict[str, Any]:
        """Return the keys from which `from_yaml` makes the same; secrets are `Secret`s."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found["options"] = dict(self.options)
        return {name: value for name, value in found.items() if value}


class Entry(Protocol):
    """An entry of a YAML document, as `flow.document` has it."""

    def needed(self, key: str, what: str) -> str: ...
    def text(self, key: str) -> str | None: ...
    def flag(self, key: str) -> bool: ...
    def secret(self, key: str) -> Secret | None: ...
    def named(self, key: str) -> dict[str, str] | None: ...


def from_yaml(entry: Entry) -> Connection:
    """Make a connection of the keys of an entry that `Connection.to_yaml` returns."""
    return connection(
        entry.needed("servers", "host:9092"),
        user=entry.text("user"),
        password=entry.secret("password") or entry.text("password"),  # type: ignore[arg-type]
        mechanism=entry.text("mechanism"),
        tls=entry.flag("tls"),
        ca=entry.text("ca"),
        certificate=entry.text("certificate"),
        certificate_key=entry.secret("certificate_key") or entry.text("certificate_key"),
        options=entry.named("options"),
    )


def connection(
    servers: str,
    *,
    user: str | None = None,
    password: Secret | None = None,
    mechanism: str | None = None,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    certificate_key: str | Secret | None = None,
    options: Mapping[str, object] | None = None,
) -> Connection:
    """Make a connection, and check it.

    Args:
        servers: "host:9092", or several with commas between them.
        user: For a broker with logins (SASL).
        password: The user's, as a secret.
        mechanism: "SCRAM-SHA-512" (if there is a user), "SCRAM-SHA-256" or "PLAIN".
        tls: Encrypt, and check the broker's certificate.
        ca: A file with the certificates to trust; those of the system if it is left out.
        certificate: A file with the certificate that the client shows.
        certificate_key: The key of that certificate: a file, or a secret.
        options: Further settings of librdkafka.

    Raises:
        InvalidOption: They do not go together, or an option breaks a promise.
    """
    _check_servers(servers)
    _check_login(user, password, mechanism)
    if (certificate is None) != (certificate_key is None):
        msg = "certificate and certificate_key go together, and one of them is missing"
        raise InvalidOption(msg, hint="name the file of each; the key may be a secret")
    return Connection(
        servers,
        user,
        password,
        mechanism,
        tls or ca is not None or certificate is not None,
        ca,
        certificate,
        certificate_key,
        _checked(options or {}),
    )


def _check_servers(servers: str) -> None:
    for one in str(servers).split(","):
        if not _SERVER.fullmatch(one.strip()):
            msg = f'"{one.strip()}" is not the address of a Kafka broker'
            raise InvalidOption(msg, hint='write servers="host:9092" or "host1:9092,host2:9092"')


def _check_login(user: str | None, password: Secret | None, mechanism: str | None) -> None:
    if password is not None and not isinstance(password, Secret):
        hint = 'name it, ms.secret("kafka-password"), and give the value to the engine'
        raise InvalidOption("the password of a Kafka connection is not a secret", hint=hint)
    if (user is None) != (password is None):
        msg = "user and password go together, and one of them is missing"
        raise InvalidOption(msg, hint='user="shop", password=ms.secret("kafka-password")')
    if mechanism is not None and user is None:
        msg = f'mechanism "{mechanism}" has no user'
        raise InvalidOption(msg, hint='user="shop", password=ms.secret("kafka-password")')
    if mechanism is not None and mechanism not in MECHANISMS:
        msg = f'"{mechanism}" is not a mechanism that Millstream logs in with'
        raise InvalidOption(msg, hint=f"one of {', '.join(MECHANISMS)}")


def _checked(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    for name in options:
        argument, promise = _ARGUMENTS.get(name), _PROMISES.get(name)
        if argument is not None:
            msg = f'the Kafka option "{name}" is an argument of its own'
            raise InvalidOption(msg, hint=f"give {argument}= instead")
        if promise is not None:
            msg = f'the Kafka option "{name}" cannot be set: Millstream sets it, so that {promise}'
            raise InvalidOption(msg, hint="leave it out")
        if name.endswith(("password", "secret", "_cb")):
            msg = f'the Kafka option "{name}" cannot be set in a flow'
            raise InvalidOption(msg, hint="a password is a secret: password=ms.secret(...)")
    return tuple(sorted((str(name), _text(value)) for name, value in options.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
