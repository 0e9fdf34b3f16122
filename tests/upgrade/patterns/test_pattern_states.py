"""States of patterns that earlier releases saved are still loaded and matched on; what is written stays the same."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from upgrade.patterns.make import CLAUSES, Case, pattern

FOLDER = Path(__file__).parent
SAVED = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("format_*/*.state"))
#: What the newest release writes; earlier ones kept a run for each state that a history waits in.
NEWEST = max(path.parts[0] for path in SAVED)


@pytest.fixture(params=SAVED, ids=str)
def saved(request: pytest.FixtureRequest) -> tuple[str, bytes, dict[str, Any]]:
    return opened(request.param)


def opened(place: Path) -> tuple[str, bytes, dict[str, Any]]:
    path, name = FOLDER / place.parent, place.stem
    expected = json.loads((path / f"{name}.json").read_text())
    return name, (path / f"{name}.state").read_bytes(), expected


def test_a_saved_state_goes_on_matching(saved):
    name, state, expected = saved
    assert in_any_order(Case.named(name).continued(state)) == in_any_order(expected["found"])
    assert expected["found"]


def in_any_order(found: list[Any]) -> list[str]:
    """Return matches for comparing: which one of a batch comes first is not promised."""
    return sorted(json.dumps(one) for one in found)


@pytest.mark.parametrize("place", [one for one in SAVED if one.parts[0] == NEWEST], ids=str)
def test_the_same_state_is_written(place):
    name, state, _ = opened(place)
    assert content(Case.named(name).saved()) == content(state)


def test_a_state_from_before_states_were_compressed_goes_on_matching(saved):
    name, state, expected = saved
    if state[:4] == b"MSPS":
        before = b"MSPS" + (2).to_bytes(2, "little") + pressed_content(state)
        found = Case.named(name).continued(before)
        assert in_any_order(found) == in_any_order(expected["found"])


def test_a_pattern_is_described_in_the_same_words(saved):
    name, _, expected = saved
    assert (None if name in CLAUSES else pattern(name).described()) == expected["described"]


class _Standard(pickle.Unpickler):
    """Reads values of Python's own types alone: the name of a class of ours would bind it for ever."""

    def find_class(self, module: str, name: str) -> Any:
        assert module in ("datetime", "decimal"), f"{module}.{name} is in a saved state"
        return super().find_class(module, name)


def content(state: bytes) -> Any:
    """Return what is in a state, with Arrow's and the compression's bytes read."""
    mark, version = state[:4], int.from_bytes(state[4:6], "little")
    if mark == b"MSPP":
        keys, rows, numbers, sequence, kind = _Standard(io.BytesIO(state[6:])).load()
        return mark, version, keys, table(rows), numbers, sequence, table(kind)
    if mark == b"MSPN":
        parts = msgspec.msgpack.decode(state[6:])
        return mark, version, content(parts["inner"]), table(parts["memory"]), parts["counts"]
    assert mark == b"MSPS"
    parts = msgspec.msgpack.decode(pressed_content(state))
    return mark, version, {**parts, **{one: table(parts[one]) for one in ("keys", "rows", "words")}}


def pressed_content(state: bytes) -> bytes:
    size = int.from_bytes(state[6:14], "little")
    return pa.decompress(state[14:], decompressed_size=size, codec="lz4_raw", asbytes=True)


def table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
