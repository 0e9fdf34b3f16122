"""What a pattern keeps in pieces: the same matches as with all of it at hand, batch by batch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import ImpossiblePattern
from millstream.patterns import events
from millstream.patterns.automaton import FOREVER, Automaton
from millstream.patterns.batches import Found
from millstream.patterns.compile import compile_pattern
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import Kept, Matcher, PlainMatcher, matcher
from millstream.patterns.outputs import Lag
from millstream.patterns.partition import PartitionMatcher
from millstream.spark.stages.match_pieces import Outline, Pieces, Sizes, numbered, wanted_bits
from millstream.state import NO_TIME, ShardState, StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder
from property.patterns_random import patterns, streams, table
from property.test_patterns_kernel import batch_of, shown

KEYS = [f"key {number}" for number in range(12)]
#: So small that a few runs make files beside the manifest.
INLINE = 500


class InPieces:
    """A shard whose state is bytes between batches."""

    def __init__(self, made: Matcher, empty: Kept, files: StateFiles | None, often: int) -> None:
        self.made, self.empty, self.files = made, empty, files
        self.data = b""
        self.next = NO_TIME
        self.sizes = Sizes(150, 200, often)

    def process(self, batch: Any, watermark: int) -> Any:
        room = ShardState(load(self.data), self.files)
        kept = Pieces(room, [self.made], [self.empty], self.sizes)
        (before,) = kept.load([batch.keys], watermark)
        after, found = self.made.process(before, batch, watermark)
        data, changes = kept.commit([after])
        return data, room.next_time(watermark, changes), found

    def take(self, batch: Any, watermark: int, *, twice: bool) -> Any:
        if twice:
            self.process(batch, watermark)  # an attempt that fails leaves nothing but files
        data, self.next, found = self.process(batch, watermark)
        self.data = self.data if data is None else data
        return found


def check(
    automaton: Automaton, made: Matcher, rows: pa.Table, cuts: list[int], data: st.DataObject
) -> None:
    """Compare batch by batch; in the end nothing is kept."""
    whole = made.empty(pa.string(), rows.schema)
    with tempfile.TemporaryDirectory() as folder:
        files = StateFiles(Folder(Path(folder)), "match", 4, INLINE)
        # How many keys a batch may touch before there is one piece: any number, or few.
        often = data.draw(st.sampled_from([0, 0, 2, 16]))
        pieces = InPieces(made, whole, files if data.draw(st.booleans()) else None, often)
        for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            part = rows.slice(first, last - first)
            watermark = int(events.micros(part.column("at")).max()) - 1 if len(part) else 0
            batch = batch_of(automaton, part)
            whole, expected = made.process(whole, batch, watermark)
            found = pieces.take(batch, watermark, twice=data.draw(st.booleans()))
            assert shown(automaton, found) == shown(automaton, expected)
            assert numbers(found) == numbers(expected)
            soonest = made.soonest(whole)
            assert pieces.next <= (NO_TIME if soonest is None else soonest)
        nothing = batch_of(automaton, rows.slice(0, 0))
        whole, expected = made.process(whole, nothing, FOREVER)
        found = pieces.take(nothing, FOREVER, twice=False)
        assert shown(automaton, found) == shown(automaton, expected)
        kept = Pieces(ShardState(load(pieces.data), pieces.files), [made], [whole], pieces.sizes)
        assert kept.outline.keys == 0 or not whole.idle


def numbers(found: Found) -> list[tuple[str, int]]:
    counted = [] if found.numbers is None else found.numbers.tolist()
    return sorted(zip(found.keys.to_pylist(), counted, strict=False))


def keyed(rows: list[dict[str, Any]], data: st.DataObject) -> pa.Table:
    chosen = data.draw(st.lists(st.sampled_from(KEYS), min_size=len(rows), max_size=len(rows)))
    given_ = [{**row, "key": key} for row, key in zip(rows, chosen, strict=True)]
    return table(given_, key=True).append_column("number", pa.array(range(len(rows)), pa.int64()))


@settings(max_examples=150, deadline=None)
@given(pattern=patterns(), rows=streams(40), data=st.data())
def test_pieces_find_what_a_whole_shard_finds(pattern, rows, data):
    if data.draw(st.integers(0, 4)) == 0:
        pattern = pattern.singleton()
    events_table = keyed(rows, data)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    try:
        automaton = compile_pattern(pattern)
    except ImpossiblePattern:
        assume(False)
        raise
    made: Matcher = matcher(automaton, [pa.int64()] * len(automaton.values), late=True)
    if data.draw(st.integers(0, 3)) == 0:
        made = PlainMatcher(automaton, late=True)
    if data.draw(st.integers(0, 2)) == 0:
        made = PartitionMatcher(made, (Lag("x", "x", 1), Lag("x", "x", 2)), numbered=True)
    check(automaton, made, events_table, cuts, data)


CLAUSES = [
    "PATTERN (A B+ C) DEFINE A AS x = 0, B AS x >= 1, C AS x <> 1",
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+ C?) DEFINE A AS x = 0, B AS x > 0, C AS x = 2",
    "PATTERN (A B+ C) WITHIN INTERVAL '4' SECOND DEFINE A AS x = 0, B AS x >= 1, C AS x <> 1",
    "PATTERN (A B+) DEFINE B AS x > PREV(x), A AS x < 2",
    "PATTERN (A B* C) DEFINE B AS x >= LAST(A.x), C AS x < A.x + 1",
]


@settings(max_examples=80, deadline=None)
@given(clause=st.sampled_from(CLAUSES), rows=streams(40), data=st.data())
def test_pieces_of_row_patterns_find_what_a_whole_shard_finds(clause, rows, data):
    sql = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES MATCH_NUMBER() AS n {clause})"
    automaton = read(sql)[1].automaton
    assert automaton.numbered
    made = matcher(automaton, [pa.int64()] * len(automaton.values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    check(automaton, made, keyed(rows, data), cuts, data)


def test_a_shard_is_cut_again_when_what_it_keeps_has_grown_or_shrunk() -> None:
    kilo = 1 << 10
    assert wanted_bits(Outline(), 0, Sizes()) == 0
    assert wanted_bits(Outline(0, 1000, 32 * kilo), 0, Sizes()) == 0, "it is small"
    assert wanted_bits(Outline(0, 1000, 50 * kilo), 0, Sizes()) == 7
    assert wanted_bits(Outline(7, 1000, 127 * kilo), 0, Sizes()) == 7
    assert wanted_bits(Outline(7, 1000, 128 * kilo), 0, Sizes()) == 8
    assert wanted_bits(Outline(7, 1000, 9 * kilo), 0, Sizes()) == 7
    assert wanted_bits(Outline(7, 1000, 8 * kilo), 0, Sizes()) == 0
    assert wanted_bits(Outline(0, 1, 200 << 20), 0, Sizes()) == 0, "one key is one piece"


def test_a_shard_of_which_batches_touch_the_most_is_one_piece() -> None:
    assert wanted_bits(Outline(8, 1000, 150 << 10), 249, Sizes()) == 8
    assert wanted_bits(Outline(8, 1000, 150 << 10), 250, Sizes()) == 0
    assert wanted_bits(Outline(0, 1000, 75 << 10), 63, Sizes()) == 0
    assert wanted_bits(Outline(0, 1000, 75 << 10), 62, Sizes()) == 8


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(KEYS[:5])), min_size=12, max_size=40
    ),
    st.data(),
)
def test_texts_that_runs_remember_stay_the_same(given_, data):
    pattern = (
        ms.Pattern("p")
        .begin("one", "t <> 'b'")
        .followed_by("two", "t > one.t")
        .followed_by_any("three", "t = one.t")
        .within("20 seconds")
    )
    automaton = compile_pattern(pattern)
    at = pa.array(range(0, len(given_) * 1_000_000, 1_000_000), pa.int64())
    texts, keys = ([one[place] for one in given_] for place in (0, 1))
    rows = pa.table(
        {
            "t": pa.array(texts, pa.string()),
            "key": pa.array(keys, pa.string()),
            "at": at.cast(pa.timestamp("us")),
            "number": pa.array(range(len(given_)), pa.int64()),
        }
    )
    cuts = list(range(0, len(rows), 4))
    made = matcher(automaton, [pa.string()] * len(automaton.values), late=True)
    assert made.compiled
    check(automaton, made, rows, cuts, data)


def test_the_piece_of_a_key_is_the_same_in_every_version() -> None:
    keys = pa.array(["a", None, "b", "a"])
    assert numbered(keys, 0).tolist() == [0, 0, 0, 0]
    assert numbered(keys, 8).tolist() == [0x43, 0, 0xF9, 0x43]
    assert numbered(keys, 32).tolist() == [0xE8B7BE43, 0, 0x71BEEFF9, 0xE8B7BE43]
