"""What runtimes and their supervisors send, byte for byte; all integers are big-endian.

    upstream ── hello, message, message, ... ──▶ downstream
    upstream ◀── ack, ack, ...                 ── downstream
    supervisor ── ping, change_out ──▶ runtime, which answers each

    hello        u32 length │ scheme_node or scheme_node#generation; with a secret see handshake
    message      u32 id │ u16 reserved │ u16 flags │ u32 length │ payload
    ack          u32 id, for this message and all before it
    ping         01 -> 00 │ u32 oldest id in the queue, 0: none
                 01 -> 01 if the action does not run
    change_out   02 │ u64 length │ old │ u64 length │ new -> 00 or 01
    any other    -> 02

Each side reads what comes as a stream: the decoders here take bytes in any pieces and keep at most
one unfinished item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from millstream.actions.frames import LIMIT
from millstream.actions.handshake import PROOF_BYTES, Admission, Challenge
from millstream.errors import BadBytes, FrameTooLarge

PING: Final = 1
CHANGE_OUT: Final = 2
DONE: Final = b"\x00"
REFUSED: Final = b"\x01"
UNKNOWN: Final = b"\x02"

_LONGEST_NAME: Final = 1024
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_HEADER: Final = Struct(">IHHI")
_HELLO: Final = re.compile(r"([^\s#]+)(?:#(0|[1-9][0-9]{0,18}))?")


@dataclass(frozen=True, slots=True)
class Hello:
    """Who sends: a node of a scheme, and which life of it; None is a sender that is not ours."""

    node: str
    generation: int | None = None

    def __str__(self) -> str:
        return self.node if self.generation is None else f"{self.node}#{self.generation}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its id."""

    id: int
    payload: bytes
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """A command: tell how you are."""


@dataclass(frozen=True, slots=True)
class ChangeOut:
    """A command: send to `new` what `old` has not acknowledged, and all that comes."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command that we do not know; what follows it cannot be read."""

    code: int


Command = Ping | ChangeOut | UnknownCommand


def hello(who: Hello) -> bytes:
    """Return what an upstream says first.

    Example:
        >>> hello(Hello("a_b", 2)).hex(" ", -4)
        '00000005 615f6223 32'
    """
    name = str(who).encode()
    return _U32.pack(len(name)) + name


def message(id_: int, payload: bytes, flags: int = 0) -> bytes:
    return _HEADER.pack(id_, 0, flags, len(payload)) + payload


def messages(numbered: Iterable[tuple[int, bytes]]) -> bytes:
    """Return messages one after the other, as (id, payload)."""
    pack = _HEADER.pack
    pieces: list[bytes] = []
    for id_, payload in numbered:
        pieces += (pack(id_, 0, 0, len(payload)), payload)
    return b"".join(pieces)


def ack(id_: int) -> bytes:
    return _U32.pack(id_)


def pong(oldest: int) -> bytes:
    """Return the answer to a ping: the id of the oldest message in the queue, 0 if it is empty."""
    return DONE + _U32.pack(oldest)


def ping() -> bytes:
    return bytes([PING])


def change_out(old: str, new: str) -> bytes:
    first, second = old.encode(), new.encode()
    return bytes([CHANGE_OUT]) + _U64.pack(len(first)) + first + _U64.pack(len(second)) + second


