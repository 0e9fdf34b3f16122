"""What the audit log shows of producers: that one connects, ends a source, or is refused."""

from __future__ import annotations

import time
from collections.abc import Callable

from millstream.engine.access.audit import NOBODY, AuditEntry, AuditLog
from millstream.errors import MillstreamError, NotAllowed
from millstream.links import envelope
from millstream.links.standing import Peer, Standing


def audited(log: AuditLog) -> Callable[[Peer, envelope.Request, MillstreamError | None], None]:
    """Return what notes the requests of producers, by the names of their keys.

    Rows are not noted. What this user does on this host is the engine's own.
    """

    def note(peer: Peer, request: envelope.Request, refused: MillstreamError | None) -> None:
        what = _what(request)
        denied = isinstance(refused, NotAllowed)
        if peer.standing is Standing.OWN or not (denied or (what and refused is None)):
            return
        what = what or str(request.__struct_config__.tag)
        # What a stranger writes is not written down.
        known = peer.name is not None
        reason = "not without a key" if denied else None
        entry = AuditEntry(
            who=peer.name or NOBODY,
            address="inboxes",
            what=what,
            outcome="refused" if denied else "done",
            request=f"{what} {request.source}" if known else what,
            job=request.source.partition(".")[0] if known else None,
            reason=refused.message if known and refused is not None else reason,
        )
        log.write(entry, time.time())

    return note


def _what(request: envelope.Request) -> str | None:
    match request:
        case envelope.Ask():
            return "connect"
        case envelope.Instruct(kind="END_OF_STREAM"):
            return "end"
    return None
