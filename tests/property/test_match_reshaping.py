"""What matchers keep goes over to those of a changed pattern as the runs of the automaton do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.patterns import events
from millstream.patterns.automaton import Automaton
from millstream.patterns.carrying import Carrying
from millstream.patterns.matcher import Matcher, PlainMatcher, matcher
from millstream.patterns.outputs import Lag
from millstream.patterns.partition import PartitionMatcher
from millstream.patterns.pattern import Pattern
from millstream.patterns.reshaping import Side, reshaped
from property.patterns_random import shared_patterns, streams, table
from property.test_match_carry import SECOND, automata, compiled, lived
from property.test_patterns_kernel import FAR, batch_of, shown


def made(automaton: Automaton, *, plainly: bool) -> Matcher:
    if plainly:
        return PlainMatcher(automaton, late=True)
    return matcher(automaton, [pa.int64()] * len(automaton.values), late=True)


def side(automaton: Automaton, one: Matcher, rows: pa.Table, names: list[str]) -> Side:
    types = [pa.int64()] * len(automaton.values)
    columns = {name: name for name in names}
    return Side(automaton, one, one.empty(pa.string(), rows.schema), columns, types)


def in_columns(old: Side, new: Side, rows: pa.Table, cut: int, middle: int) -> Counter[Any]:
    """Return what matchers find, each in the rows on its side of the cut."""
    times = events.micros(rows.column("at"))
    parts = rows.filter(pa.array(times < cut)), rows.filter(pa.array(times >= cut))
    kept, found = old.empty, Counter[Any]()
    for part, watermark in (
        (parts[0].slice(0, middle), -1),
        (parts[0].slice(middle), -1),
        (parts[0].slice(0, 0), cut),
    ):
        kept, some = old.matcher.process(kept, batch_of(old.automaton, part), watermark)
        found += shown(old.automaton, some)
    kept, _ = reshaped(old, new, kept, cut)
    kept = new.matcher.load(new.matcher.dump(kept))
    for part, watermark in ((parts[1], cut), (parts[1].slice(0, 0), FAR)):
        kept, some = new.matcher.process(kept, batch_of(new.automaton, part), watermark)
        found += shown(new.automaton, some)
    assert kept.live == 0
    return found


def keyed(rows: list[dict[str, Any]], data: st.DataObject) -> pa.Table:
    given_ = [{**row, "key": data.draw(st.sampled_from("kl"))} for row in rows]
    return table(given_, key=True).append_column("number", pa.array(range(len(rows)), pa.int64()))


def expected(old: Automaton, new: Automaton, rows: pa.Table, cut: int, *, kept: bool) -> Any:
    found = Counter[Any]()
    for key in "kl":
        some = [row for row in rows.to_pylist() if row["key"] == key]
        plain = [{"at": row["at"].timestamp(), "x": row["x"]} for row in some]
        carrying = Carrying(old, new, kept=("x",) if kept else ())
        for (at, late, taken), count in lived(carrying, plain, cut)[0].items():
            numbered = tuple((block, some[place]["number"]) for block, place in taken)
            found[key, at, late, numbered] += count
    return found


@settings(max_examples=60, deadline=None)
@given(
    old=st.one_of(automata, shared_patterns().map(compiled)),
    new=st.one_of(automata, shared_patterns().map(compiled)),
    rows=streams(14),
    cut=st.integers(1, 20),
    data=st.data(),
)
def test_matchers_go_over_as_the_automaton_does(old, new, rows, cut, data):
    same, kept, plainly = (data.draw(st.booleans()) for _ in range(3))
    new = old if same else new
    events_table = keyed(rows, data)
    names = ["at", "key", "number", *(["x"] if kept else [])]
    sides = (
        side(old, made(old, plainly=plainly), events_table, names),
        side(new, made(new, plainly=data.draw(st.booleans())), events_table, names),
    )
    found = in_columns(*sides, events_table, cut * SECOND, data.draw(st.integers(0, len(rows))))
    right = expected(old, new, events_table, cut * SECOND, kept=kept)
    if old.prefers or new.prefers:  # the kernel does not tell of late runs there
        found, right = (Counter({o: n for o, n in c.items() if not o[2]}) for c in (found, right))
    assert found == right


def test_last_rows_and_counts_of_a_partition_go_over() -> None:
    old = compiled(Pattern().begin("a", "x = 1").followed_by("b", "x = 2"))
    new = compiled(Pattern().begin("a", "x = 1").followed_by("b", "x = 3"))
    rows = table([{"at": at, "x": x, "key": "k"} for at, x in enumerate([1, 2, 1, 3])], key=True)
    rows = rows.append_column("number", pa.array(range(4), pa.int64()))

    def remembering(automaton: Automaton) -> Side:
        inner = made(automaton, plainly=False)
        one = PartitionMatcher(inner, (Lag("x", "x", 1),), numbered=True)
        return side(automaton, one, rows, rows.column_names)

    before, after = remembering(old), remembering(new)
    kept, found = before.matcher.process(before.empty, batch_of(old, rows.slice(0, 3)), 2 * SECOND)
    assert found.numbers is not None
    assert found.numbers.tolist() == [1]
    kept, outcome = reshaped(before, after, kept, 3 * SECOND)
    assert outcome.carried == 1
    _, found = after.matcher.process(kept, batch_of(new, rows.slice(3)), FAR)
    assert found.numbers is not None
    assert found.numbers.tolist() == [2], "matches are counted on"
    assert found.rows.column("x").to_pylist() == [2, 1], "each row has the value of the one before"