class Arrivals:
    """Decodes what an upstream sends: its hello, its proof if there is a secret, then messages."""

    def __init__(self, limit: int = LIMIT, admission: Admission = Admission()) -> None:  # noqa: B008
        self.sender: Hello | None = None
        self._limit, self._admission = limit, admission
        self._rest = bytearray()
        self._wanted = _U32.size
        self._asked: tuple[Hello, Challenge] | None = None
        self._question = b""

    @property
    def unfinished(self) -> int:
        """The bytes that are kept of an item that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now; `sender` is known before the first of them.

        Raises:
            FrameTooLarge: A message is longer than the limit.
            BadBytes: The hello is not one.
            PeerRefused: The sender is not expected, or does not prove who it is.
        """
        self._rest += data
        if len(self._rest) < self._wanted:
            return []
        whole = bytes(self._rest)
        at = 0
        if self.sender is None:
            at = self._greet(whole) if self._asked is None else self._admit(whole, *self._asked)
        found: list[Message] = []
        if self.sender is not None:
            found, at = self._split(whole, at)
        self._rest = bytearray(memoryview(whole)[at:])
        return found

    def _greet(self, whole: bytes) -> int:
        (length,) = _U32.unpack_from(whole)
        if not 0 < length <= _LONGEST_NAME:
            hint = "a runtime says its node's name first"
            raise BadBytes(f"a hello of {length:,} bytes is none", hint=hint)
        self._wanted = _U32.size + length
        if len(whole) < self._wanted:
            return 0
        said, at = whole[_U32.size : self._wanted], self._wanted
        hello = parsed_hello(said.partition(b" ")[0])
        challenge = self._admission.challenge(hello.node, said)
        if challenge is None:
            self.sender, self._wanted = hello, _HEADER.size
        else:
            self._asked, self._wanted = (hello, challenge), PROOF_BYTES
            self._question = challenge.question
        return at

    def _admit(self, whole: bytes, hello: Hello, challenge: Challenge) -> int:
        challenge.check(whole[:PROOF_BYTES])
        self.sender, self._wanted = hello, _HEADER.size
        return PROOF_BYTES

    def reply(self) -> bytes:
        """Return what the upstream has to be sent before it can prove who it is; once."""
        question, self._question = self._question, b""
        return question

    def _split(self, whole: bytes, at: int) -> tuple[list[Message], int]:
        found: list[Message] = []
        unpack, limit, size = _HEADER.unpack_from, self._limit, len(whole)
        self._wanted = _HEADER.size
        while size - at >= _HEADER.size:
            id_, _, flags, length = unpack(whole, at)
            if length > limit:
                msg = f"a message of {length:,} bytes is longer than the limit of {limit:,}"
                raise FrameTooLarge(msg)
            end = at + _HEADER.size + length
            if end > size:
                self._wanted = end - at
                break
            found.append(Message(id_, whole[at + _HEADER.size : end], flags))
            at = end
        return found, at


def parsed_hello(name: bytes) -> Hello:
    """Return who says this.

    Raises:
        BadBytes: It is not a name, or its generation is not a number.
    """
    try:
        match = _HELLO.fullmatch(name.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        hint = "expected scheme_node or scheme_node#generation"
        raise BadBytes(f"a hello says {name[:64]!r}", hint=hint)
    return Hello(match[1], None if match[2] is None else int(match[2]))


class Acks:
    """Decodes what a downstream sends: ids."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        whole = self._rest + data
        end = len(whole) - len(whole) % _U32.size
        self._rest = whole[end:]
        return [id_ for (id_,) in _U32.iter_unpack(whole[:end])]


class Commands:
    """Decodes what a supervisor sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Command]:
        """Return the commands that are complete. After an unknown one nothing more can be read.

        Raises:
            BadBytes: An address is too long, or not text.
        """
        self._rest += data
        found: list[Command] = []
        while self._rest:
            command = self._next()
            if command is None:
                break
            found.append(command)
            if isinstance(command, UnknownCommand):
                self._rest = b""
        return found

    def _next(self) -> Command | None:
        code = self._rest[0]
        if code == PING:
            self._rest = self._rest[1:]
            return Ping()
        if code != CHANGE_OUT:
            return UnknownCommand(code)
        old = self._address(1)
        new = None if old is None else self._address(old[1])
        if old is None or new is None:
            return None
        self._rest = self._rest[new[1] :]
        return ChangeOut(old[0], new[0])

    def _address(self, at: int) -> tuple[str, int] | None:
        begin = at + _U64.size
        if len(self._rest) < begin:
            return None
        (length,) = _U64.unpack_from(self._rest, at)
        if length > _LONGEST_NAME:
            raise BadBytes(f"an address of {length:,} bytes is none", hint="expected host:port")
        if len(self._rest) < begin + length:
            return None
        try:
            return self._rest[begin : begin + length].decode(), begin + int(length)
        except UnicodeDecodeError as error:
            raise BadBytes("an address is not text", hint="expected host:port") from error
