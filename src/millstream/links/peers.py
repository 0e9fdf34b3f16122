"""What the one at the other end of a connection may ask of an inbox: pure rules.

own         this process, a UNIX socket of this user, or our own key: everything
producer    a key that we know: rows, and what belongs to them, under the key's name
open        TCP without keys: rows, and nothing else
unknown     a key that was removed since it connected: nothing
"""

from __future__ import annotations

from typing import Final

from millstream.errors import NotAllowed
from millstream.links import envelope
from millstream.links.standing import Peer, Standing

_PLAIN: Final = (envelope.Ask, envelope.Rows)
_PRODUCERS: Final = (
    *_PLAIN,
    envelope.Instruct,
    envelope.PutDeadLetter,
    envelope.Stage,
    envelope.Publish,
)
_DOES: Final = {
    "instruct": "end or advance",
    "bury": "add dead letters to",
    "stage": "publish epochs to",
    "publish": "publish epochs to",
}


def check(peer: Peer, request: envelope.Request) -> None:
    """Let a request through that its peer may make.

    Raises:
        NotAllowed: It may not.
    """
    match peer.standing:
        case Standing.OWN:
            return
        case Standing.UNKNOWN:
            raise NotAllowed("this key is not known any more", hint="ask for a new one")
        case Standing.OPEN if not isinstance(request, _PLAIN):
            msg = f'a connection without a key may not {_does(request)} "{request.source}"'
            hint = "it may send rows; connect with a key, or as the owner on the same host"
            raise NotAllowed(msg, hint=hint)
        case Standing.PRODUCER if not isinstance(request, _PRODUCERS):
            msg = f'producer "{peer.name}" may not {_does(request)} "{request.source}"'
            raise NotAllowed(msg, hint="the engines of a cluster do, all with the same key")
        case Standing.PRODUCER:
            _check_grant(peer, request)


def _check_grant(peer: Peer, request: envelope.Request) -> None:
    file = f'"{peer.name}.pub" at the engine'
    if not peer.grant.reaches(request.source):
        msg = f'producer "{peer.name}" may not send to "{request.source}"'
        raise NotAllowed(msg, hint=f'add it to the line sources = "..." in {file}')
    needed = "rows"
    if isinstance(request, envelope.Instruct):
        needed = "end" if request.kind == "END_OF_STREAM" else "watermark"
    if needed not in peer.grant.may and not isinstance(request, envelope.Ask):
        does = {"end": "end", "watermark": "declare a watermark of"}.get(needed, "send to")
        rights = ", ".join([*sorted(peer.grant.may), needed])
        msg = f'producer "{peer.name}" may not {does} "{request.source}"'
        raise NotAllowed(msg, hint=f'write may = "{rights}" into {file}')


def _does(request: envelope.Request) -> str:
    return _DOES.get(str(request.__struct_config__.tag), "follow")
