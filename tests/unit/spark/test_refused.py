"""Rows on which expressions fail are kept from a stage, and from being lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millstream.journal import journal_at
from millstream.journal.letters import read_log
from millstream.spark.io.source import PLACE, POSITION_BITS
from millstream.spark.run.failure import cause, failed_on_a_row
from millstream.spark.stages.refused import FAILS, Sieve


def batch(*rows: tuple[int, int, bool]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "v": pa.array([v for _, v, _ in rows], pa.int64()),
            PLACE: pa.array([(1 << POSITION_BITS) + place for place, _, _ in rows], pa.int64()),
            FAILS: pa.array([fails for _, _, fails in rows], pa.bool_()),
        }
    )


def test_rows_that_fail_become_dead_letters_once_and_the_others_pass(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    journal_at(path).create(pa.schema([("v", pa.int64())]))
    sieve = Sieve("keyed:hours", "it fails", str(path))
    given = [batch((4, 7, False), (5, 0, True)), batch((6, 0, True)), batch((7, 8, False))]
    for _ in range(2):  # a batch that is run again adds nothing
        passed = list(sieve(iter(given)))
        assert [one.column("v").to_pylist() for one in passed] == [[7], [], [8]]
        assert all(one.schema.names == ["v", PLACE] for one in passed)
    found = read_log("rows", journal_at(path)).settled()
    assert [(one.kind, one.stage, one.row) for one in found] == [("keyed", "hours", {"v": 0})] * 2
    assert [one.letter.key for one in found] == [("keyed:hours", 1, 5), ("keyed:hours", 1, 6)]


DIVIDED = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` instead. SQLSTATE: 22012
== SQL (line 1, position 11) ==
SELECT k, 10 div v AS tenth FROM events
          ^^^^^^^^
"""


def test_an_error_of_an_expression_is_told_from_others_and_shown_with_it() -> None:
    assert failed_on_a_row(DIVIDED)
    assert cause(RuntimeError(DIVIDED)) == (
        'Division by zero. Use `try_divide` instead, in "10 div v"',
        "use try_cast, try_divide and the like where a value may not fit",
    )


@pytest.mark.parametrize(
    "text",
    ["java.io.IOException: No space left on device", "[UNRESOLVED_COLUMN] no x. SQLSTATE: 42703"],
)
def test_other_errors_are_no_matter_of_a_row(text: str) -> None:
    assert not failed_on_a_row(text)
