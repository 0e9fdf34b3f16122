from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.actions.frames import LIMIT, Decoder, encode, encode_all
from millstream.errors import FrameTooLarge, FrameTorn
from support.vectors import VECTORS, bytes_of, payload_of

FRAMES = VECTORS["frames"]


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("vector", FRAMES, ids=lambda v: v["name"])
def test_a_vector_is_encoded_and_decoded(vector):
    assert encode(payload_of(vector)) == bytes_of(vector)
    assert Decoder().feed(bytes_of(vector)) == [payload_of(vector)]


def test_all_vectors_together_are_decoded_byte_by_byte():
    payloads = [payload_of(v) for v in FRAMES]
    data = encode_all(payloads)
    assert data == b"".join(bytes_of(v) for v in FRAMES)
    decoder = Decoder()
    assert [frame for i in range(len(data)) for frame in decoder.feed(data[i : i + 1])] == payloads
    decoder.finish()


@pytest.mark.parametrize("vector", VECTORS["broken"], ids=lambda v: v["name"])
def test_a_broken_stream_is_refused(vector):
    decoder = Decoder()
    error = {"torn": FrameTorn, "large": FrameTooLarge}[vector["error"]]
    got: list[bytes] = []

    def read() -> None:
        got.extend(decoder.feed(bytes.fromhex(vector["bytes"])))
        decoder.finish()

    with pytest.raises(error):
        read()
    assert [frame.hex() for frame in got] == vector.get("frames", [])


def test_the_limit_is_that_of_the_vectors():
    assert VECTORS["limit"] == LIMIT


def test_a_frame_of_exactly_the_limit_is_taken():
    assert Decoder(limit=3).feed(encode(b"abc")) == [b"abc"]
    with pytest.raises(FrameTooLarge, match="4 bytes is longer than the limit of 3"):
        Decoder(limit=3).feed(encode(b"abcd"))


def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept():
    decoder = Decoder(limit=1000)
    tracemalloc.start()
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"\x7f\xff\xff\xff" * 1000)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_long_frame_in_small_pieces_is_copied_once():
    payload = bytes(16 << 20)
    data, decoder = encode(payload), Decoder()
    got = [frame for i in range(0, len(data), 4096) for frame in decoder.feed(data[i : i + 4096])]
    assert got == [payload]


@given(st.lists(st.binary(max_size=40), max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_any_pieces_give_the_same_frames(payloads, chance):
    decoder = Decoder()
    assert [
        f for piece in pieces(encode_all(payloads), chance) for f in decoder.feed(piece)
    ] == payloads
    decoder.finish()


@given(st.binary(max_size=200), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_frames_that_encode_to_them_or_an_error(data, chance):
    decoder = Decoder(limit=100)
    got: list[bytes] = []
    try:
        for piece in pieces(data, chance):
            got += decoder.feed(piece)
    except FrameTooLarge:
        assert data.startswith(encode_all(got))
    else:
        assert data.startswith(encode_all(got))
        assert len(encode_all(got)) + decoder.pending == len(data)
