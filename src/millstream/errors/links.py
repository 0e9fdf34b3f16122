"""Errors of links: an event could not be sent."""

from __future__ import annotations

from millstream.errors.root import MillstreamError


class LinkError(MillstreamError):
    """An event could not be sent."""


class LinkClosed(LinkError):
    """You closed this client, inbox or listener."""


class LinkBroken(LinkError):
    """The peer refused, or is another one than before.

    Rows that were not acknowledged may or may not be stored.
    """


class NoAnswer(LinkError):
    """There was no response in time; rows that were sent may or may not be stored."""


class NotAllowed(LinkError):
    """The peer does not know this producer's key, or does not permit it to send there."""


class SenderReplaced(LinkError):
    """Another client has connected under this sender's name since."""


class BadFrame(LinkError):
    """Bytes that came over a link do not follow the protocol."""


class InvalidAddress(LinkError):
    """An address or a network cannot be parsed, or its host is unknown."""


class NoSuchNetwork(LinkError):
    """No interface of this host is in the preferred network."""


class OpenNetwork(LinkError):
    """Other hosts could reach an inbox or a runtime of this host, and there are no keys."""


class WrongNodes(LinkError):
    """The node numbers of the engines are not 0 to N-1, each once."""


class LoopbackInCluster(LinkError):
    """A loopback address is among the addresses of several hosts."""


class InvalidKey(LinkError):
    """A file with a key or a secret is missing, damaged or readable by others."""


class KeyExists(LinkError):
    """A key with that name exists, and is not overwritten."""


class RowsRefused(LinkError):
    """Rows do not fit the schema of their source; none of them was sent."""
