"""Make a PNG small: 256 colours, which is plenty for a page, and the best compression.

Only what Chromium writes is read: 8 bits a channel, not interlaced.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def shrink(file: Path) -> None:
    """Write a picture again with 256 colours at most, if it is smaller then."""
    pixels = read(file.read_bytes())
    small = encoded(*quantised(pixels))
    if len(small) < file.stat().st_size:
        file.write_bytes(small)


def read(data: bytes) -> np.ndarray:
    """Return the pixels of a picture, as rows of red, green and blue."""
    assert data.startswith(_SIGNATURE)
    at, packed, head = 8, b"", b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        head = body if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    assert (depth, interlaced) == (8, 0)
    channels = {2: 3, 6: 4}[colours]
    raw = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)
    rows = np.zeros((height + 1, width + 1, channels), np.int32)  # with a border of zeros
    for number in range(height):
        line = raw[number, 1:].reshape(width, channels).astype(np.int32)
        _unfilter(int(raw[number, 0]), line, rows, number + 1)
    return rows[1:, 1:, :3].astype(np.uint8)


def _unfilter(kind: int, line: np.ndarray, rows: np.ndarray, number: int) -> None:
    above, here = rows[number - 1], rows[number]
    if kind == 0:
        here[1:] = line
    elif kind == 1:
        here[1:] = np.cumsum(line, axis=0) & 255
    elif kind == 2:
        here[1:] = (line + above[1:]) & 255
    else:
        for x in range(1, len(here)):
            left, up, corner = here[x - 1], above[x], above[x - 1]
            guess = (left + up) // 2 if kind == 3 else _paeth(left, up, corner)
            here[x] = (line[x - 1] + guess) & 255


def _paeth(left: np.ndarray, up: np.ndarray, corner: np.ndarray) -> np.ndarray:
    near = left + up - corner
    a, b, c = abs(near - left), abs(near - up), abs(near - corner)
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, up, corner))


def quantised(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a palette of 256 colours at most, and each pixel's place in it: by median cut."""
    flat = pixels.reshape(-1, 3)
    codes = flat.astype(np.int64) @ np.array([65536, 256, 1])
    known, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([known >> 16, known >> 8 & 255, known & 255], axis=1)
    boxes = [np.arange(len(known))]
    while len(boxes) < 256:
        spread = [np.ptp(colours[box], axis=0).max() * np.sqrt(counts[box].sum()) for box in boxes]
        if max(spread) == 0:
            break
        boxes += _halves(boxes.pop(int(np.argmax(spread))), colours, counts)
    palette = np.array([np.average(colours[box], axis=0, weights=counts[box]) for box in boxes])
    owner = np.empty(len(known), np.uint8)
    for number, box in enumerate(boxes):
        owner[box] = number
    return palette.round().astype(np.uint8), owner[places].reshape(pixels.shape[:2])


def _halves(box: np.ndarray, colours: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    axis = int(np.argmax(np.ptp(colours[box], axis=0)))
    order = box[np.argsort(colours[box, axis], kind="stable")]
    weight = np.cumsum(counts[order])
    cut = int(np.searchsorted(weight, weight[-1] / 2)) + 1
    cut = min(max(cut, 1), len(order) - 1)
    return [order[:cut], order[cut:]]


def encoded(palette: np.ndarray, places: np.ndarray) -> bytes:
    """Return a picture with a palette."""
    height, width = places.shape
    raw = np.zeros((height, width + 1), np.uint8)
    raw[:, 1:] = places
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", palette.tobytes())]
    parts += [(b"IDAT", zlib.compress(raw.tobytes(), 9)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return _SIGNATURE + b"".join(chunks)
