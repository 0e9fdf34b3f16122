"""State values as bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw


def encode(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def decode(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def encode_all(values: list[Any]) -> list[bytes]:
    """Return what `encode` returns for each value, with few calls."""
    return list(map(bytes, _PARTS.decode(encode(values))))


def decode_all(data: list[bytes]) -> list[Any]:
    """Return what `decode` returns for each, with one call."""
    found: list[Any] = decode(b"\xdd" + len(data).to_bytes(4, "big") + b"".join(data))
    return found


_PARTS: Final = msgspec.msgpack.Decoder(list[Raw])
