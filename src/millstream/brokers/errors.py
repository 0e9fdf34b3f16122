"""What confluent-kafka raises, as our errors: the fact, the place, a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    BrokerAway,
    BrokerError,
    BrokerNotTrusted,
    LoginRefused,
    MillstreamError,
    RecordsGone,
    RecordTooLarge,
    TopicForbidden,
    TopicMissing,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

_Kind = type[MillstreamError]
_MAKE_IT: Final = (
    "is its name right? Create it, or send a first record to it, before the flow starts"
)
#: By the names of KafkaError's codes, so that reading this needs no client.
_KINDS: Final[dict[str, tuple[_Kind, str, str | None]]] = {
    "_TRANSPORT": (BrokerAway, "does not answer", "is it running, and are servers= right?"),
    "_ALL_BROKERS_DOWN": (BrokerAway, "does not answer", "is it running, and are servers= right?"),
    "_DESTROY_BROKER": (BrokerAway, "is replaced by another", None),
    "_UNKNOWN_BROKER": (BrokerAway, "is not known to the cluster yet", None),
    "_WAIT_COORD": (BrokerAway, "has no coordinator yet", None),
    "_TIMED_OUT": (BrokerAway, "does not answer in time", "is it running, and in reach?"),
    "_TIMED_OUT_QUEUE": (BrokerAway, "does not answer in time", "is it running, and in reach?"),
    "_RESOLVE": (BrokerAway, "has a name that is not known here", "are servers= right?"),
    "REQUEST_TIMED_OUT": (BrokerAway, "does not answer in time", None),
    "BROKER_NOT_AVAILABLE": (BrokerAway, "does not answer", None),
    "COORDINATOR_NOT_AVAILABLE": (BrokerAway, "has no coordinator yet", None),
    "LEADER_NOT_AVAILABLE": (BrokerAway, "has a partition without a leader", "is a broker down?"),
    "NOT_LEADER_FOR_PARTITION": (BrokerAway, "has a partition whose leader changes", None),
    "_AUTHENTICATION": (
        LoginRefused,
        "refuses the login",
        "are user, password and mechanism those of the broker?",
    ),
    "SASL_AUTHENTICATION_FAILED": (
        LoginRefused,
        "refuses the login",
        "are user, password and mechanism those of the broker?",
    ),
    "UNSUPPORTED_SASL_MECHANISM": (
        LoginRefused,
        "does not know the login's mechanism",
        "give mechanism= as the broker has it",
    ),
    "_SSL": (
        BrokerNotTrusted,
        "cannot be spoken to over TLS",
        "is ca= the authority of the broker's certificate, and is the host's name in it?",
    ),
    "UNKNOWN_TOPIC_OR_PART": (TopicMissing, "does not exist", _MAKE_IT),
    "_UNKNOWN_TOPIC": (TopicMissing, "does not exist", _MAKE_IT),
    "_UNKNOWN_PARTITION": (TopicMissing, "is not there", "was the topic deleted?"),
    "UNKNOWN_TOPIC_ID": (TopicMissing, "does not exist any more", None),
    "TOPIC_EXCEPTION": (TopicMissing, "cannot be the name of a topic", None),
    "TOPIC_AUTHORIZATION_FAILED": (
        TopicForbidden,
        "is not open to this user",
        "ask its owner for the right",
    ),
    "GROUP_AUTHORIZATION_FAILED": (TopicForbidden, "is not open to this user", None),
    "CLUSTER_AUTHORIZATION_FAILED": (TopicForbidden, "is not open to this user", None),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (TopicForbidden, "is not open to this user", None),
    "OFFSET_OUT_OF_RANGE": (RecordsGone, "does not have these records any more", None),
    "_AUTO_OFFSET_RESET": (RecordsGone, "does not have these records any more", None),
    "MSG_SIZE_TOO_LARGE": (RecordTooLarge, "does not accept a record of this size", None),
    "RECORD_LIST_TOO_LARGE": (RecordTooLarge, "does not accept a record of this size", None),
}

#: In the text of librdkafka, where its code says no more than that there is no connection.
_WORDS: Final = (
    ("SASL authentication error", "SASL_AUTHENTICATION_FAILED"),
    ("SSL handshake failed", "_SSL"),
    ("SSL_HANDSHAKE", "_SSL"),
    ("certificate verify failed", "_SSL"),
)


def named(error: KafkaError) -> str:
    """Return the name of an error's code, as KafkaError has it: "_TRANSPORT"."""
    name = str(error.name())
    for words, better in _WORDS:
        if name in ("_TRANSPORT", "_FAIL", "_AUTHENTICATION", "_TIMED_OUT") and words in str(error):
            return better
    return name


def translated(
    error: KafkaError | KafkaException, place: str, reason: KafkaError | None = None
) -> MillstreamError:
    """Return our error for one of Kafka's.

    Args:
        error: What confluent-kafka returned or raised.
        place: What it is about: 'topic "orders" at b1:9092', 'the broker at b1:9092'.
        reason: What the client has reported before, if the error says no more than "timed out".
    """
    found: KafkaError = error.args[0] if isinstance(error, Exception) else error
    if reason is not None and named(found) in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"):
        found = reason
    name = named(found)
    kind, fact, hint = _KINDS.get(name, (BrokerError, "cannot do that", None))
    return kind(f"{place} {fact}: {_text(found)} ({name})", hint=hint)


def away(error: KafkaError) -> bool:
    """Tell whether an error means that the broker may be back later."""
    kind = _KINDS.get(named(error))
    return (kind is not None and kind[0] is BrokerAway) or bool(error.retriable())


def _text(error: KafkaError) -> str:
    return " ".join(str(error.str()).split())[:300]
