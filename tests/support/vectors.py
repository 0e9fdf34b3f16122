"""The byte vectors that we and all SDKs are tested against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "sdk" / "vectors.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def payload_of(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["payload"]) * int(vector.get("repeat", 1))


def bytes_of(vector: dict[str, Any]) -> bytes:
    """Return the frame of a vector."""
    if "bytes" in vector:
        return bytes.fromhex(vector["bytes"])
    return bytes.fromhex(vector["head"]) + payload_of(vector)
