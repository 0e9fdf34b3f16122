"""Windows of loops and negations, loops of groups that end, skips that fail, and BoboCEP's rules: in the kernel and event by event."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from millstream.errors import ConditionFailed
from millstream.flow.schema import Schema
from millstream.patterns import events
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.matcher import PlainMatcher, matcher
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.recipe import output_schema, recipe
from millstream.testing import matches
from unit.patterns.matching import found as stepped
from unit.patterns.matching import rows


def on(*names: str) -> tuple[str, str]:
    return names[0], " or ".join(f"e = '{name}'" for name in names)


a, c = Pattern().begin(*on("a")), Pattern().begin(*on("c"))


def found(pattern: Pattern, text: str) -> list[str]:
    """Return the places of the events of each match: the kernel finds what steps find."""
    automaton = compile_pattern(pattern)
    table = rows(text).append_column("n", pa.array(range(len(text))))
    columns = events.values(automaton, table)
    shown = []
    for made in (matcher(automaton, [one.type for one in columns]), PlainMatcher(automaton)):
        masks = events.met(automaton, table).astype("int64")
        times = events.micros(table.column("at"))
        batch = Batch(pa.array(["k"] * len(text)), times, masks, columns, table)
        some = made.process(made.empty(pa.string(), table.schema), batch, 10**15)[1]
        numbers = some.rows.column("n").to_pylist()
        ends = zip(some.starts, some.ends, strict=True)
        shown.append(sorted(" ".join(map(str, numbers[i:j])) for i, j in ends))
    assert shown[0] == shown[1] == sorted(stepped(pattern, text))
    return shown[0]


def test_the_events_of_a_loop_come_within_a_time_of_each_other():  # a b{3}, each 3 s after the last
    loop = a.followed_by(*on("b")).times(3, within="3 seconds").within("1 minute")
    assert found(loop, "axxxxbxbb") == ["0 5 7 8"]
    assert found(loop, "abxxbb") == []
    more = a.followed_by(*on("b")).one_or_more(within="2 seconds").followed_by(*on("c"))
    assert found(more.within("1 minute"), "abbxbc") == ["0 1 2 5", "0 1 5"]


def test_what_must_not_follow_has_a_time_of_its_own():  # a b, no x for 3 s after b
    silent = a.followed_by(*on("b")).not_followed_by("x", "e = 'x'", within="3 seconds")
    assert found(silent, "acccbccx") == ["0 4"]
    assert found(silent, "abcx") == []
    assert found(silent.within("4 seconds"), "axxbccx") == ["0 3"]


def test_until_ends_the_loop_of_a_group():  # c (a b)+ until d, d
    pair = Pattern().begin(*on("a")).followed_by(*on("b"))
    loop = (
        c.followed_by(pair).one_or_more().until("e = 'd'").followed_by(*on("d")).within("1 minute")
    )
    assert found(loop, "cababd") == ["0 1 2 3 4 5", "0 1 2 5"]
    assert found(loop, "cadbd") == []
    either = Pattern.either(Pattern().begin(*on("a")), Pattern().begin(*on("b")))
    loop = c.followed_by(either).times(2).until("e = 'd'").followed_by("z", "e = 'z'")
    assert found(loop.within("1 minute"), "caxbz") == ["0 1 3 4"]
    assert found(loop.within("1 minute"), "cadbz") == []


def test_all_blocks_may_be_optional():  # a? b?
    both = a.optional().followed_by(*on("b")).optional().within("1 minute")
    assert found(both, "axb") == ["0", "0 2", "2"]
    assert found(both, "xx") == []


def test_a_skip_may_fail_where_it_leads_nowhere():  # a b? c
    pattern = a.followed_by(*on("b")).optional().followed_by(*on("c")).within("1 minute")
    assert found(pattern.skip_to_first("b"), "ac") == ["0 1"]
    failing = pattern.skip_to_first("b", or_fail=True)
    assert str(failing.skip) == "to first of b or fail"
    for finding in (found, stepped):
        with pytest.raises(ConditionFailed, match='"b"'):
            finding(failing, "ac")
    with pytest.raises(ConditionFailed, match='"a"'):
        stepped(pattern.skip_to_last("a", or_fail=True), "abc")


def test_a_pattern_has_the_rules_of_bobocep_wherever_it_is_matched():
    pattern = a.not_followed_by(*on("b")).followed_by(*on("c"))
    rows = [{"e": e, "at": datetime(2024, 5, 4, 9, 0, n, tzinfo=UTC)} for n, e in enumerate("axc")]
    alike = matches(pattern.like_bobocep(), rows)
    assert alike == matches(pattern, rows, compat="bobocep")
    assert [sorted(match) for match in alike] == [["a", "b", "c"]]
    schema = Schema.parse("e string, at timestamp")
    made = recipe(pattern.like_bobocep(), schema, time="at")
    blocks = made.plans[0].automaton.blocks
    emitted = recipe(pattern.emit("c.e as what").like_bobocep(), schema, time="at").plans[0]
    assert [[blocks[one] for one in piece.blocks] for piece in emitted.outputs.pieces] == [["c"]]
    assert made.plans[0].automaton == compile_pattern(pattern, schema, compat="bobocep")
    assert pattern.like_bobocep().described()["rules"] == "bobocep"


def test_the_patterns_of_a_phenomenon_may_emit_different_columns():
    schema = Schema.parse("e string, x int, at timestamp")
    up = Pattern("up").begin("a", "x > 1").emit("a.x as peak")
    down = Pattern("down").begin("b", "x < 1").emit("b.e as what, b.x as Peak")
    made = recipe(Phenomenon("both", (up, down)), schema, time="at")
    assert made.names == ("peak", "what", "pattern", "at")
    assert [[one.sql for one in plan.outputs.columns] for plan in made.plans] == [
        ["__piece0", "NULL"],
        ["__piece1", "__piece0"],
    ]
    types = {field.name: field.type for field in output_schema(made, schema)}
    assert types == {"peak": "int", "what": "string", "pattern": "string", "at": "timestamp"}
