"""MATCH_RECOGNIZE finds what a backtracking matcher finds that tries everything in the order of preference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from millstream.errors import ConditionFailed
from millstream.patterns.automaton import FOREVER, Automaton, Event, Key, advance, step
from millstream.patterns.batches import Batch, Found
from millstream.patterns.events import met, micros, values
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import KernelMatcher, Matcher, PlainMatcher, matcher, remembering
from millstream.patterns.reading import read_later
from millstream.patterns.starts import numbered, placed, vain
from millstream.patterns.tables import MOST_TABLED, tables
from property.patterns_random import streams, table

FAR = 2**61
WITHIN = 12
DEFINE = {
    "A": ("x = 0", lambda row, taken: row["x"] == 0),
    "B": ("x >= 1", lambda row, taken: row["x"] >= 1),
    "C": ("x <> 2", lambda row, taken: row["x"] != 2),
    "D": (
        "SUM(D.x) < 4",
        lambda row, taken: sum(r["x"] for v, r in [*taken, ("D", row)] if v == "D") < 4,
    ),
    "E": ("COUNT(*) < 4", lambda row, taken: len(taken) + 1 < 4),
    "F": (None, lambda row, taken: True),
    "G": ("x >= PREV(x)", lambda row, taken: row["prev"] is not None and row["x"] >= row["prev"]),
    "I": (
        "COALESCE(LAST(I.x, 1) <= x, TRUE)",
        lambda row, taken: not before("I", taken) or before("I", taken)[-1] <= row["x"],
    ),
    "H": (
        "x > AVG(x) AND x <> 1",
        lambda row, taken: row["x"] != 1 and row["x"] > mean([*taken, ("H", row)]),
    ),
}


def before(name: str, taken) -> list[int]:
    return [row["x"] for variable, row in taken if variable == name]


def mean(taken) -> float:
    return sum(row["x"] for _, row in taken) / len(taken)


def trees(variables: Sequence[str] = "ABCDEFGHI", *, empty: bool = False) -> st.SearchStrategy[Any]:
    names = st.sampled_from(variables).map(lambda name: ("var", name))
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 2), (2, None)])

    def wider(inner):
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda some: ("seq", some)),
            st.lists(inner, min_size=2, max_size=2).map(lambda some: ("alt", some)),
            st.tuples(inner, bounds, st.booleans()).map(lambda some: ("rep", *some)),
            st.lists(names, min_size=2, max_size=3).map(lambda some: ("perm", some)),
        )

    found = st.recursive(names, wider, max_leaves=5)
    return found if empty else found.map(lambda tree: ("seq", [tree, ("var", "F")]))


def text(tree) -> str:
    match tree:
        case ("var", name):
            return name
        case ("seq", some):
            return " ".join(f"({text(one)})" if one[0] == "alt" else text(one) for one in some)
        case ("alt", some):
            return "(" + " | ".join(text(one) for one in some) + ")"
        case ("perm", some):
            return "PERMUTE(" + ", ".join(text(one) for one in some) + ")"
        case ("rep", inner, (least, most), greedy):
            said = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            said = said or (f"{{{least},}}" if most is None else f"{{{least},{most}}}")
            return f"({text(inner)}){said}{'' if greedy else '?'}"
    raise AssertionError(tree)


class Backtracking:
    def __init__(self, rows) -> None:
        self.rows = rows

    def ways(self, tree, at, taken) -> Iterator[tuple[int, tuple]]:
        """Yield where a part may end, and what it has then taken, the preferred ways first."""
        match tree:
            case ("var", name):
                if (
                    at < len(self.rows)
                    and self.in_time(at, taken)
                    and DEFINE[name][1](self.rows[at], taken)
                ):
                    yield at + 1, (*taken, (name, self.rows[at]))
            case ("seq", some):
                if not some:
                    yield at, taken
                    return
                for end, now in self.ways(some[0], at, taken):
                    yield from self.ways(("seq", some[1:]), end, now)
            case ("alt", some):
                for one in some:
                    yield from self.ways(one, at, taken)
            case ("perm", some):
                for order in permutations(some):
                    yield from self.ways(("seq", list(order)), at, taken)
            case ("rep", inner, (least, most), greedy):
                yield from self.repeated(inner, least, most, greedy, 0, at, taken)

    def repeated(self, inner, least, most, greedy, count, at, taken):
        def more():
            for end, now in self.ways(inner, at, taken) if most is None or count < most else ():
                if end == at and count + 1 >= least:
                    yield at, now
                else:
                    yield from self.repeated(inner, least, most, greedy, count + 1, end, now)

        if count < least:
            yield from more()
            return
        if not greedy:
            yield at, taken
        yield from more()
        if greedy:
            yield at, taken

    def in_time(self, at, taken) -> bool:
        return not taken or self.rows[at]["at"] - taken[0][1]["at"] < WITHIN

    def matches(self, tree, skip: str) -> list[list[tuple[str, int]]]:
        found, start = [], 0
        while start < len(self.rows):
            way = next(iter(self.ways(tree, start, ())), None)
            if way is None:
                start += 1
                continue
            taken = [(name, self.rows.index(row)) for name, row in way[1]]
            found.append(taken)
            after = self.goes_on(skip, start, taken)
            if after == start:
                raise ConditionFailed("it skips to the first row of the match")
            start = after
        return found

    def tried(self, tree, skip: str) -> list[tuple[int, str]]:
        """Return the rows at which matching is tried, and what comes of it; time does not count."""
        self.in_time = lambda at, taken: True
        found, start, behind = [], 0, 0
        while start < len(self.rows):
            way = next(iter(self.ways(tree, start, ())), None)
            after = start + 1
            if way is None:
                found.append((start, "unmatched" if start >= behind else "inside"))
            elif way[0] == start:
                found.append((start, "empty"))
            else:
                found.append((start, "match"))
                behind = max(behind, way[0])
                after = way[0] if skip == "PAST LAST ROW" else after
            start = after
        return found

    def goes_on(self, skip, start, taken) -> int:
        if skip == "TO NEXT ROW":
            return start + 1
        if skip == "PAST LAST ROW":
            return taken[-1][1] + 1
        places = [at for name, at in taken if name == "F"]
        return places[0] if "FIRST" in skip else places[-1]


SKIPS = ["TO NEXT ROW", "PAST LAST ROW", "TO FIRST F", "TO LAST F", "TO F"]


def in_batches(
    automaton: Automaton, made: Matcher, rows: pa.Table, cuts: list[int]
) -> list[list[tuple[str, int]]]:
    """Return what a matcher finds in rows that come in several batches, through bytes and back."""
    kept, shown = made.empty(pa.string(), rows.schema), []
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows.slice(first, last - first)
        watermark = int(micros(part.column("at")).max()) - 1 if len(part) else 0
        for some, now in (
            (part, watermark),
            (part.slice(0, 0), FAR if last == len(rows) else watermark),
        ):
            keys, masks = (
                pa.array(["k"] * len(some), pa.string()),
                met(automaton, some).astype("int64"),
            )
            batch = Batch(keys, micros(some.column("at")), masks, values(automaton, some), some)
            kept, found = made.process(made.load(made.dump(kept)), batch, now)
            numbers = found.rows.column("number").to_pylist()
            shown += [
                [
                    (automaton.blocks[b], n)
                    for b, n in zip(found.blocks[a:z], numbers[a:z], strict=True)
                ]
                for a, z in zip(found.starts, found.ends, strict=True)
            ]
    return shown


@settings(max_examples=300)
@given(tree=trees(), rows=streams(8), skip=st.sampled_from(SKIPS), data=st.data())
def test_the_preferred_match_is_found_and_matching_goes_on_where_it_should(tree, rows, skip, data):
    rows = [
        {**row, "number": n, "prev": rows[n - 1]["x"] if n else None} for n, row in enumerate(rows)
    ]
    used = [
        name for name in DEFINE if name in text(tree).replace("PERMUTE", "") and DEFINE[name][0]
    ]
    defines = ", ".join(f"{name} AS {DEFINE[name][0]}" for name in used) or "F AS TRUE"
    sql = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at AFTER MATCH SKIP {skip} PATTERN ({text(tree)}) "
        f"WITHIN INTERVAL '{WITHIN}' SECOND DEFINE {defines})"
    )
    automaton = read(sql)[1].automaton
    whole = table(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=2)))
    kernel = matcher(automaton, [pa.int64()] * len(automaton.values))
    assert kernel.compiled
    plain = remembering(automaton, PlainMatcher(automaton))
    try:
        expected = Backtracking(rows).matches(tree, skip)
    except ConditionFailed:
        for made in (kernel, plain):
            with pytest.raises(ConditionFailed, match="as its first row"):
                in_batches(automaton, made, whole, cuts)
        return
    assert in_batches(automaton, kernel, whole, cuts) == expected
    assert in_batches(automaton, plain, whole, cuts) == expected


PLAIN = [name for name in DEFINE if name in "ABCFG"]


@settings(max_examples=300)
@given(tree=trees(PLAIN), rows=streams(8), keys=st.integers(1, 2), skip=st.sampled_from(SKIPS))
def test_a_table_for_all_rows_finds_what_runs_find_and_when(tree, rows, keys, skip):
    used = [name for name in PLAIN if name in text(tree).replace("PERMUTE", "")]
    defines = ", ".join(f"{name} AS {DEFINE[name][0]}" for name in used if DEFINE[name][0])
    sql = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at AFTER MATCH SKIP {skip} "
        f"PATTERN ({text(tree)}) DEFINE {defines or 'F AS TRUE'})"
    )
    automaton = read(sql, batch=True)[1].automaton
    assume(len(automaton.states) < MOST_TABLED)
    made = matcher(automaton, [pa.int64()] * len(automaton.values))
    assert tables(automaton, [pa.int64()] * len(automaton.values)).forgetful
    whole = table(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    batch = Batch(
        pa.array([str(place % keys) for place in range(len(rows))]),
        micros(whole.column("at")),
        met(automaton, whole).astype("int64"),
        values(automaton, whole),
        whole,
    )
    shown = [
        found_or_refused(one, batch)
        for one in (made, remembering(automaton, PlainMatcher(automaton)))
    ]
    assert shown[0] == shown[1]


@settings(max_examples=300)
@given(tree=trees(PLAIN), rows=streams(10), skip=st.sampled_from(SKIPS), data=st.data())
def test_a_table_on_a_stream_finds_in_every_batch_what_runs_find(tree, rows, skip, data):
    """Also where some batches were matched by runs, as an earlier release did."""
    used = [name for name in PLAIN if name in text(tree).replace("PERMUTE", "")]
    defines = ", ".join(f"{name} AS {DEFINE[name][0]}" for name in used if DEFINE[name][0])
    sql = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at AFTER MATCH SKIP {skip} "
        f"PATTERN ({text(tree)}) DEFINE {defines or 'F AS TRUE'})"
    )
    automaton = read(sql)[1].automaton
    assume(len(automaton.states) < MOST_TABLED)
    types = [pa.int64()] * len(automaton.values)
    runs = replace(tables(automaton, types), forgetful=False)
    made = [
        matcher(automaton, types),
        remembering(automaton, PlainMatcher(automaton)),
        remembering(automaton, KernelMatcher(runs, automaton)),
    ]
    keyed = [data.draw(st.sampled_from("kl")) for _ in rows]
    whole = table(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    old, kept = data.draw(st.integers(0, len(cuts))), None
    shown: list[list[Any]] = [[], []]
    try:
        for place, one in enumerate(made[:2]):
            kept = one.empty(pa.string(), whole.schema)
            for number, (first, last) in enumerate(
                zip([0, *cuts, len(rows)], [*cuts, len(rows), len(rows)], strict=True)
            ):
                now = made[2] if place == 0 and number < old else one
                part = whole.slice(first, last - first)
                masks = met(automaton, part).astype("int64")
                times = micros(part.column("at"))
                batch = Batch(
                    pa.array(keyed[first:last], pa.string()),
                    times,
                    masks,
                    values(automaton, part),
                    part,
                )
                mark = FOREVER if number > len(cuts) else 0
                kept, found = now.process(now.load(now.dump(kept)), batch, mark)
                shown[place].append(by_start(found))
            assert kept.live == 0
    except ConditionFailed:
        return
    assert shown[0] == shown[1]


@settings(max_examples=300)
@given(tree=trees(PLAIN, empty=True), rows=streams(8), skip=st.sampled_from(SKIPS[:2]))
@example(tree=("rep", ("var", "A"), (0, None), True), rows=[{"at": 0, "x": 1}], skip=SKIPS[0])
def test_rows_at_which_nothing_matches_are_empty_matches_or_unmatched(tree, rows, skip):
    rows = [
        {**row, "number": n, "prev": rows[n - 1]["x"] if n else None} for n, row in enumerate(rows)
    ]
    used = [name for name in PLAIN if name in text(tree).replace("PERMUTE", "")]
    defines = ", ".join(f"{name} AS {DEFINE[name][0] or 'TRUE'}" for name in used)
    sql = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at AFTER MATCH SKIP {skip} "
        f"PATTERN ({text(tree)}) DEFINE {defines})"
    )
    recognition = read(sql, batch=True)[1]
    automaton = recognition.automaton
    whole = table(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    masks = met(automaton, whole).astype("int64")
    keys, times = pa.repeat("k", len(rows)), micros(whole.column("at"))
    batch = placed(Batch(keys, times, masks, values(automaton, whole), whole))
    made = matcher(automaton, [pa.int64()] * len(automaton.values))
    found = made.process(made.empty(pa.string(), whole.schema), batch, FOREVER)[1]
    lost = vain(automaton, batch, found, unmatched=not recognition.empty)
    shown = sorted([*starts_of(found, "match"), *starts_of(lost, "none")])
    expected = Backtracking(rows).tried(tree, skip)
    kinds = {"match": "match", "empty" if recognition.empty else "unmatched": "none"}
    assert shown == [(start, kinds[kind]) for start, kind in expected if kind in kinds]
    if recognition.empty:
        numbers = [one.numbers.tolist() for one in numbered(found, lost)]
        assert sorted(numbers[0] + numbers[1]) == list(range(1, len(shown) + 1))


def starts_of(found: Found, kind: str) -> list[tuple[int, str]]:
    numbers = found.rows.column("number").to_pylist()
    return [(numbers[first], kind) for first in found.starts]


def found_or_refused(made: Matcher, batch: Batch) -> list[tuple[Any, ...]] | str:
    """Return the matches by key and start, each with the moment at which it is certain."""
    try:
        found = made.process(made.empty(pa.string(), batch.rows.schema), batch, FOREVER)[1]
    except ConditionFailed:
        return "refused"
    return by_start(found)


def by_start(found: Found) -> list[tuple[Any, ...]]:
    numbers = found.rows.column("number").to_pylist()
    return sorted(
        (found.keys[place].as_py(), numbers[a:z], found.blocks[a:z].tolist(), int(found.at[place]))
        for place, (a, z) in enumerate(zip(found.starts, found.ends, strict=True))
    )


def test_a_loop_that_never_ends_costs_no_more_than_its_rows():
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN (A+ B) DEFINE A AS x = 0, B AS x = 1)"
    )
    automaton = read(sql)[1].automaton
    made, rows = matcher(automaton, []), 200_000
    times = np.arange(rows)
    batch = Batch(pa.repeat("k", rows), times, times * 0 + 1, [], pa.table({"number": times}))
    kept, found = made.process(made.empty(pa.string(), batch.rows.schema), batch, FOREVER)
    # Runs would be moved 20 billion times, which takes minutes.
    assert (len(found), kept.live) == (0, 0)


def test_a_loop_that_never_ends_costs_no_more_than_its_rows_on_a_stream():
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN (A+ B) DEFINE A AS x = 0, B AS x = 1)"
    )
    automaton = read(sql)[1].automaton
    made, rows = matcher(automaton, []), 40_000
    times = np.arange(rows)
    kept = made.empty(pa.string(), pa.schema([("number", pa.int64())]))
    for first in range(0, 5 * rows, rows):
        table_of = pa.table({"number": times + first})
        batch = Batch(pa.repeat("k", rows), times + first, times * 0 + 1, [], table_of)
        kept, found = made.process(made.load(made.dump(kept)), batch, 0)
        assert len(found) == 0
    last = Batch(
        pa.repeat("k", 1), times[:1] + 9**9, times[:1] + 2, [], pa.table({"number": [9**9]})
    )
    kept, found = made.process(kept, last, 0)
    assert (len(found), len(found.rows), kept.live) == (1, 5 * rows + 1, 0)


def test_runs_are_told_apart_by_registers_that_are_still_read():
    """Behind the first B nothing reads what A was: runs that took other rows for A are one."""
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN (A+ B C D) WITHIN INTERVAL '1' DAY "
        "DEFINE A AS x = 0, B AS x < LAST(A.x) + 5 OR SUM(A.x) > 3, C AS x = 2, D AS x = LAST(C.x))"
    )
    automaton = read(sql)[1].automaton
    later = [{automaton.registers[one].function for one in some} for some in read_later(automaton)]
    waits = [state.name for state in automaton.states]
    assert later[waits.index("A or B")] == {"last", "sum"}
    assert later[waits.index("C")] == set()
    assert later[waits.index("D")] == {"last"}


def regexes() -> st.SearchStrategy[str]:
    """Regular expressions over the letters A and B, with groups that may be empty."""
    bounds = st.sampled_from(["*", "+", "?", "{1}", "{2}", "{1,2}", "{0,2}", "{2,}", "{2,3}"])

    def wider(inner):
        return st.one_of(
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}{two[1]})"),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, bounds, st.sampled_from(["", "?"])).map(
                lambda some: f"(?:{some[0]}){some[1]}{some[2]}"
            ),
        )

    inside = st.recursive(st.sampled_from("AB"), wider, max_leaves=5)
    ends = st.sampled_from(["", "", "$"])
    return st.tuples(st.sampled_from(["", "", "^"]), inside, ends).map("{0[0]}A{0[1]}{0[2]}".format)


@settings(max_examples=300)
@given(regex=regexes(), letters=st.text("AB", max_size=7))
@example(regex="A(?:B??){2}", letters="ABB")
@example(regex="A(?:B?){1,2}?", letters="ABB")
@example(regex="A(?:B$|BA)", letters="ABA")
@example(regex="A(?:(?:B?$)|(?:^AB))", letters="AA")
def test_quantifiers_prefer_what_those_of_regular_expressions_prefer(regex, letters):
    pattern = regex.replace("(?:", "(").replace("A", "A ").replace("B", "B ")
    define = ", ".join(f"{name} AS c = '{name}'" for name in "AB" if name in regex)
    sql = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN ({pattern}) DEFINE {define})"
    automaton = read(sql, batch=True)[1].automaton
    key, found = Key(), []
    for place, letter in enumerate(letters):
        ends = {"^": place == 0, "$": place == len(letters) - 1}
        holds = [ends.get(one.label, f"'{letter}'" in str(one.event)) for one in automaton.tests]
        met = sum(1 << number for number, one in enumerate(holds) if one)
        key, some, _ = step(automaton, key, Event(place, place, met))
        found += some
    found += advance(automaton, key, FOREVER)[1]
    taken = [len(match.history) for match in found if match.start == 0]
    expected = re.match(regex, letters)
    assert taken == ([] if expected is None else [len(expected[0])])
