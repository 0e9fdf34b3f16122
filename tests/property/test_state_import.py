"""State that is imported is taken over by each shard once, whatever is run again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.state import Entry, ShardState, StateFiles, entries
from millstream.state.importing import current, imported, put
from millstream.state.manifest import load
from millstream.storage import Folder

encode = msgspec.msgpack.encode
numbers = st.dictionaries(st.integers(0, 30), st.integers(0, 9), max_size=12)
#: Changes of a batch, and whether its commit is lost, so that it is run again.
batches = st.lists(st.tuples(numbers, st.booleans()), max_size=5)


def changes(values: dict[int, int]) -> dict[bytes, Entry]:
    return {encode([key]): Entry(encode(value), key) for key, value in values.items()}


@settings(max_examples=60, deadline=None)
@given(batches, numbers, batches, st.booleans())
def test_a_shard_goes_on_with_what_was_imported(
    before: list[tuple[dict[int, int], bool]],
    given_state: dict[int, int],
    after: list[tuple[dict[int, int], bool]],
    crashed: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = StateFiles(Folder(Path(folder)), "sums", retain=3, inline=60)
        model: dict[int, int] = {}
        data = run(files, b"", before, model)
        if crashed:  # before the decision: the shard knows nothing of it
            put(files, 7, {0: data} if data else {}, {0: changes({99: 1})})
            (Path(folder) / "keys/sums/imported.json").unlink()
            assert imported(files.storage, "sums") is None
        decision = put(files, 7, {0: data} if data else {}, {0: changes(given_state)})
        assert imported(files.storage, "sums") == decision
        model = dict(given_state)
        assert read(files, current(files, decision, {0: data} if data else {})[0]) == model
        taking = StateFiles(files.storage, "sums", 3, 60, imported=decision.token)
        data = run(taking, data, after, model)
        assert read(taking, current(taking, decision, {0: data} if data else {})[0]) == model


def run(
    files: StateFiles, data: bytes, turns: list[tuple[dict[int, int], bool]], model: dict[int, int]
) -> bytes:
    for values, again in turns:
        for _ in range(1 + again):  # a batch that is run again begins with the same bytes
            manifest = files.taken_over(0, load(data))
            stored = ShardState(manifest, files, 0).commit(changes(values))
        data = data if stored is None else stored
        model.update(values)
    return data


def read(files: StateFiles, data: bytes) -> dict[int, int]:
    return {msgspec.msgpack.decode(key)[0]: value for key, value, _ in entries(data, files.open)}
