"""The versions that a changelog continues are read from the beginning of its file."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.inspection.changelog import lineage


def java_text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def blocks(data: bytes, size: int, compress: bool) -> bytes:
    """Compress as Spark does."""
    found = b""
    for at in range(0, len(data), size):
        plain = data[at : at + size]
        block = pa.Codec("lz4_raw").compress(plain, asbytes=True) if compress else plain
        method = 0x25 if compress else 0x15
        found += struct.pack("<8sBiii", b"LZ4Block", method, len(block), len(plain), 0) + block
    return found


@given(
    st.lists(st.tuples(st.integers(1, 1 << 40), st.uuids().map(str)), max_size=80),
    st.integers(1, 9000),
    st.booleans(),
)
def test_a_changelog_names_the_versions_that_it_continues(
    chain: list[tuple[int, str]], size: int, compress: bool
) -> None:
    items = [{"version": version, "checkpointUniqueId": one} for version, one in chain]
    data = java_text("v4") + java_text(json.dumps(items)) + b"\x01 changes" * 20
    assert lineage(blocks(data, size, compress)) == chain


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no blocks, but more bytes than the head of one has",
        blocks(java_text("v2"), 100, compress=True),
        blocks(java_text("v4") + java_text("[]"), 100, compress=True)[:-1],
        blocks(java_text("v4") + b"\x00\x09[", 100, compress=False),
        struct.pack("<8sBiii", b"LZ4Block", 0x25, 20, 20, 0) + b"\xff" * 20,
    ],
)
def test_another_file_is_no_changelog(data: bytes) -> None:
    with pytest.raises(ValueError):
        lineage(data)
