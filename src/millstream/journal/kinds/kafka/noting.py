"""Noting who has a sender's name, and who has ended: in the index first, then in the folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.journal.base import Claim
from millstream.journal.kinds.files.claims import ClaimsFile
from millstream.journal.kinds.files.ends import add_end
from millstream.journal.kinds.kafka.following import Follower, Topics
from millstream.journal.kinds.kafka.noted import Noted, claim_memo, ended_memo, known
from millstream.journal.kinds.kafka.records import memo, pack
from millstream.journal.kinds.kafka.wire import appender
from millstream.storage.disk import REAL, make_folder

#: Inboxes note names while their senders wait, and tell them to ask again.
_PATIENCE_S: Final = 5.0


class KafkaClaims(ClaimsFile):
    """The claims of a partition (`kind.ClaimLog` says what it promises)."""

    def __init__(self, topics: Topics, partition: int) -> None:
        self._topics, self._partition = topics, partition
        make_folder(REAL, topics.folder(partition))
        super().__init__(topics.path, partition)
        self._known = followed(topics, partition).claims

    def put(self, sender: str, claim: Claim) -> None:
        """Note who has a name.

        Raises:
            BrokerError: It may be noted, or come to be: put it again.
        """
        _note(self._topics, self._partition, claim_memo(sender, claim))
        super().put(sender, claim)


def ended_senders(topics: Topics, partition: int) -> list[str]:
    """Return the senders that have ended in a partition."""
    return followed(topics, partition).ended


def note_end(topics: Topics, partition: int, sender: str) -> None:
    """Note, durably, that a sender has ended in a partition."""
    _note(topics, partition, ended_memo(sender))
    make_folder(REAL, topics.folder(partition))
    add_end(topics.path, partition, sender, REAL)


def followed(topics: Topics, partition: int) -> Noted:
    """Return what is noted; a writer of this host has read all that there is."""
    Follower(topics, partition).follow()
    return known(topics.path, partition, topics.folder(partition))


def _note(topics: Topics, partition: int, noted: Mapping[str, Any]) -> None:  # Any: JSON
    record = pack(memo(**noted))
    appender(topics.connection).append(topics.index(partition), [record], patience=_PATIENCE_S)
