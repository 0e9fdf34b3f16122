"""Clients of a Kafka cluster, and what the cluster says of its topics.

librdkafka does not survive a fork: a client belongs to the process that made it. `PerProcess` keeps
one where it is made again after a fork and after pickling.

librdkafka writes a line for every attempt to reach a broker. Those lines go to the logger
"millstream.brokers.librdkafka" at the level DEBUG; who uses a client says once what is the matter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from millstream.brokers.connection import Connection
from millstream.brokers.errors import translated
from millstream.errors import BrokerAway, InternalError
from millstream.extras import missing

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

#: How long a question to a cluster may take.
PATIENCE_S: Final = 20.0
#: How long a client waits before it connects again, at most; librdkafka would wait for 10 s.
_RECONNECT_MS: Final = 1000
_Client = TypeVar("_Client")


class _Lines:
    """Where librdkafka's lines go: all at the level DEBUG."""

    _logger: Final = logging.getLogger("millstream.brokers.librdkafka")

    def log(self, _level: int, text: str, *values: object, **_: object) -> None:
        self._logger.debug(text, *values)


class Trouble:
    """The last error that a client reported on its own, such as that a login was refused."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        #: Whether no broker is in reach.
        self.down = False

    def __call__(self, error: KafkaError) -> None:
        # "All brokers are down" comes after the reason, and is less.
        self.down = self.down or error.name() == "_ALL_BROKERS_DOWN"
        if self.last is None or error.name() != "_ALL_BROKERS_DOWN":
            self.last = error

    def clear(self) -> None:
        """Forget it: the client has an answer again."""
        self.last, self.down = None, False


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its cluster describes it; `id` is another one if it is made again."""

    name: str
    id: str
    cluster: str
    partitions: tuple[int, ...]
    #: The number of copies of the partition that has the fewest.
    replicas: int
    #: The partitions that no broker leads: nobody can read or write them for now.
    leaderless: tuple[int, ...] = ()


def admin(connection: Connection, trouble: Trouble | None = None) -> AdminClient:
    """Return a client for questions about a cluster and for making topics."""
    kafka = _library("an AdminClient")
    made: AdminClient = kafka.admin.AdminClient(
        {**_configured(connection), "error_cb": trouble or Trouble()}, logger=_Lines()
    )
    return made


def consumer(
    connection: Connection, settings: dict[str, Any], trouble: Trouble | None = None
) -> Consumer:
    """Return a client that reads."""
    kafka = _library("a Consumer")
    made: Consumer = kafka.Consumer(
        {**_configured(connection), **settings, "error_cb": trouble or Trouble()},
        logger=_Lines(),
    )
    return made


def producer(
    connection: Connection, settings: dict[str, Any], trouble: Trouble | None = None
) -> Producer:
    """Return a client that writes."""
    kafka = _library("a Producer")
    made: Producer = kafka.Producer(
        {**_configured(connection), **settings, "error_cb": trouble or Trouble()},
        logger=_Lines(),
    )
    return made


def _configured(connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = connection.configuration()
    if not any(name.startswith("reconnect.") for name in found):
        found["reconnect.backoff.max.ms"] = _RECONNECT_MS
    return found


def cluster_id(connection: Connection, *, timeout: float = PATIENCE_S) -> str:
    """Return the id of a cluster, which is the same whatever its brokers are called.

    Raises:
        BrokerError: No broker answers, or the login is refused.
    """
    trouble = Trouble()
    client = admin(connection, trouble)
    return _asked(
        lambda: _cluster(client, timeout), client, trouble, f"the broker at {connection.servers}"
    )


def topic_id(connection: Connection, name: str, *, timeout: float = PATIENCE_S) -> str:
    """Return the id of a topic. Raises as `describe` does."""
    return describe(connection, name, timeout=timeout).id


def describe(connection: Connection, name: str, *, timeout: float = PATIENCE_S) -> Topic:
    """Return what a cluster says of a topic.

    Raises:
        TopicMissing: There is none of that name.
        BrokerError: No broker answers, or it refuses.
    """
    trouble = Trouble()
    client = admin(connection, trouble)
    place = f'topic "{name}" at {connection.servers}'
    cluster = _asked(
        lambda: _cluster(client, timeout), client, trouble, f"the broker at {connection.servers}"
    )
    asked = _topic(client, name, timeout)
    return _asked(lambda: _described(asked, name, cluster, timeout), client, trouble, place)


class Watch:
    """A topic that is looked at again and again, over one connection for as long as it answers."""

    def __init__(self, connection: Connection, topic: Topic) -> None:
        self._topic = topic
        self._connection = connection
        self._place = f'topic "{topic.name}" at {connection.servers}'
        self._connect()

    def _connect(self) -> None:
        self._trouble = Trouble()
        self._client = admin(self._connection, self._trouble)

    def ask(self, timeout: float = PATIENCE_S) -> Callable[[], Topic]:
        """Ask what the topic is now, and return what waits for the answer.

        The answer raises as `describe` does. It has the cluster that the topic had at first: a topic
        of another cluster has another id too.
        """
        name, cluster = self._topic.name, self._topic.cluster
        asked = _topic(self._client, name, timeout)

        def answer() -> Topic:
            waited = lambda: _described(asked, name, cluster, timeout)  # noqa: E731
            try:
                found = _asked(waited, self._client, self._trouble, self._place)
            except BrokerAway:
                # A client that has one broker keeps asking that one, while others would answer.
                self._connect()
                raise
            self._trouble.clear()
            return found

        return answer


def _cluster(client: AdminClient, timeout: float) -> str:
    found = client.describe_cluster(request_timeout=timeout).result(timeout + 5).cluster_id
    if found is None:
        raise InternalError("the cluster has no id")
    return str(found)


def _topic(client: AdminClient, name: str, timeout: float) -> Future[Any]:
    kafka = _library("a topic")
    names = kafka.TopicCollection([name])
    found: Future[Any] = client.describe_topics(names, request_timeout=timeout)[name]
    return found


def _described(asked: Future[Any], name: str, cluster: str, timeout: float) -> Topic:
    found = asked.result(timeout + 5)
    return Topic(
        name,
        str(found.topic_id),
        cluster,
        tuple(sorted(one.id for one in found.partitions)),
        min((len(one.replicas) for one in found.partitions), default=0),
        tuple(sorted(one.id for one in found.partitions if one.leader is None)),
    )


def _asked(
    ask: Callable[[], _Client], client: AdminClient, trouble: Trouble, place: str
) -> _Client:
    kafka = _library("a question")
    try:
        return ask()
    except kafka.KafkaException as error:
        client.poll(0)  # hands over what the client has to report
        raise translated(error, place, trouble.last) from None


#: Clients of a parent, which its child keeps and never uses.
_inherited: Final[list[object]] = []


class PerProcess(Generic[_Client]):
    """A client that is made when it is asked for, once in each process.

    A copy that was pickled, and the child of a fork, make their own.
    """

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._make = make
        self._made: tuple[int, _Client] | None = None

    def get(self) -> _Client:
        """Return the client of this process."""
        if self._made is None or self._made[0] != os.getpid():
            if self._made is not None:
                # To end it would wait for threads that only its parent has.
                _inherited.append(self._made[1])
            self._made = os.getpid(), self._make()
        return self._made[1]

    def __reduce__(self) -> tuple[object, ...]:
        return PerProcess, (self._make,)


def _library(what: str) -> Any:
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise missing(error, what) or error from error
    return confluent_kafka
