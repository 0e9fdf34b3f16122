"""Who may send under which name: the claims of clients on names, and the keys that have them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from millstream.errors import BrokerError, LinkError, NotAllowed, WriterBroken
from millstream.links.admission import NOTHING
from millstream.links.grants import Grant, may_send_as
from millstream.links.inbox_store import InboxStore, Sender

_log = logging.getLogger(__name__)


class InboxRights:
    """The names of an inbox's senders. Any thread may call."""

    def __init__(self, name: str, store: InboxStore) -> None:
        self.name, self._store, self._guard = name, store, store.guard

    def claim(self, sender: str, incarnation: int) -> int:
        """Let a client have a sender's name, if no newer one has; return whose it is, durably.

        Raises:
            WriterBroken: The disk, or the broker, refuses; ask again.
        """
        try:
            with self._guard:
                return self._store.claims.take(sender, incarnation)
        except (OSError, BrokerError) as error:
            raise WriterBroken(f'inbox "{self.name}": {error}', hint="ask again") from error

    def authorise(self, sender: str, key: str, grant: Grant, keys: Collection[str]) -> None:
        """Let a key use a sender's name, if it is its own; `keys` are the names of all.

        Raises:
            NotAllowed: It is not.
        """
        with self._guard:
            claims, allowed = self._store.claims, partial(may_send_as, key, grant, sender, keys)
            stored, bound = self._store.writer.highest(sender) > NOTHING, claims.key(sender)
            if not allowed(stored=stored, bound=bound):
                listed = f'or list it as senders in "{key}.pub" at the engine'
                hint = f'begin the sender\'s name with "{key}", {listed}'
                raise NotAllowed(f'producer "{key}" may not send as "{sender}"', hint=hint)
            if bound is None and not allowed(stored=False, bound=None):
                _log.warning(
                    'inbox %s: sender "%s" belongs to key "%s" now', self.name, sender, key
                )
                claims.bind(sender, key)

    def check_jump(self, sender: str, known: Sender, incarnation: int, number: int) -> None:
        """Refuse numbers far beyond those before them, unless another client begins there."""
        jump = self._store.capacity.jump
        same = known.incarnation == incarnation
        if same and known.highest > NOTHING and number - known.highest > jump:
            before = f"and the one before it has {known.highest}"
            hint = f"numbers rise by at most {jump:,} at a time; connect again to go on there"
            raise LinkError(f'a row of "{sender}" has the number {number}, {before}', hint=hint)
        known.incarnation = incarnation
