"""Errors of Kafka brokers, and of topics in them."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class BrokerError(MillstreamError):
    """A Kafka broker cannot be used as requested."""


class BrokerAway(BrokerError):
    """No broker of the cluster answers."""


class LoginRefused(BrokerError):
    """A broker does not accept the user or the password."""


class BrokerNotTrusted(BrokerError):
    """The certificates of the broker and of the client do not fit each other."""


class TopicMissing(BrokerError):
    """There is no such topic, or no such partition of it."""


class TopicForbidden(BrokerError):
    """The user has no right to do that with a topic, a group or the cluster."""


class TopicChanged(BrokerError):
    """A topic was deleted and made again: it is another one of the same name."""


class RecordsGone(BrokerError):
    """The broker has removed records that were not read."""


class RecordTooLarge(BrokerError):
    """A record is larger than its topic accepts."""
