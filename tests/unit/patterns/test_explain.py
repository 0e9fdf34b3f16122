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
    ]


def test_an_explanation_prints_itself_and_its_warnings():
    said = str(Pattern().begin("a", "x = 1").followed_by("b", "x = 2").explain())
    assert "warning: the pattern waits for an event that may never come" in said


def test_the_picture_is_svg_with_a_box_for_each_state_and_the_user_s_words():
    picture = (
        Pattern("p<q").begin("a", "x < 1").followed_by("b", "x > 2").one_or_more().followed_by("c", "x = 3").explain()
    )
    root = ET.fromstring(picture.svg)
    rects = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") != "page"]
    assert len(rects) == len(picture.automaton.states) + 2
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"p<q", "begin", "match", "a", "x < 1", "x > 2"} <= set(texts)
    assert "http" not in picture.svg.replace("http://www.w3.org/2000/svg", "")
