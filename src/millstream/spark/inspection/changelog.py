"""Which versions a changelog of RocksDB continues: its file begins with them where names are unique.

A file is blocks, as Spark compresses them, of texts behind their lengths, and then of the changes:

    "LZ4Block" | method | length | original length | checksum | data
    "v4" | [{"version": 3, "checkpointUniqueId": "..."}, ...] | changes
"""

from __future__ import annotations

import json
import struct
from typing import Final

import pyarrow as pa

_BLOCK: Final = struct.Struct("<8sBiii")
_MAGIC: Final = b"LZ4Block"
#: The upper half of a block's method, if it is not compressed.
_RAW: Final = 0x10


def lineage(data: bytes) -> list[tuple[int, str]]:
    """Return the versions before that of a changelog, each with the text in its file's name.

    Raises:
        ValueError: It is no such file.
    """
    version, at = _text(data, 0)
    if version not in ("v3", "v4"):
        raise ValueError(f'it is a changelog of version "{version}"')
    found = json.loads(_text(data, at)[0])
    return [(int(one["version"]), str(one["checkpointUniqueId"])) for one in found]


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return a text as Java writes it, and where it ends."""
    begin = at + 2
    end = begin + int.from_bytes(_plain(data, begin)[at:begin], "big")
    return _plain(data, end)[begin:end].decode(), end


def _plain(data: bytes, wanted: int) -> bytes:
    """Return so many bytes of what is compressed, or more."""
    found, at = b"", 0
    while len(found) < wanted:
        if len(data) < at + _BLOCK.size:
            raise ValueError("it ends too early")
        magic, method, length, original, _ = _BLOCK.unpack_from(data, at)
        block = data[at + _BLOCK.size : at + _BLOCK.size + length]
        if magic != _MAGIC or len(block) < length:
            raise ValueError("it is damaged")
        found += block if method & 0xF0 == _RAW else _decompressed(block, original)
        at += _BLOCK.size + length
    return found


def _decompressed(block: bytes, size: int) -> bytes:
    try:
        return bytes(pa.Codec("lz4_raw").decompress(block, size, asbytes=True))
    except OSError as error:
        raise ValueError(str(error)) from error
