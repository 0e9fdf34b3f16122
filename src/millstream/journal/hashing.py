"""xxhash64 of many texts at once, with the results of the package xxhash.

A call for each text takes half a microsecond, most of it Python's. Texts of the same length take the same
steps, so numpy takes each step for all of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
#: A row for each text, with its bytes.
Texts = npt.NDArray[np.uint8]

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_1, _2, _3, _4, _5 = (np.uint64(one) for one in (_P1, _P2, _P3, _P4, _P5))


def hashes(texts: Texts, seed: int) -> Hashes:
    """Return the hash of each text."""
    rows, length = texts.shape
    at = length - length % 32
    found = _stripes(texts[:, :at], seed) if at else _all(rows, seed + _P5)
    found += np.uint64(length)
    while length - at >= 8:
        found ^= _mixed(np.uint64(0), _numbers(texts, at, np.uint64))
        found = _rotated(found, 27) * _1 + _4
        at += 8
    if length - at >= 4:
        found ^= _numbers(texts, at, np.uint32) * _1
        found = _rotated(found, 23) * _2 + _3
        at += 4
    for byte in range(at, length):
        found ^= texts[:, byte].astype(np.uint64) * _5
        found = _rotated(found, 11) * _1
    for shift, factor in ((33, _2), (29, _3)):
        found ^= found >> np.uint64(shift)
        found *= factor
    found ^= found >> np.uint64(32)
    return found


def _stripes(texts: Texts, seed: int) -> Hashes:
    """Return what is made of all 32 bytes that are whole."""
    rows, length = texts.shape
    sums = [_all(rows, seed + one) for one in (_P1 + _P2, _P2, 0, -_P1)]
    for at in range(0, length, 32):
        sums = [
            _mixed(one, _numbers(texts, at + 8 * lane, np.uint64)) for lane, one in enumerate(sums)
        ]
    found = sum(
        (_rotated(one, bits) for one, bits in zip(sums, (1, 7, 12, 18), strict=True)),
        start=_all(rows, 0),
    )
    for one in sums:
        found = (found ^ _mixed(np.uint64(0), one)) * _1 + _4
    return found


def _all(rows: int, number: int) -> Hashes:
    return np.full(rows, number & _WORD, np.uint64)


def _numbers(texts: Texts, at: int, kind: type[np.unsignedinteger[Any]]) -> Hashes:
    """Return the number that begins at a byte, of each text."""
    size = np.dtype(kind).itemsize
    part = np.ascontiguousarray(texts[:, at : at + size])
    return part.view(np.dtype(kind).newbyteorder("<")).ravel().astype(np.uint64)


def _mixed(sums: Hashes | np.uint64, words: Hashes) -> Hashes:
    return _rotated(sums + words * _2, 31) * _1


def _rotated(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
