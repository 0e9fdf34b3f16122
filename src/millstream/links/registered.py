"""The listeners of this process, by port: an outbox beside them calls its inbox, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.links.listener import Listener

REGISTERED: Final[dict[int, Listener]] = {}
