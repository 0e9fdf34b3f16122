"""Entries that are added to encoded mappings, against a dictionary."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

from millstream.flow.stages.state_fit import StateFit
from millstream.state.carrying import _changed
from millstream.state.run_file import RunFile

NAMES = st.sampled_from(["n", "total", "more", "more2", ""])
LEAVES = st.none() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(NAMES, inner) | st.lists(inner, max_size=3), max_leaves=8
)
MANY = st.integers(12, 18).map(lambda count: {f"c{number}": number for number in range(count)})


@given(st.lists(VALUES | MANY, max_size=6), st.dictionaries(NAMES, LEAVES, max_size=3))
def test_a_value_gets_what_the_function_gives_it_and_keeps_its_key_and_time(
    values: list[Any], added: dict[str, Any]
) -> None:
    entries = {b"key-%d" % n: (encode(value), n) for n, value in enumerate(values)}
    run, fit = RunFile.of(entries), StateFit(added=tuple(((name,), v) for name, v in added.items()))
    assert fit.appended == added
    # A part of a file as well as all of it.
    for whole in (run, RunFile(pa.concat_batches([run.batch, run.batch]).slice(len(run)))):
        changed, failed = _changed(whole, fit.value, fit.appended)
        after = {key: (decode(one[0]), one[1]) for key, one in changed.items() if one is not None}
        assert failed == []
        assert after == {b"key-%d" % n: (fit.value(value), n) for n, value in enumerate(values)}
        assert [list(v) for v, _ in after.values() if isinstance(v, dict)] == [
            list(fit.value(decode(entries[key][0])))
            for key, (v, _) in after.items()
            if type(v) is dict
        ]
