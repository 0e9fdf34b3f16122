"""State that is carried to another checkpoint is all that there was, changed as it should be, whatever is done again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.flow.stages.state_fit import fit_of_columns
from millstream.state import Entry, ShardState, StateFiles, entries
from millstream.state.carrying import (
    awaited,
    carry_as_it_is,
    carry_changed,
    decide_carried,
    promise,
)
from millstream.state.importing import current, imported
from millstream.state.manifest import load
from millstream.storage import Folder

encode = msgspec.msgpack.encode
values = st.dictionaries(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 9)), max_size=12)
batches = st.lists(values, max_size=6)


def run(files: StateFiles, data: bytes, turns: list[dict[int, int | None]], model: Any) -> bytes:
    for changed in turns:
        puts = {
            encode([key]): None if value is None else Entry(encode(value), key)
            for key, value in changed.items()
        }
        manifest = files.taken_over(0, load(data))
        data = ShardState(manifest, files, 0).commit(puts) or data
        for key, value in changed.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
    return data


def read(files: StateFiles, data: bytes) -> dict[int, Any]:
    return {msgspec.msgpack.decode(key)[0]: value for key, value, _ in entries(data, files.open)}


def double(value: int) -> int:
    if value == 7:
        raise ValueError("seven")
    return 2 * value


@settings(max_examples=60, deadline=None)
@given(batches, batches, st.booleans(), st.integers(0, 3))
def test_a_stage_goes_on_with_what_was_carried(
    before: list[dict[int, int | None]],
    after: list[dict[int, int | None]],
    changing: bool,
    deaths: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        old = StateFiles(Folder(Path(folder) / "old"), "sums", retain=3, inline=60)
        new = StateFiles(Folder(Path(folder) / "new"), "totals", retain=3, inline=60)
        model: dict[int, int] = {}
        data = run(old, b"", before, model)
        token = promise(new.storage, "totals")
        failed = []
        for _ in range(1 + deaths):  # a driver that dies begins again
            assert promise(new.storage, "totals") == token
            assert awaited(new.storage, "totals")
            if changing:
                failed = carry_changed(old, new, token, 0, data, double)
            else:
                carry_as_it_is(old, new, token, 0, data)
        decide_carried(new, token, [0])
        assert not awaited(new.storage, "totals")
        shutil.rmtree(Path(folder) / "old", ignore_errors=True)
        assert len(failed) == (list(model.values()).count(7) if changing else 0)
        if changing:
            model = {key: 2 * value for key, value in model.items() if value != 7}
        decision = imported(new.storage, "totals")
        assert read(new, current(new, decision, {})[0]) == model
        taking = StateFiles(new.storage, "totals", 3, 60, imported=token)
        assert read(taking, run(taking, b"", [*after, {99: 1}], model)) == model


types = st.sampled_from(["int", "bigint", "double"])
states = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.sampled_from("xyz"), types, min_size=1), min_size=1
)


@given(states, states)
def test_a_state_that_fits_has_the_columns_of_the_new_stage(
    old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]
) -> None:
    before, after = (
        tuple((name, tuple(columns.items())) for name, columns in one.items()) for one in (old, new)
    )
    initial = {state: dict.fromkeys(columns, 7) for state, columns in new.items()}
    fit = fit_of_columns(before, after, initial)
    lost = [
        (state, name)
        for state, columns in old.items()
        for name, kind in columns.items()
        if new.get(state, {}).get(name) not in ({kind, "bigint"} if kind == "int" else {kind})
    ]
    gone = [state for state in old if state not in new]
    # Each column that does not fit is listed, or the state that it was in.
    assert len(fit.differences) == len([one for one in lost if one[0] not in gone]) + len(gone)
    value = {state: dict.fromkeys(columns, 1) for state, columns in old.items()}
    if fit.fits:
        found = fit.value(value)
        assert {state: set(columns) for state, columns in found.items()} == {
            state: set(columns) for state, columns in new.items()
        }
        assert all(
            found[state][name] == (1 if name in old.get(state, {}) else 7)
            for state, columns in new.items()
            for name in columns
        )
