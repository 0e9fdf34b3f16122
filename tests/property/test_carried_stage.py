"""A stage that changes at a cut: whatever the batches on either side, it goes on with the state of the rows before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.spark.stages.distinct import Keeping
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import Rule, _Shard
from millstream.state import StateFiles
from millstream.state.carrying import carry_as_it_is, carry_changed, decide_carried, promise
from millstream.state.manifest import joined
from millstream.storage import Folder
from property.test_ordered import MS, run, streams

Batches = list[tuple[list[tuple[int, int, int]], int]]
NAMES = ["v", "at", "seen"]
LONG, SHORT = 9, 4


def counting(by: int) -> Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]:
    def counted(seen: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return seen + by, {"v": row["v"], "at": row["at"], "seen": seen + by}

    return counted


def lived(old: Rule, new: Rule, batches: Batches, cut: int, *, longer: bool, inline: int) -> Any:
    """Return what comes out of two versions of a stage, as a switch runs them."""
    names = NAMES if isinstance(old, Folding) else ["v", "at"]
    with tempfile.TemporaryDirectory() as folder:
        first = StateFiles(Folder(Path(folder) / "old"), "f", 4, inline)
        before = [
            ([row for row in rows if row[0] < cut], min(watermark, cut))
            for rows, watermark in batches
        ]
        shard = _Shard(old, "at", names, wait=True, files=first)
        results = list(run(shard, [*before, ([], cut)]))
        files = StateFiles(Folder(Path(folder) / "new"), "g", 4, inline)
        token, data = promise(files.storage, "g"), joined(one for (one,) in shard._keys.get())
        if data and longer:
            expired = cut * MS - (old.keep or 0)
            carry_changed(first, files, token, 0, data, lambda value: value, expired)
        elif data:
            carry_as_it_is(first, files, token, 0, data)
        decide_carried(files, token, [0] if data else [])
        taking = StateFiles(files.storage, "g", 4, inline, imported=token)
        after = [([row for row in rows if row[0] >= cut], mark) for rows, mark in batches]
        results += run(_Shard(new, "at", names, wait=True, files=taking), after)
    return [(row["v"], round(row["at"].timestamp() * 1000), row.get("seen")) for row in results]


def in_order(batches: Batches) -> list[tuple[int, int]]:
    found = sorted((at, place, value) for rows, _ in batches for at, value, place in rows)
    return [(at, value) for at, _, value in found]


@settings(max_examples=60, deadline=None)
@given(streams(), st.integers(8, 22), st.booleans(), st.sampled_from([1, 60, 1 << 20]))
def test_a_fold_with_another_function_goes_on_with_its_state(
    batches: Batches, cut: int, longer: bool, inline: int
) -> None:
    keeps = (SHORT, LONG) if longer else (LONG, SHORT)
    old, new = (
        Folding("f", ("v",), counting(by), 0, frozenset(NAMES), "at", keep=keep * MS)
        for by, keep in zip((1, 10), keeps, strict=True)
    )
    expected, known, is_cut = [], dict[int, tuple[int, int]](), False
    for at, value in in_order(batches):
        if at >= cut and not is_cut:
            known = {one: entry for one, entry in known.items() if entry[1] > cut - keeps[0]}
            is_cut = True
        seen, last = known.get(value, (0, at))
        by, keep = (10, keeps[1]) if is_cut else (1, keeps[0])
        known[value] = ((seen if at - last < keep else 0) + by, at)
        expected.append((value, at, known[value][0]))
    assert lived(old, new, batches, cut, longer=longer, inline=inline) == expected


@settings(max_examples=60, deadline=None)
@given(streams(), st.integers(8, 22), st.booleans())
def test_distinct_with_another_time_goes_on_with_its_keys(
    batches: Batches, cut: int, longer: bool
) -> None:
    keeps = (SHORT, LONG) if longer else (LONG, SHORT)
    old, new = (Keeping(("v",), "at", keep * MS) for keep in keeps)
    expected, known, is_cut = [], dict[int, int](), False
    for at, value in in_order(batches):
        if at >= cut and not is_cut:
            known = {one: first for one, first in known.items() if first > cut - keeps[0]}
            is_cut = True
        if value not in known or at - known[value] >= keeps[is_cut]:
            known[value] = at
            expected.append((value, at, None))
    assert lived(old, new, batches, cut, longer=longer, inline=1) == expected
