"""Which of Spark's operators is which stage, and which files a version of state needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.inspection.operators import metadata_files, needed, operators, stateful

FOLD, JOIN = "transformWithStateInPandasExec", "symmetricHashJoin"


def description(output: str, **stages: dict[str, Any]) -> dict[str, Any]:
    return {"stages": stages, "output": {"stage": output}}


def metadata(*names: str) -> dict[int, str]:
    stores = [{"storeName": "default", "numPartitions": 2}]
    return {
        number: "v2\n"
        + json.dumps({"operatorInfo": {"operatorName": name}, "stateStoreInfo": stores})
        for number, name in enumerate(names)
    }


TWICE = description(
    "pairs",
    sales={"kind": "journal"},
    once={"kind": "distinct", "input": "sales"},
    left={"kind": "sql", "input": "once"},
    right={"kind": "fold", "input": "once"},
    pairs={"kind": "join", "left": "left", "right": "right"},
)


def test_operators_are_numbered_from_the_end_and_a_stage_that_two_read_is_there_twice() -> None:
    names = [name for name, _ in stateful(TWICE)]
    assert names == ["pairs", "once", "right", "once"]
    found = operators(TWICE, metadata(JOIN, FOLD, FOLD, FOLD))
    assert [(one.id, one.stage, one.kind) for one in found] == [
        (0, "pairs", "join"),
        (1, "once", "distinct"),
        (2, "right", "fold"),
        (3, "once", "distinct"),
    ]


def test_operators_that_do_not_fit_the_stages_stay_without_one() -> None:
    assert [one.stage for one in operators(TWICE, metadata(FOLD, JOIN, FOLD, FOLD))] == [None] * 4
    assert [one.stage for one in operators(TWICE, metadata(JOIN, FOLD))] == [None] * 2


def test_a_session_has_an_operator_of_its_own_name() -> None:
    one = description("w", w={"kind": "window", "shape": "session", "input": "sales"})
    assert stateful(one) == [("w", "sessionWindowStateStoreSaveExec")]


def test_the_newest_metadata_of_an_operator_counts() -> None:
    names = ["0/_metadata/v2/2", "0/_metadata/v2/10", "1/_metadata/metadata", "1/0/3.zip"]
    assert metadata_files(names) == {0: "0/_metadata/v2/10", 1: "1/_metadata/metadata"}


@given(st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9)), st.integers(0, 9))
def test_a_version_is_a_snapshot_and_every_change_since(
    whole: set[int], changes: set[int], version: int
) -> None:
    names = [f"{n}.snapshot" for n in whole] + [f"{n}.delta" for n in changes]
    found = needed(names, version)
    start = max((n for n in whole if n <= version), default=0)
    there = all(n in changes for n in range(start + 1, version + 1))
    assert (found.missing is None) == there
    if there:
        chain = {f"{n}.delta" for n in range(start + 1, version + 1)}
        assert set(found.files) == chain | ({f"{start}.snapshot"} if start else set())


def test_a_version_that_several_hosts_may_write_is_the_one_that_the_commit_names() -> None:
    names = ["3_one.zip", "3_two.zip"]
    assert needed(names, 3, ["two"]).files == ("3_two.zip",)
    assert needed(names, 3, ["three"]).missing == "3_three.zip"
    assert needed(["2.zip"], 3).missing == "3.zip"


CHAIN = {"6_f.changelog": [(3, "c"), (4, "d"), (5, "e")], "2_b.changelog": [(1, "a")]}


def named(texts: str) -> list[str]:
    """Return the files "3C" (whole) and "4d" (changes)."""
    return [
        f"{one[0]}_{one[1].lower()}.{'zip' if one[1].isupper() else 'changelog'}"
        for one in texts.split()
    ]


@pytest.mark.parametrize(
    ("there", "version", "unique", "files", "missing"),
    [
        # The first one that is whole is enough.
        ("3C 4D 5e 6f", 6, "f", "6f 5e 4D", None),
        ("3C 4X 4d 5e 6f", 6, "f", "6f 5e 4d 3C", None),
        # Other attempts have written these.
        ("3C 4x 5e 6f", 6, "f", "6f 5e", "4_d.changelog"),
        ("3c 4d 5e 6f", 6, "f", "6f 5e 4d 3c", "2_*.zip"),
        # From the beginning, and a whole version beside its changes.
        ("1a 2b", 2, "b", "2b 1a", None),
        ("2b 2B", 2, "b", "2B", None),
        ("2b", 2, "xyz", "", "2_x.zip"),
    ],
)
def test_a_changelog_with_a_name_of_its_own_continues_those_that_it_names(
    there: str, version: int, unique: str, files: str, missing: str | None
) -> None:
    found = needed(named(there), version, list(unique), lambda name: CHAIN[name])
    assert (list(found.files), found.missing) == (named(files), missing)
