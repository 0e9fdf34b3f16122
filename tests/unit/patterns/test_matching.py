"""What the blocks and options mean, each test with its pattern as a comment; the results are those of Flink CEP's tests and documentation."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import (
    ConditionFailed,
    ImpossiblePattern,
    InternalError,
    InvalidCondition,
    UnboundedState,
    UnknownBlock,
    UnknownColumn,
)
from millstream.flow.schema import Schema
from millstream.patterns import events, shard
from millstream.patterns.batches import Batch
from millstream.patterns.compile import compile_pattern
from millstream.patterns.kernel import compiled
from millstream.patterns.kernel.forking import match_forking
from millstream.patterns.match_recognize import read
from millstream.patterns.matcher import PlainMatcher, matcher
from millstream.patterns.pattern import Pattern
from unit.patterns.matching import found, numbers, places, rows, run


def on(*names: str) -> tuple[str, str]:
    return names[0], " or ".join(f"e = '{name}'" for name in names)


a = Pattern().begin(*on("a"))


def test_strict_takes_the_very_next_event_only():  # a next b
    assert found(a.next(*on("b")), "abaxb") == ["0 1"]


def test_relaxed_passes_over_others_and_does_not_fork():  # a followed by b
    assert found(a.followed_by(*on("b")), "axbb") == ["0 2"]


def test_relaxed_any_forks():  # a followed by any b
    assert found(a.followed_by_any(*on("b")), "axbb") == ["0 2", "0 3"]


def test_every_event_that_meets_the_first_block_starts_a_run():
    assert found(a.followed_by(*on("b")), "aab") == ["0 2", "1 2"]


def test_a_singleton_has_one_run_at_a_time():
    assert found(a.followed_by(*on("b")).singleton(), "aabab") == ["0 2", "3 4"]


# Loops: c a+ b as in Flink's documentation, "c a1 b1 a2 a3 d"-like streams


def test_a_loop_that_can_stay_and_leave_forks():  # c a+ d
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).one_or_more().followed_by(*on("d"))
    assert sorted(found(pattern, "caxad")) == ["0 1 3 4", "0 1 4"]


def test_a_consecutive_loop_ends_at_the_first_other_event():  # c a+ (consecutive) d
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .consecutive()
        .followed_by(*on("d"))
    )
    assert sorted(found(pattern, "caaxad")) == ["0 1 2 5", "0 1 5"]


def test_combinations_may_pass_over_what_they_could_take():  # c a+ (combinations) d
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .combinations()
        .followed_by(*on("d"))
    )
    assert sorted(found(pattern, "caaad")) == ["0 1 2 3 4", "0 1 2 4", "0 1 3 4", "0 1 4"]


def test_a_greedy_loop_takes_all_it_can():  # c a+ (greedy) d
    pattern = (
        Pattern().begin(*on("c")).followed_by(*on("a")).one_or_more().greedy().followed_by(*on("d"))
    )
    assert found(pattern, "caad") == ["0 1 2 3"]


def test_a_greedy_loop_that_may_be_left_out_takes_all_it_can():  # c a* (greedy) d
    loop = Pattern().begin(*on("c")).followed_by(*on("a")).zero_or_more().greedy()
    assert found(loop.followed_by(*on("d")), "caad") == ["0 1 2 3"]
    assert found(loop.followed_by(*on("d")), "cxaxad") == ["0 2 4 5"]
    assert found(loop.followed_by(*on("d")), "cd") == ["0 1"]
    assert found(loop.next(*on("d")), "cad") == ["0 1 2"]


def test_what_ends_a_greedy_loop_ends_its_greed():  # c a* (greedy, until u) d
    begun = Pattern().begin(*on("c")).followed_by("a", "e in ('a', 'u')")
    loop = begun.zero_or_more().greedy().until("e = 'u'").followed_by(*on("d"))
    assert found(loop, "cuaad") == ["0 4"]
    assert found(loop, "cauad") == ["0 1 4"]
    assert found(loop, "caxuad") == ["0 1 5"]
    once = begun.one_or_more().greedy().until("e = 'u'").followed_by(*on("d"))
    assert found(once, "cauad") == ["0 1 4"]
    assert found(once, "cuaad") == []


def test_a_reluctant_loop_that_may_be_left_out_leaves_what_the_next_block_can_take():  # c (a or d)*? d
    begun = Pattern().begin(*on("c"))
    loop = begun.followed_by("a", "e in ('a', 'd')").zero_or_more().reluctant()
    assert found(loop.followed_by(*on("d")), "cdd") == ["0 1"]
    assert found(loop.followed_by(*on("d")), "cadd") == ["0 1 2"]
    assert found(loop.followed_by(*on("d")), "cxdd") == ["0 2"]
    strict = begun.next("a", "e in ('a', 'd')").times(0, 2).reluctant()
    assert found(strict.followed_by(*on("d")), "cdd") == ["0 1"]


def test_a_greedy_loop_takes_what_the_next_block_could():  # c a+ (greedy) (a or d)
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .greedy()
        .followed_by("d", "e in ('a', 'd')")
    )
    assert found(pattern, "caad") == ["0 1 2 3"]


def test_a_reluctant_loop_leaves_as_soon_as_it_can():  # c a+ (reluctant) (a or d)
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .reluctant()
        .followed_by("d", "e in ('a', 'd')")
    )
    assert found(pattern, "caad") == ["0 1 2"]


def test_a_reluctant_loop_does_not_fork_over_other_events():  # c a+ (reluctant) d
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .reluctant()
        .followed_by(*on("d"))
    )
    assert found(pattern, "caxadad") == ["0 1 3 4"]


def test_a_reluctant_loop_before_a_strict_block():  # c a+ (reluctant) next d
    pattern = (
        Pattern()
        .begin(*on("c"))
        .next(*on("a"))
        .one_or_more()
        .reluctant()
        .consecutive()
        .next(*on("d"))
    )
    assert found(pattern, "caad") == ["0 1 2 3"]
    assert found(pattern, "caaxd") == []


def test_times_counts():  # c a{2} d
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).times(2).followed_by(*on("d"))
    assert found(pattern, "cad") == []
    assert found(pattern, "caaad") == ["0 1 2 4"]


def test_a_range_of_times():  # c a{1,2} d
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).times(1, 2).followed_by(*on("d"))
    assert sorted(found(pattern, "caaad")) == ["0 1 2 4", "0 1 4"]


def test_times_or_more():  # c a{2,} d
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).times_or_more(2).followed_by(*on("d"))
    assert sorted(found(pattern, "caaad")) == ["0 1 2 3 4", "0 1 2 4"]


def test_a_loop_at_the_end_matches_at_each_of_its_events():  # c a+
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).one_or_more()
    assert found(pattern, "caa") == ["0 1", "0 1 2"]


def test_zero_or_more_may_take_nothing():  # c a* d
    pattern = Pattern().begin(*on("c")).followed_by(*on("a")).zero_or_more().followed_by(*on("d"))
    assert sorted(found(pattern, "cad")) == ["0 1 2", "0 2"]


def test_until_ends_a_loop():  # c a+ until x, d
    pattern = (
        Pattern()
        .begin(*on("c"))
        .followed_by(*on("a"))
        .one_or_more()
        .until("e = 'x'")
        .followed_by(*on("d"))
    )
    assert sorted(found(pattern, "caxad")) == ["0 1 4"]


def test_an_optional_block_is_tried_and_left_out():  # a b? c
    pattern = a.followed_by(*on("b")).optional().followed_by(*on("c"))
    assert sorted(found(pattern, "abc")) == ["0 1 2", "0 2"]
    assert found(pattern, "ac") == ["0 1"]


def test_the_first_block_may_be_optional():  # a? b
    pattern = a.optional().followed_by(*on("b"))
    assert sorted(found(pattern, "ab")) == ["0 1", "1"]


def test_a_group_loops_as_a_whole():  # a (b c){2} d
    pattern = a.followed_by(Pattern().begin(*on("b")).next(*on("c"))).times(2).followed_by(*on("d"))
    assert found(pattern, "abcbcd") == ["0 1 2 3 4 5"]
    assert found(pattern, "abcxbcd") == ["0 1 2 4 5 6"]
    assert found(pattern, "abcd") == []


def test_alternatives_wait_together():  # a (b | c)
    either = Pattern.either(Pattern().begin(*on("b")), Pattern().begin(*on("c")))
    assert found(a.followed_by(either), "axcb") == ["0 2"]


def test_not_next_tries_the_same_event_on_the_next_block():  # a not-next b, c
    pattern = a.not_next(*on("b")).followed_by(*on("c"))
    assert found(pattern, "axc") == ["0 2"]
    assert found(pattern, "ac") == ["0 1"]
    assert found(pattern, "abc") == []


def test_not_followed_by_halts_until_the_next_block_matches():  # a not-followed-by b, c
    pattern = a.not_followed_by(*on("b")).followed_by(*on("c"))
    assert found(pattern, "axc") == ["0 2"]
    assert found(pattern, "axbc") == []
    assert found(pattern, "acb") == ["0 1"]


def test_not_followed_by_at_the_end_holds_when_time_is_up():  # a not-followed-by b within 3 s
    pattern = a.not_followed_by(*on("b")).within("3 seconds")
    (match,), late = run(compile_pattern(pattern), rows("axxxxx"))
    assert (places(match), match.at, late) == ("0", 3_000_000, [])
    assert found(pattern, "axb") == []
    assert found(pattern, "axxb") == ["0"]
    assert found(pattern, "axx", end=False) == []


def test_not_next_at_the_end_needs_one_more_event():  # a not-next b
    assert found(a.not_next(*on("b")), "ax") == ["0"]
    assert found(a.not_next(*on("b")), "ab") == []
    assert found(a.not_next(*on("b")), "a") == []


def test_within_leaves_out_an_event_exactly_at_its_end():  # a followed by b within 3 s
    pattern = a.followed_by(*on("b")).within("3 seconds")
    assert found(pattern, "axb") == ["0 2"]
    assert found(pattern, "axxb") == []


def test_a_run_whose_time_is_up_is_an_output_of_its_own():
    matches, late = run(
        compile_pattern(a.followed_by(*on("b")).followed_by(*on("c")).within("3 seconds")),
        rows("abxxx"),
    )
    assert matches == []
    assert [(places(one), one.at, one.timed_out) for one in late] == [("0 1", 3_000_000, True)]


def test_a_run_that_waits_for_two_blocks_runs_out_of_time_once():  # a o? b
    pattern = a.followed_by(*on("o")).optional().followed_by(*on("b")).within("3 seconds")
    matches, late = run(compile_pattern(pattern), rows("axxx"))
    assert (matches, [places(one) for one in late]) == ([], ["0"])


@pytest.mark.parametrize(
    "pattern",
    [
        a.followed_by(*on("o")).optional().followed_by(*on("b")),
        a.followed_by(*on("b")).one_or_more().followed_by(*on("c")),
        a.followed_by(*on("b")).zero_or_more().followed_by_any(*on("c")),
        a.followed_by(*on("b")).times(2, 4).combinations().followed_by(*on("c")),
    ],
    ids=["optional", "loop", "any", "combinations"],
)
def test_an_event_that_meets_nothing_forks_no_run(pattern):
    assert compile_pattern(pattern).quiet
    assert not compile_pattern(pattern, merges=False).quiet


def test_within_between_two_blocks():  # a followed by b at most 2 s later, followed by c
    pattern = a.followed_by(*on("b"), within="2 seconds").followed_by(*on("c"))
    assert found(pattern, "abxxxc") == ["0 1 5"]
    assert found(pattern, "axbc") == []
    matches, late = run(compile_pattern(pattern), rows("axxbc"))
    assert (matches, [one.at for one in late]) == ([], [2_000_000])


def test_a_precondition_must_hold_for_every_event():
    assert found(a.followed_by(*on("b")).precondition("e <> 'x'"), "ayb") == ["0 2"]
    assert found(a.followed_by(*on("b")).precondition("e <> 'x'"), "axb") == []
    assert found(a.followed_by(*on("b")).precondition("e <> 'a'"), "ab") == []


def test_a_halt_condition_halts():
    assert found(a.followed_by(*on("b")).halt("e = 'x'"), "axb") == []


# After a match: a+ b, as in Flink's documentation of skip strategies


loop = Pattern().begin(*on("a")).one_or_more().consecutive().next(*on("b")).within("1 minute")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (loop.no_skip(), ["0 1 2 3", "1 2 3", "2 3"]),
        (loop.skip_to_next(), ["0 1 2 3", "1 2 3", "2 3"]),
        (loop.skip_past_last(), ["0 1 2 3"]),
        (loop.skip_to_last("a"), ["0 1 2 3", "2 3"]),
    ],
)
def test_skip_strategies(pattern, expected):
    assert found(pattern, "aaab") == expected


def test_a_match_waits_for_runs_that_began_earlier():  # a b c | skip past last
    pattern = (
        Pattern()
        .begin(*on("a", "b"))
        .followed_by("c", "e = 'c' or e = 'd'")
        .within("5 seconds")
        .skip_past_last()
    )
    assert found(pattern, "abcd") == ["0 2"]
    wider = (
        Pattern()
        .begin("s", "e in ('a', 'b')")
        .followed_by_any("t", "e = 'c'")
        .within("4 seconds")
        .skip_past_last()
    )
    assert found(wider, "abxxc") == ["1 4"]


# History


def test_a_condition_looks_at_the_event_of_another_block():
    pattern = Pattern().begin("late", "x > 60").followed_by("later", "x > late.x")
    matches, _ = run(compile_pattern(pattern), numbers(61, 50, 70))
    assert [places(match) for match in matches] == ["0 2"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > first(b.x)", ["0 1 2 3 4"]),
        ("x >= last(b.x) + 20", ["0 1 2 3 5"]),
        ("count(b.*) = 3 and x > sum(b.x)", ["0 1 2 3 6"]),
        ("x > 2 * avg(b.x)", ["0 1 2 3 5"]),
        ("any(b.x > 11) and x = 20", ["0 1 2 3 4"]),
        ("any(b.x > 12) and x = 20", []),
        ("x > max(b.x) + min(b.x)", ["0 1 2 3 5"]),
        ("x between b.x and b.x + 8", ["0 1 2 3 4"]),
        ("x in (b.x, 45)", ["0 1 2 3 6"]),
        ("b.x is null", []),
        ("case when b.x > 5 then x = 20 else false end", ["0 1 2 3 4"]),
    ],
)
def test_a_condition_looks_at_all_that_a_loop_has_taken(condition, expected):
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x between 10 and 12")
        .times(3)
        .followed_by("c", condition)
    )
    matches, _ = run(compile_pattern(pattern), numbers(1, 10, 11, 12, 20, 33, 45))
    assert [places(match) for match in matches] == expected


def test_times_are_numbers_that_an_interval_can_be_added_to():
    pattern = Pattern().begin("a", "x = 1").followed_by_any("b", "at - a.at >= interval 2 seconds")
    matches, _ = run(compile_pattern(pattern), numbers(1, 0, 0, 0))
    assert [places(match) for match in matches] == ["0 2", "0 3"]


def test_a_predicate_of_the_event_alone_is_asked_once_and_leaves_the_rest_to_the_kernel():
    asked = []

    def vowel(event):
        asked.append(event["e"])
        return event["e"] in "aeiou"

    pattern = Pattern().begin("a", "e = 'x'").followed_by("b", vowel).followed_by("c", "e = a.e")
    assert found(pattern, "xyax") == ["0 2 3"]
    assert asked == ["x", "y", "a", "x"]
    automaton = compile_pattern(pattern)
    assert matcher(automaton, [pa.string()] * len(automaton.values)).compiled
    mixed = compile_pattern(Pattern().begin("a", [vowel, lambda event, history: False]))
    assert not matcher(mixed, []).compiled


def test_a_predicate_that_fails_is_named_with_its_event():
    def broken(event):
        return event["x"] > 1

    pattern = Pattern().begin("a", "e = 'x'").followed_by("b", broken)
    with pytest.raises(
        ConditionFailed, match=r'the predicate broken\(\) of block "b" failed with KeyError'
    ) as caught:
        found(pattern, "x")
    assert "the event was {'e': 'x'" in caught.value.hint


def test_a_python_predicate_sees_the_event_and_the_history():
    def bigger(event, history):
        return event["x"] > history["a"][-1]["x"]

    pattern = Pattern().begin("a", "x > 0").next("b", bigger)
    matches, _ = run(compile_pattern(pattern), numbers(5, 4, 6))
    assert [places(match) for match in matches] == ["1 2"]


# Refusals


schema = Schema.parse("x int, at timestamp, e string, s struct<y: int>")


@pytest.mark.parametrize(
    ("pattern", "error", "said"),
    [
        (
            a.one_or_more().until("e = 'a'").next("b"),
            ImpossiblePattern,
            'block "a" can never take an event',
        ),
        (
            a.not_next("n", "x = 2").next("b", "x = 2"),
            ImpossiblePattern,
            'block "b" can never take an event',
        ),
        (
            a.not_followed_by("n", "x = 2").followed_by("b", "x = 2").next("c"),
            ImpossiblePattern,
            'block "b" can never take an event',
        ),
        (
            a.next("b", "x = 1").halt("x = 1"),
            ImpossiblePattern,
            'block "b" can never take an event',
        ),
        (a.next("b", "false"), InvalidCondition, "which no event meets"),
        (a.next("b", "x + 1"), InvalidCondition, "which is a number and not true or false"),
        (a.next("b", "e > 5"), InvalidCondition, "compares a text with a number"),
        (a.next("b", "x = 'one'"), InvalidCondition, "compares a number with a text"),
        (a.next("b", "at > 3"), InvalidCondition, "compares a time with a number"),
        (a.next("b", "x > a.e"), InvalidCondition, "compares a number with a text"),
        (a.next("b", "a.e + 1 > x"), InvalidCondition, "calculates with text"),
        (a.next("b", "sum(a.e) > 1"), InvalidCondition, 'and "e" is text and no number'),
        (a.next("b", "x > zzz.x"), UnknownBlock, '"zzz" is neither a block nor a column'),
        (Pattern(), ImpossiblePattern, "no blocks"),
        (
            a.not_followed_by("x", "e = 'x'", within="1 second").followed_by(*on("b")),
            ImpossiblePattern,
            "with a time, and not the last",
        ),
        (
            a.not_followed_by("b", "x = 1"),
            ImpossiblePattern,
            'block "b" is negated and may be the last',
        ),
        (
            a.followed_by("b", "x > c.x").followed_by("c", "x = 1"),
            UnknownBlock,
            'looks at block "c", which comes after',
        ),
        (a.followed_by("b", "y = 1"), UnknownColumn, 'block "b" reads column "y"'),
        (a.followed_by("b", "x > a.y"), UnknownColumn, 'block "b" reads column "y"'),
        (a.followed_by("b", "x"), InvalidCondition, "int and not true or false"),
        (a.followed_by("b", "e > a.x"), InvalidCondition, "compares a text with a number"),
        (a.followed_by("b", "soundex(a.e) = 'x'"), InvalidCondition, "only Spark could compute"),
        (a.followed_by("b", "sum(a.x + x) > 1"), InvalidCondition, "mixes column"),
        (
            a.followed_by("b", ["x = 1", lambda event, history: True]),
            InvalidCondition,
            "SQL and Python",
        ),
        (
            a.followed_by(Pattern().begin("b", "x=1").not_next("c", "x=2")),
            ImpossiblePattern,
            "edge of a group",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_block(pattern, error, said):
    with pytest.raises(error, match=said) as caught:
        compile_pattern(pattern, schema)
    assert caught.value.where is not None or pattern == Pattern()


def test_a_field_of_a_struct_is_no_block():
    compile_pattern(a.followed_by("b", "s.y > 1 and a.s.y = 2"), schema)


def test_a_pattern_without_an_end_is_warned_of_and_refused_if_asked():
    pattern = a.followed_by(*on("b"))
    assert "may live for ever" in compile_pattern(pattern).warnings[0]
    assert compile_pattern(pattern.within("1 s")).warnings == ()
    assert compile_pattern(a.next(*on("b"))).warnings == ()
    with pytest.raises(UnboundedState, match="may live for ever"):
        compile_pattern(pattern, strict=True)


def test_what_is_about_the_event_alone_is_left_to_sql():
    automaton = compile_pattern(a.followed_by("b", "length(e) > 3 and x > a.x * 2"), schema)
    assert [test.event for test in automaton.tests] == ["e = 'a'", "LENGTH(e) > 3"]
    assert automaton.values == ("x",)


def test_an_event_that_meets_nothing_may_be_dropped_if_contiguity_allows():
    assert compile_pattern(a.followed_by(*on("b"))).quiet
    assert not compile_pattern(a.next(*on("b"))).quiet
    assert not compile_pattern(a.followed_by("b")).quiet


def test_state_of_the_version_before_is_still_read():
    automaton = compile_pattern(
        a.followed_by(*on("b")).within("1 minute"), Schema.parse("e string, at timestamp")
    )
    made = matcher(automaton, [pa.string()] * len(automaton.values))
    kept, _ = made.process(
        made.empty(pa.string(), pa.schema([("e", pa.string())])), _one_event(), 1
    )
    data = made.dump(kept)
    plain = shard.MARK + shard.PLAIN_VERSION.to_bytes(2, "little") + shard._content(data)
    assert made.load(plain).live == made.load(data).live == 1
    with pytest.raises(InternalError, match="not of a version"):
        made.load(shard.MARK + b"\x09\x00" + data[6:])


def _one_event() -> Batch:
    return Batch(pa.array(["k"]), np.array([1]), np.array([1]), [], pa.table({"e": ["a"]}))


def test_what_is_compiled_is_kept_by_the_content_of_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = Path(compiled.__file__).parent
    copy = shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    other = shutil.copytree(copy, tmp_path / "other")
    with (other / "machine.py").open("a") as changed:
        changed.write("# part of what is compiled of another file")
    places = [
        compiled.Locator.from_function(match_forking.py_func, str(path / "forking.py"))
        for path in (folder, copy, other)
    ]
    assert places[0].get_cache_path() == places[1].get_cache_path()
    assert places[0].get_cache_path() != places[2].get_cache_path()
    assert Path(places[0].get_cache_path()).parent == tmp_path / "millstream"


@pytest.mark.parametrize("sql", [False, True])
def test_tables_grow_in_the_middle_of_an_event(sql):  # a b+ c, with more runs than tables have rows
    count = 150 if sql else 400
    text = "a" * count + "bbc" + "ab" * 20 + "c"
    clause = """SELECT * FROM events MATCH_RECOGNIZE (ORDER BY at MEASURES LAST(a.e) AS l
        AFTER MATCH SKIP TO NEXT ROW PATTERN (a+ b+ c) DEFINE a AS e = 'a', b AS e = 'b', c AS e = 'c')"""
    schema = Schema.parse("e string, at timestamp")
    pattern = a.followed_by(*on("b")).one_or_more().followed_by(*on("c"))
    automaton = read(clause, schema)[1].automaton if sql else compile_pattern(pattern)
    table = rows(text)
    batch = Batch(
        pa.array(["k"] * len(table)),
        events.micros(table.column("at")),
        events.met(automaton, table).astype(np.int64),
        events.values(automaton, table),
        table.append_column("number", pa.array(range(len(table)))),
    )
    shown = []
    for made in (
        matcher(automaton, [pa.string()] * len(automaton.values)),
        PlainMatcher(automaton),
    ):
        kept = made.empty(pa.string(), batch.rows.schema)
        _, some = made.process(kept, batch, 10**15)
        numbers_found = some.rows.column("number").to_pylist()
        spans = zip(some.starts.tolist(), some.ends.tolist(), strict=True)
        shown.append(sorted((tuple(numbers_found[x:y]) for x, y in spans)))
    assert shown[0] == shown[1]
    assert len(shown[0]) > count
