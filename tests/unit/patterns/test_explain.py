"""An automaton for people, as text and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from millstream.patterns.pattern import Pattern

meltdown = (
    Pattern("meltdown")
    .begin("first", "delay > 60")
    .followed_by("worse", "delay > first.delay")
    .not_followed_by("ok", "delay <= 0")
    .within("2 hours")
)


def test_the_text_says_what_leads_where():
    assert meltdown.explain().text.splitlines() == [
        "meltdown   within 2 h",
        "├─ begin",
        "│  └─ first ──▶ 1   if delay > 60",
        "├─ 1   waits for worse",
        "│  ├─ worse ──▶ 2   if delay > first.delay",
        "│  └─ (pass over) ──▶ 1   if not (delay > first.delay)",
        "├─ 2   waits for the time to pass, matches when its time is up",
        "│  └─ (pass over) ──▶ 2   if not (delay <= 0)",
        "an event is tried on each run that waits for it: a condition looks at the run",
    ]


def test_the_text_says_what_an_event_costs():
    pattern = Pattern().begin("a", "x = 1").followed_by("b", "x = 2").one_or_more().greedy()
    shared = "an event moves all runs in a state at once"
    whole = pattern.followed_by("c", "x = 3").within("1 hour")
    for one in (whole, whole.skip_to_next(), whole.skip_past_last(), whole.skip_to_last("b")):
        assert shared in one.explain().text
    for other, why in (
        (pattern.followed_by("c", "x > a.x"), "a condition looks at the run"),
        (
            pattern.followed_by_any("c", "x = 3").followed_by("d", "x = 4"),
            "an event may lead a run to two states",
        ),
        (pattern.followed_by("c", "x = 3", within="1 minute"), "a block has a limit of its own"),
        (whole.singleton(), "it is a singleton"),
        (whole.skip_to_first("a"), "skip to first of a may drop nothing"),
    ):
        assert f"each run that waits for it: {why}" in other.explain().text


def test_a_skip_is_shared_where_every_match_has_the_block_behind_its_first_event():
    begun = Pattern().begin("a", "x = 1").followed_by("b", "x = 2").one_or_more().greedy()
    optional = begun.optional().followed_by("c", "x = 3").within("1 hour")
    assert begun.followed_by("c", "x = 3").within("1 hour").skip_to_first("b").shared
    assert not optional.skip_to_first("b").shared
    assert optional.skip_to_first("c").shared


def test_a_skip_with_late_runs_is_shared_where_no_run_goes_on_behind_its_match():
    ends = Pattern().begin("a", "x = 1").followed_by("b", "x = 2").within("1 hour").skip_past_last()
    goes_on = ends.one_or_more().greedy()
    assert ends.timeouts().shared
    assert goes_on.shared
    assert not goes_on.timeouts().shared


def test_an_explanation_prints_itself_and_its_warnings():
    said = str(Pattern().begin("a", "x = 1").followed_by("b", "x = 2").explain())
    assert "warning: the pattern waits for an event that may never come" in said


SVG = "{http://www.w3.org/2000/svg}"


def written(pattern: Pattern, kind: str | None = None) -> list[str]:
    root = ET.fromstring(pattern.explain().svg)
    return [
        "".join(one.itertext())
        for one in root.iter(f"{SVG}text")
        if kind in (None, one.get("class"))
    ]


def arrows(pattern: Pattern, kind: str) -> int:
    root = ET.fromstring(pattern.explain().svg)
    return sum(
        1 for one in root.iter(f"{SVG}path") if one.get("class") == kind and one.get("marker-end")
    )


def test_the_picture_has_a_box_for_all_that_a_run_waits_for_and_the_user_s_words():
    # a b+ c
    loop = (
        Pattern("p<q")
        .begin("a", "x < 1")
        .followed_by("b", "x > 2")
        .one_or_more()
        .followed_by("c", "x = 3")
    )
    assert {
        "p<q",
        "begin",
        "match",
        "a",
        "x < 1",
        "b",
        "x > 2",
        "waits for b",
        "waits for b or c",
    } <= set(written(loop))
    # Taking a, b, b again and c; passing over at both boxes.
    assert (arrows(loop, "take"), arrows(loop, "wait")) == (4, 2)
    assert "http" not in loop.explain().svg.replace("http://www.w3.org/2000/svg", "")


def test_what_a_run_waits_for_after_it_passed_over_something_is_no_box_of_its_own():
    # a b? c? d
    some = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x = 2")
        .optional()
        .followed_by("c", "x = 3")
        .optional()
    )
    pattern = some.followed_by("d", "x = 4").within("1 hour")
    waits = [text for text in written(pattern, "name") if text.startswith("waits")]
    assert sorted(waits) == ["waits for b or c or d", "waits for c or d", "waits for d"]


def test_the_picture_says_what_ends_a_run():
    assert written(meltdown, "ends") == ["ends at delay <= 0"]
    kept = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by("b", "x = 2")
        .precondition("v > 0")
        .halt("x = 9")
        .within("1 hour")
    )
    assert written(kept, "ends") == ["ends at x = 9", "ends unless v > 0"]


def test_what_must_not_come_next_may_come_later_in_the_picture_too():
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .not_next("n", "x = 2")
        .followed_by("b", "x = 3")
        .within("1 hour")
    )
    assert written(pattern, "ends") == ["ends at x = 2"]
    assert written(pattern).count("waits for b") == 2
    assert "other events" in written(pattern)


def test_a_match_that_needs_time_to_pass_says_so():
    assert "time is up" in written(meltdown)


def test_a_loop_over_a_group_leads_back():
    group = Pattern().begin("b", "x = 2").next("c", "x = 3")
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .followed_by(group)
        .one_or_more()
        .followed_by("d", "x = 4")
        .within("1 hour")
    )
    assert "b x = 2" in written(pattern)
    assert arrows(pattern, "take") == 5


def test_long_patterns_and_long_conditions_are_drawn_all_the_same():
    pattern = (
        Pattern()
        .begin("a", " OR ".join(f"x = {number}" for number in range(50)))
        .times(60)
        .within("1 hour")
    )
    assert written(pattern).count("match") == 1
    assert max(len(text) for text in written(pattern)) < 60


def test_every_test_of_an_arrow_that_begins_is_said():
    pattern = Pattern().begin("a", "x = 1").halt("x = 9").precondition("v > 0")
    assert "x = 1 and v > 0 and not x = 9" in written(pattern)


def test_a_loop_that_is_closed_by_an_event_does_not_lead_back_in_the_picture():
    # a{2,} until b, b
    pattern = (
        Pattern()
        .begin("a", "x = 1")
        .times_or_more(2)
        .greedy()
        .until("x = 2")
        .followed_by("b", "x = 2")
    )
    assert written(pattern.within("1 hour"), "ends") == ["ends at x = 2"]
    assert "other events" not in written(pattern.within("1 hour"))
