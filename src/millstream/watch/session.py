"""Sessions between devices: who may speak, in which order, and what an answer means; pure rules.

    sender                                     receiver
    Hello(device, incarnation, digest, clock)  ──▶  known key? its name? the same patterns?
                                               ◀──  Welcome(device, incarnation, clock)
    Letter(both incarnations, number 1, Say)   ──▶  a session? a higher number than before? merged,
                                               ◀──  Answer(number 1, Ack)                   synced
    Letter(.., number 2, ..)                   ──▶  ...

A session is a pair of incarnations: of one start of the sender and one of the receiver. Numbers in
it rise, so what comes again, or late, is refused. What does not follow the protocol is refused with
a reason and changes nothing. A large message goes as several letters (pieces.py), one at a time; the
acknowledgement of the last one counts.

The clocks of both are compared with every answer. Where devices stamp events, one whose clock is
off by more than `skew` is not spoken to until it is right again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from millstream.clock import MICROSECOND
from millstream.errors import BadFrame
from millstream.flow import durations
from millstream.watch.messages import Ack, Count, Hello, Name, Refused, Say, Welcome
from millstream.watch.rows import DEPTH, shallow

MAGIC: Final = b"MSW1"
_SHOWN: Final = 300
_EARLIER: Final = 64


class Letter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message in a session; `last`: no further pieces of it follow."""

    sender: Name
    receiver: Name
    number: Count
    last: bool
    say: Say


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The acknowledgement of a letter."""

    number: Count
    ack: Ack


Request: TypeAlias = Hello | Letter
Reply: TypeAlias = Welcome | Answer | Refused


def _no_extension(code: int, _data: memoryview) -> Any:
    raise ValueError(f"extension {code}")


_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(Request, ext_hook=_no_extension)
_replies: Final = msgspec.msgpack.Decoder(Reply, ext_hook=_no_extension)


def encode(message: Request | Reply) -> bytes:
    """Return the bytes of a message."""
    return MAGIC + _encoder.encode(message)


def request(frame: bytes) -> Request:
    """Return the request in bytes.

    Raises:
        BadFrame: There is none.
    """
    found: Request = _decoded(_requests, frame)
    if isinstance(found, Letter):
        values = (value for event in found.say.events for value in event.row.values())
        if not all(shallow(value) for value in values):
            raise BadFrame(f"a value is nested more than {DEPTH} levels deep")
    return found


def reply(frame: bytes) -> Reply:
    """Return the answer in bytes.

    Raises:
        BadFrame: There is none.
    """
    found: Reply = _decoded(_replies, frame)
    return found


def _decoded(decoder: msgspec.msgpack.Decoder[Any], frame: bytes) -> Any:
    if frame[: len(MAGIC)] != MAGIC:
        raise BadFrame("this is not a message of a watcher")
    try:
        return decoder.decode(memoryview(frame)[len(MAGIC) :])
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise BadFrame(f"a message cannot be read: {error}") from error


# receiving


@dataclass(slots=True)
class _Session:
    incarnation: str
    number: int = 0


class Sessions:
    """The sessions of peers that speak to this device."""

    def __init__(self, device: str, incarnation: str, digest: str, peers: Collection[str]) -> None:
        self._device, self._incarnation, self._digest = device, incarnation, digest
        self._peers = frozenset(peers)
        self._sessions: dict[str, _Session] = {}
        self._earlier: dict[str, deque[str]] = {peer: deque(maxlen=_EARLIER) for peer in peers}

    def incarnation(self, peer: str) -> str | None:
        """Return the incarnation that a peer speaks under."""
        session = self._sessions.get(peer)
        return None if session is None else session.incarnation

    def hello(self, peer: str | None, hello: Hello, clock: int) -> Welcome | Refused:
        """Return the answer to a hello of the one with a peer's key; None: we know no such key."""
        if peer is None or peer not in self._peers:
            return Refused(f'this key is not that of a peer of device "{self._device}"')
        if hello.device != peer:
            return Refused(f'the key of device "{peer}" is used under the name "{hello.device}"')
        if hello.digest != self._digest:
            return Refused(
                f'device "{self._device}" watches other patterns: '
                f"{self._digest[:12]} there, {hello.digest[:12]} here"
            )
        if hello.incarnation in self._earlier[peer]:
            return Refused(f'this start of device "{peer}" has ended, another one followed it')
        session = self._sessions.get(peer)
        if session is None or session.incarnation != hello.incarnation:
            if session is not None:
                self._earlier[peer].append(session.incarnation)
            self._sessions[peer] = _Session(hello.incarnation)
        return Welcome(self._device, self._incarnation, clock)

    def letter(self, peer: str | None, letter: Letter) -> Refused | None:
        """Count a letter; return why it is refused, if it is."""
        session = None if peer is None else self._sessions.get(peer)
        if peer is None or peer not in self._peers:
            return Refused(f'this key is not that of a peer of device "{self._device}"')
        if session is None or letter.receiver != self._incarnation:
            return Refused(f'device "{self._device}" has started again: it expects a hello')
        if letter.sender != session.incarnation:
            return Refused(f'this start of device "{peer}" has ended, another one followed it')
        if letter.number <= session.number:
            return Refused(f"letter {letter.number} came again or late, after {session.number}")
        session.number = letter.number
        return None


