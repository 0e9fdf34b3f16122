"""Many texts are hashed as the package xxhash hashes each."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from millstream.journal.hashing import hashes

SEEDS = (0, 42, 2**64 - 1)


@pytest.mark.parametrize("length", [*range(80), 96, 127, 256])
def test_each_length_has_the_hash_of_one_text(length: int) -> None:
    texts = np.random.default_rng(length).integers(0, 256, (9, length), dtype=np.uint8)
    for seed in SEEDS:
        expected = [xxhash.xxh64_intdigest(one.tobytes(), seed=seed) for one in texts]
        assert hashes(texts, seed).tolist() == expected


@given(
    st.integers(0, 70).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=1))
)
def test_any_bytes_have_the_hash_of_one_text(texts: list[bytes]) -> None:
    rows = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), len(texts[0]))
    assert hashes(rows, 42).tolist() == [xxhash.xxh64_intdigest(one, seed=42) for one in texts]
