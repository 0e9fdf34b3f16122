"""Joins in a switch: a pair belongs to the version of its earlier row, on whichever side that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.clock import micros
from millstream.switch.record import decode, encode
from support.lives import Died, Life, Switches, dying, outcome, written
from support.recording import SECOND, Recording, Row
from support.switched import WINDOWED, begun
from support.undisturbed import counted, iso, rows_of, windows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BOUND = 5 * SECOND


def plain(version: str) -> ms.Flow:
    """Return a version whose pairs say who made them."""
    return flow_of(version, queried=False)


def queried(version: str) -> ms.Flow:
    """Return such a version; the windows of the second one go through a query."""
    return flow_of(version, queried=version == "2")


def flow_of(version: str, *, queried: bool) -> ms.Flow:
    flow, events = begun()
    left = events.sql("left", f"SELECT k, v, at, '{version}' AS made FROM events WHERE v % 2 = 0")
    right = events.sql(
        "right",
        f"SELECT k, v AS other, unix_micros(at) AS then, '{version}' AS made_too, at "
        "FROM events WHERE v % 2 = 1",
    )
    left.join("full", right, on="k", within="5 s", how="full").sink("full", ms.jsonl("full"))
    pairs = left.join("pairs", right, on="k", within="5 s")
    pairs.window("counted", every="10 s", by="k", n="count(*)").sink("counted", ms.jsonl("counted"))
    sliding = events.window("sliding", every="5 s", size="15 s", **WINDOWED)
    shaped = sliding.sql("queried", "SELECT * FROM sliding") if queried else sliding
    shaped.sink("shaped", ms.jsonl("shaped"))
    return flow


def pairs_of(rows: list[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield the rows of a full join of even values with odd ones."""
    even, odd = ([row for row in rows if row[1] % 2 == side] for side in (0, 1))
    met = set()
    for left in even:
        near = [n for n, row in enumerate(odd) if row[0] == left[0] and near_to(left, row)]
        met.update(near)
        yield from ((left, odd[n]) for n in near)
        if not near:
            yield left, None
    yield from ((None, row) for n, row in enumerate(odd) if n not in met)


def near_to(one: Row, other: Row) -> bool:
    return abs(one[2] - other[2]) <= BOUND


def full_lines(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            (left or right or ("",))[0],
            left and left[1],
            right and right[1],
            right and right[2],
            iso((left or right or rows[0])[2]),
        )
        for left, right in pairs_of(rows)
    )


def found_lines(life: Life) -> Counter[tuple[Any, ...]]:
    lines = written(life.root, "full")
    return Counter(
        (one["k"], one.get("v"), one.get("other"), one.get("then"), one["at"]) for one in lines
    )


def earlier(line: dict[str, Any]) -> int:
    return min(at_of(line), line.get("then", at_of(line)))


def at_of(line: dict[str, Any]) -> int:
    return micros(datetime.fromisoformat(line["at"]))


def check(life: Life, start: Callable[[dict[str, Any]], int]) -> None:
    """Compare with the undisturbed run, and the maker of each pair with who owns its start."""
    rows = rows_of(life.recording, life.turns)
    assert found_lines(life) == full_lines(rows)
    both = [(left, right) for left, right in pairs_of(rows) if left and right]
    windows = windows_of([left for left, _ in both], 10, 10)
    assert Counter(
        (one["k"], one["window_start"], one["n"]) for one in written(life.root, "counted")
    ) == Counter((key, iso(at), len(values)) for (key, at), values in windows.items())
    assert outcome(life.root, ["shaped"])["shaped"] == counted(windows_of(rows, 5, 15), 15)
    (cut,) = [one.from_us for one in record_of(life).owners.stretches]
    lines = written(life.root, "full")
    makers = {(one.get("made", one.get("made_too")), start(one) < cut) for one in lines}
    assert makers == {("1", True), ("2", False)}
    across = [one for one in lines if earlier(one) < cut <= at_of(one)]
    assert across, "no pair begins with its right row before the cut"


def record_of(life: Life) -> Any:
    (path,) = life.root.glob("data/**/switch/record")
    return decode(path.read_bytes())


@pytest.mark.long
def test_a_switch_changes_no_pair_and_gives_each_to_the_version_of_its_earlier_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path, queried, Recording(5))
    life.lived(spark, Switches((1,)))
    check(life, earlier)


@pytest.mark.soak
def test_a_switch_that_an_earlier_release_has_cut_is_finished_by_its_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    life, wishes = Life(tmp_path, plain, Recording(5)), Switches((1,))
    with pytest.raises(Died), dying("switch-write-overlapping"):
        life.lived(spark, wishes)
    forget_starts(life)
    life.lived_through(spark, wishes, ["switch-ordered:1"])
    check(life, at_of)


def forget_starts(life: Life) -> None:
    """Leave what a release left that did not name the columns of cuts."""
    (path,) = life.root.glob("data/**/switch/record")
    record = decode(path.read_bytes())
    homes = {name: msgspec.structs.replace(one, starts={}) for name, one in record.homes.items()}
    path.write_bytes(encode(msgspec.structs.replace(record, homes=homes)))