# sending


@dataclass(frozen=True, slots=True)
class Send:
    """An order: send this."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The whole message has reached the peer."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class Failed:
    """The message, or a hello (None), has not; `refused`: the peer, or its clock, is the reason."""

    number: int | None
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Greeted:
    """The peer has answered a hello: messages can be sent."""


Outcome: TypeAlias = Send | Greeted | Acknowledged | Failed


class Sender:
    """The way of one message after the other to one peer. Times are microseconds.

    Args:
        peer: The name of the peer.
        hello: Ours, with a clock that is filled in when it is sent.
        limit: How long an answer may take.
        skew: How far clocks may differ; None if nobody stamps events.
    """

    def __init__(self, peer: str, hello: Hello, *, limit: int, skew: int | None) -> None:
        self._peer, self._hello, self._limit, self._skew = peer, hello, limit, skew
        self._receiver: str | None = None
        self._number = 0
        self._pieces: deque[Say] = deque()
        self._message: int | None = None
        self._sent_at = 0
        self.deadline: int | None = None
        """When the answer that is awaited is overdue; None if none is."""
        self.offset: int | None = None
        """How far the peer's clock is ahead of ours."""

    @property
    def greeted(self) -> bool:
        """Whether there is a session, so that a message can be sent."""
        return self._receiver is not None

    def greet(self, now: int, clock: int) -> Send:
        """Begin a session."""
        self._message = None
        self.deadline, self._sent_at = now + self._limit, now
        return Send(encode(msgspec.structs.replace(self._hello, clock=clock)))

    def begin(self, pieces: Sequence[Say], now: int, clock: int) -> Send:
        """Begin with a message, in its pieces; there is a session."""
        self._pieces, self._message = deque(pieces), pieces[0].number
        return self._next(now, clock)

    def answered(self, frame: bytes, now: int, clock: int) -> Outcome | None:
        """Return what follows from an answer; None if it is of no use any more."""
        if self.deadline is None:
            return None
        try:
            found = reply(frame)
        except BadFrame as error:
            return self._fail(error.message)
        if isinstance(found, Refused):
            return self._fail(found.reason, refused=True)
        if isinstance(found, Welcome):
            return self._welcome(found, now, clock)
        if self._message is None or found.number != self._number:
            return None
        self._measure(found.ack.clock, now, clock)
        if self._off:
            return self._fail(self._off, refused=True)
        last = self._pieces.popleft()
        if self._pieces:
            return self._next(now, clock)
        self.deadline = None
        if found.ack.number != last.number:
            return self._fail(f"message {last.number} got the answer to {found.ack.number}")
        return Acknowledged(found.ack)

    def overdue(self, now: int) -> Failed | None:
        """Return the failure of a message whose answer has not come in time."""
        if self.deadline is None or now < self.deadline:
            return None
        return self._fail(f"no response within {durations.format(self._limit * MICROSECOND)}")

    def lost(self, reason: str) -> Failed | None:
        """The connection is gone, and with it the session."""
        self._receiver = None
        return None if self.deadline is None else self._fail(reason)

    def _welcome(self, welcome: Welcome, now: int, clock: int) -> Outcome | None:
        if self._receiver is not None:
            return None  # the answer to an earlier hello
        if welcome.device != self._peer:
            return self._fail(
                f'this is device "{welcome.device}", not "{self._peer}"', refused=True
            )
        self._measure(welcome.clock, now, clock)
        if self._off:
            return self._fail(self._off, refused=True)
        self._receiver, self.deadline = welcome.incarnation, None
        return Greeted()

    def _next(self, now: int, clock: int) -> Send:
        assert self._receiver is not None, "there is a session"
        self.deadline, self._sent_at = now + self._limit, now
        self._number += 1
        say = msgspec.structs.replace(self._pieces[0], clock=clock)
        last = len(self._pieces) == 1
        letter = Letter(self._hello.incarnation, self._receiver, self._number, last, say)
        return Send(encode(letter))

    @property
    def _off(self) -> str:
        """Why the peer's clock keeps it from replicating, if it does."""
        if self._skew is None or self.offset is None or abs(self.offset) <= self._skew:
            return ""
        off = durations.format(abs(self.offset) // 1000 * 1000 * MICROSECOND)
        way = "ahead of" if self.offset > 0 else "behind"
        most = durations.format(self._skew * MICROSECOND)
        return f"its clock is {off} {way} ours, more than {most}"

    def _measure(self, theirs: int, now: int, clock: int) -> None:
        """Compare clocks: the answer was written halfway between, give or take half the way."""
        half = (now - self._sent_at) // 2
        offset = theirs - (clock - half)
        self.offset = 0 if abs(offset) <= half else offset

    def _fail(self, reason: str, *, refused: bool = False) -> Failed:
        self.deadline, self._receiver = None, None
        self._pieces.clear()
        return Failed(self._message, reason[:_SHOWN], refused)
