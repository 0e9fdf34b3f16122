"""The wire between devices: a listener for all peers, and a line to each of them.

Both are the sockets that links have, always with CURVE keys: what is sent is encrypted, and who has
sent it is known by its key. Only the devices in peers.yaml are let in, each under its own name; the
`.pub` file of a device that is removed from the folder of keys cuts it off within a second.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from millstream.clock import Clock
from millstream.errors import BadFrame, InvalidKey, InvalidSettings, LinkBroken, WatchError
from millstream.links import network, standing
from millstream.links.keys import KeyPair, read_key, read_public
from millstream.links.network import Address
from millstream.links.standing import Standing
from millstream.links.transport import Loop, Loss, Reply, ServerSocket, Wire
from millstream.watch import session
from millstream.watch.messages import Ack, Refused, Say
from millstream.watch.session import (
    Acknowledged,
    Answer,
    Failed,
    Greeted,
    Letter,
    Outcome,
    Send,
    Sender,
)
from millstream.watch.settings import Peer, Settings

_STRANGER: Final = "(unknown)"
_LOSSES: Final = {
    Loss.GONE: "the connection was lost",
    Loss.AWAY: "nobody listens there",
    Loss.REFUSED: "it does not know our key",
    Loss.UNGREETED: "it hung up on our greeting: it ended just then, or has another key",
}


def own_key(settings: Settings) -> KeyPair:
    """Return this device's key, once every device has one.

    Raises:
        InvalidSettings: A device has none.
        InvalidKey: The file of our own is missing or damaged.
    """
    without = [peer.name for peer in settings.peers if peer.public is None]
    if settings.key is None or without:
        msg = f'device "{(without or [settings.device])[0]}" has no key'
        hint = "make one for each device with millstream keys new NAME, and name the folder: keys:"
        raise InvalidSettings(msg, hint=hint)
    keys = read_key(settings.key)
    if settings.public is not None and keys.public != settings.public:
        msg = f'"{settings.key}" is not the key that the others know device "{settings.device}" by'
        hint = (
            f"it belongs to another public key than {settings.device}.pub, or than peers.yaml has"
        )
        raise InvalidKey(msg, hint=hint)
    return keys


class Listener:
    """Takes the messages of peers. `merge` returns what to acknowledge; it may refuse."""

    def __init__(
        self,
        settings: Settings,
        keys: KeyPair,
        sessions: session.Sessions,
        merge: Callable[[str, Say], Ack],
        clock: Clock,
    ) -> None:
        assert settings.listen is not None, "who has peers listens"
        self._settings, self._sessions, self._merge, self._clock = settings, sessions, merge, clock
        self._guard = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        wanted = Address.parse(settings.listen)
        self._socket = ServerSocket(
            None,
            wanted.ip,
            self._handle,
            self._too_much,
            port=wanted.port,
            keys=keys,
            known=self._known(),
            watched=settings.keys,
            on_change=self._known,
            most_bytes=settings.limits.message,
        )
        if self._socket.port != wanted.port:
            self._socket.close()
            msg = f"cannot listen on {settings.listen}: the port is taken"
            raise LinkBroken(msg, hint="end the program that has it, or change peers.yaml")

    def start(self) -> None:
        self._socket.start()

    def close(self) -> None:
        self._socket.close()

    def refusals(self) -> dict[str, tuple[int, str]]:
        """Return how often who was refused, and why the last time."""
        with self._guard:
            return {name: (self._counts[name], reason) for name, reason in self._reasons.items()}

    def _known(self) -> Mapping[bytes, standing.Peer]:
        found = {}
        for peer in self._settings.peers:
            if peer.public is not None and _still_known(peer):
                found[peer.public] = standing.Peer(Standing.PRODUCER, peer.name)
        return found

    def _handle(self, frames: list[Any], peer: standing.Peer, reply: Reply) -> None:
        name = peer.name if peer.standing is Standing.PRODUCER else None
        answer = self._answer(frames, name)
        if isinstance(answer, Refused):
            self._note(name, answer.reason)
        reply([session.encode(answer)])

    def _answer(self, frames: list[Any], name: str | None) -> session.Reply:
        try:
            if len(frames) != 1:
                return Refused(f"a message has {len(frames)} frames where one belongs")
            request = session.request(bytes(frames[0]))
        except BadFrame as error:
            return Refused(error.message)
        if not isinstance(request, Letter):
            return self._sessions.hello(name, request, self._clock.now_us())
        refused = self._sessions.letter(name, request)
        if refused is not None or name is None:
            return refused or Refused("this key is not known")
        try:
            ack = self._merge(name, request.say)
        except WatchError as error:
            return Refused(error.message)
        stamped = msgspec.structs.replace(ack, clock=self._clock.now_us())
        return Answer(request.number, stamped)

    def _too_much(self, _frames: list[Any], reason: str, reply: Reply) -> None:
        reply([session.encode(Refused(reason))])

    def _note(self, name: str | None, reason: str) -> None:
        with self._guard:
            self._reasons[name or _STRANGER] = reason[:300]
            self._counts[name or _STRANGER] += 1


def _still_known(peer: Peer) -> bool:
    if peer.file is None:
        return True
    try:
        return read_public(peer.file).public == peer.public
    except InvalidKey:
        return False


class Line:
    """The way to one peer, for the thread of its loop. `done` gets what becomes of messages."""

    def __init__(
        self,
        loop: Loop,
        peer: Peer,
        keys: KeyPair,
        sender: Sender,
        clock: Clock,
        done: Callable[[str, Greeted | Acknowledged | Failed], None],
    ) -> None:
        self._peer, self._sender, self._clock, self._done = peer, sender, clock, done
        host, port = network.split(peer.address)
        self._wire = Wire(
            loop,
            ip=host,
            port=port,
            folder=None,
            on_answer=self._answered,
            on_lost=self._lost,
            keys=keys,
            server=peer.public,
        )

    @property
    def deadline(self) -> int | None:
        return self._sender.deadline

    @property
    def offset(self) -> int | None:
        return self._sender.offset

    @property
    def greeted(self) -> bool:
        return self._sender.greeted

    def greet(self) -> None:
        """Find out whether the peer is there; nothing is on its way."""
        clock = self._clock
        self._follow(self._sender.greet(clock.elapsed_us(), clock.now_us()))

    def send(self, pieces: Sequence[Say]) -> None:
        """Begin to send a message to a peer that is there; none is on its way."""
        clock = self._clock
        self._follow(self._sender.begin(pieces, clock.elapsed_us(), clock.now_us()))

    def look(self) -> None:
        """Give up a message whose answer is overdue."""
        self._follow(self._sender.overdue(self._clock.elapsed_us()))

    def close(self) -> None:
        self._wire.close()

    def _answered(self, frame: bytes) -> None:
        clock = self._clock
        self._follow(self._sender.answered(frame, clock.elapsed_us(), clock.now_us()))

    def _lost(self, loss: Loss) -> None:
        self._follow(self._sender.lost(_LOSSES[loss]))

    def _follow(self, outcome: Outcome | None) -> None:
        if isinstance(outcome, Send):
            self._wire.send([outcome.frame])
        elif outcome is not None:
            if isinstance(outcome, Failed):
                self._wire.renew()  # what waits in the socket would come when nobody expects it
            self._done(self._peer.name, outcome)
