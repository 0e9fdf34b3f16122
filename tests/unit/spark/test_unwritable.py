"""Rows that a target cannot take are set apart, whole columns at a time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.io.targets import Epoch, letters_of
from millstream.spark.io.unwritable import Unwritable, from_json, in_python, sound, without_nulls

_AFTER = 253_402_300_800_000_000
_BEFORE = -62_135_596_800_000_001


def text(values: list[bytes | None]) -> pa.Array:
    """Texts as Spark has them: nobody has looked at their bytes."""
    column = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers())


def moments(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_texts_that_are_not_utf8_are_set_apart(make: Any) -> None:
    rows = make({"n": pa.array([0, 1, 2, 3]), "t": text([b"a", b"\xed\xa0\x80", None, b"\xff"])})
    good, bad = sound(rows)
    assert good.to_pylist() == [{"n": 0, "t": "a"}, {"n": 2, "t": None}]
    assert [(one.column, one.reason) for one in bad] == [("t", "its text is not UTF-8")] * 2
    assert [json.loads(one.record)["n"] for one in bad] == [1, 3]


def test_texts_within_lists_and_structs_are_looked_at() -> None:
    offsets = pa.array([0, 1, 2, 2], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, text([b"a", b"\xff"]))
    structs = pa.StructArray.from_arrays([text([b"a", b"b", b"\xff"])], names=["x"])
    rows = pa.table({"n": pa.array([0, 1, 2]), "l": lists, "s": structs})
    good, bad = sound(rows)
    assert good.column("n").to_pylist() == [0]
    assert [one.column for one in bad] == ["l", "s"]


def test_good_rows_are_handed_on_as_they_are() -> None:
    rows = pa.table({"t": text([b"a", None])})
    assert sound(rows)[0] is rows


def test_moments_that_python_does_not_have_are_set_apart() -> None:
    rows = pa.table({"n": pa.array([0, 1, 2, 3]), "at": moments(0, _AFTER, None, _BEFORE)})
    found = in_python(rows)
    assert [row["n"] for row in found.dictionaries()] == [0, 2]
    assert [one.fact for one in found.refused] == [
        'column "at": it lies outside the years 1 to 9999'
    ] * 2
    assert len(found) == 2


def test_rows_without_a_key_are_set_apart() -> None:
    good, (lost,) = without_nulls(pa.record_batch({"k": pa.array(["a", None])}), "k", "key")
    assert good.num_rows == 1
    assert (lost.fact, lost.record) == ('key "k" is null', '{"k": null}')


def test_they_go_from_tasks_to_the_driver_and_back() -> None:
    one = Unwritable("t", "why", "{}")
    assert from_json([None, one.to_json()]) == [one]


def test_a_letter_is_known_by_its_epoch_and_its_content_in_any_order() -> None:
    first = Epoch("job", "group", "c1", 7, None)
    rows = [Unwritable("t", "why", text) for text in ("a", "b", "a")]
    keys = {letter.key for letter in letters_of(rows, "out", first)}
    assert len(keys) == 3
    assert {letter.key for letter in letters_of(rows[::-1], "out", first)} == keys
    other = letters_of(rows, "out", Epoch("job", "group", "c1", 8, None))
    assert not keys & {letter.key for letter in other}
    assert {letter.reason for letter in other} == {'sink "out": column "t": why'}
