"""Random patterns and streams, and what their conditions mean in plain Python."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream.patterns.checks import ending
from millstream.patterns.pattern import Pattern

PLAIN = ["x = 0", "x = 1", "x = 2", "x >= 1", "x <> 1", "x in (0, 2)"]
_OVER = re.compile(
    r"(?:(x) (>=|<) )?(last|first|sum|count|any|avg)?\(?(\w+)\.(x|\*)[^)]*\)?(?: (<|>) (\d))?"
)


def meets(text: str, event: dict[str, Any], history: dict[str, list[dict[str, Any]]]) -> bool:
    """Say what a condition of `conditions` means."""
    x = event["x"]
    plain = {
        "x = 0": x == 0,
        "x = 1": x == 1,
        "x = 2": x == 2,
        "x >= 1": x >= 1,
        "x <> 1": x != 1,
        "x in (0, 2)": x in (0, 2),
    }
    if text in plain:
        return plain[text]
    event_part, _, text = text.rpartition(" and ")
    if event_part and not plain[event_part]:
        return False
    found = _OVER.fullmatch(text)
    assert found, text
    _, compare, function, block, _, bound, number = found.groups()
    past = [one["x"] for one in history.get(block, [])]
    if function == "count":
        return len(past) < int(number)
    if not past:
        return False
    if function == "any":
        return any(one > int(number) for one in past) if number else any(one > 1 for one in past)
    value = {
        "last": past[-1],
        None: past[-1],
        "first": past[0],
        "sum": sum(past),
        "avg": sum(past) / len(past),
    }[function]
    if compare is not None:
        return x >= value if compare == ">=" else x < value
    return value > int(number) if bound == ">" else value < int(number)


def conditions(known: list[str]) -> st.SearchStrategy[str]:
    if not known:
        return st.sampled_from(PLAIN)
    over = [
        *(f"x >= {name}.x" for name in known),
        *(f"x < first({name}.x)" for name in known),
        *(f"sum({name}.x) > 2" for name in known),
        *(f"avg({name}.x) < 2" for name in known),
        *(f"count({name}.*) < 2" for name in known),
        *(f"any({name}.x > 1)" for name in known),
        *(f"x >= 1 and x >= last({name}.x)" for name in known),
    ]
    return st.one_of(st.sampled_from(PLAIN), st.sampled_from(PLAIN), st.sampled_from(over))


@st.composite
def leaf(
    draw, pattern: Pattern, name: str, known: list[str], *, first: bool, groups: bool
) -> Pattern:
    """Add one block that takes events, with its options."""
    how = (
        "begin"
        if first
        else draw(st.sampled_from(["next", "followed_by", "followed_by", "followed_by_any"]))
    )
    kind = draw(st.sampled_from(["leaf", "leaf", "leaf", "group", "either"])) if groups else "leaf"
    within = None if first else draw(st.sampled_from([None, None, None, "3 seconds"]))
    if kind == "either":
        parts = []
        for number in (1, 2):
            part = Pattern().begin(f"{name}{number}", draw(conditions(known)))
            if draw(st.booleans()):
                part = part.next(f"{name}{number}b", draw(conditions([f"{name}{number}", *known])))
            parts.append(part)
        pattern = getattr(pattern, how)(Pattern.either(*parts))
    elif kind == "group":
        inner = draw(leaf(Pattern(), f"{name}1", known, first=True, groups=False))
        inner = draw(leaf(inner, f"{name}2", [f"{name}1", *known], first=False, groups=False))
        pattern = getattr(pattern, how)(inner)
    else:
        tests = draw(st.lists(conditions(known), min_size=1, max_size=2, unique=True))
        pattern = getattr(pattern, how)(name, tests if len(tests) > 1 else tests[0], within=within)
    return draw(quantified(pattern, leaf=kind == "leaf", known=known))


@st.composite
def quantified(draw, pattern: Pattern, *, leaf: bool, known: list[str]) -> Pattern:
    how = draw(st.sampled_from(["once", "once", "once", "times", "range", "more", "zero"]))
    if how == "times":
        pattern = pattern.times(2)
    elif how == "range":
        pattern = pattern.times(1, 3)
    elif how == "more":
        pattern = pattern.one_or_more()
    elif how == "zero":
        pattern = pattern.zero_or_more()
    if how != "once":
        pattern = draw(
            st.sampled_from([pattern, pattern, pattern.consecutive(), pattern.combinations()])
        )
        if leaf and draw(st.integers(0, 3)) == 0:
            pattern = pattern.until(draw(conditions(known)))
        if leaf and draw(st.integers(0, 2)) == 0:
            pattern = pattern.greedy()
    return pattern.optional() if draw(st.integers(0, 4)) == 0 else pattern


@st.composite
def patterns(draw, *, groups: bool = True, skips: bool = True) -> Pattern:
    """Return a pattern that can match."""
    count = draw(st.integers(1, 4))
    names = ["a", "b", "c", "d"][:count]
    pattern = Pattern()
    for place, name in enumerate(names):
        known = [one.name for one in pattern.blocks if one.name and not one.negated]
        if place > 0 and draw(st.integers(0, 4)) == 0:
            how = draw(st.sampled_from(["not_next", "not_followed_by"]))
            pattern = getattr(pattern, how)(name, draw(conditions(known)))
        else:
            pattern = draw(leaf(pattern, name, known, first=place == 0, groups=groups))
    if all(block.nullable for block in pattern.blocks):
        pattern = pattern.followed_by("z", draw(st.sampled_from(PLAIN)))
    skip = (
        draw(st.sampled_from(["none", "none", "next", "past", "first", "last"]))
        if skips
        else "none"
    )
    waits = any(block.negated and block.contiguity == "relaxed" for block in ending(pattern))
    if draw(st.booleans()) or skip != "none" or waits:
        pattern = pattern.within(f"{draw(st.integers(2, 12))} seconds")
    pattern = {"next": pattern.skip_to_next, "past": pattern.skip_past_last}.get(
        skip, lambda: pattern
    )()
    named = [one.name for one in pattern.blocks if one.name and not one.negated]
    if skip in ("first", "last") and named:
        block = draw(st.sampled_from(named))
        pattern = pattern.skip_to_first(block) if skip == "first" else pattern.skip_to_last(block)
    if draw(st.integers(0, 6)) == 0:
        pattern = pattern.precondition(draw(st.sampled_from(PLAIN)))
    if draw(st.integers(0, 6)) == 0:
        pattern = pattern.halt(draw(st.sampled_from(PLAIN)))
    return pattern


@st.composite
def reluctant_patterns(draw) -> Pattern:
    """Return a pattern with a reluctant loop, between or before blocks that must come."""
    how = st.sampled_from(["next", "followed_by", "followed_by_any"])
    pattern = Pattern().begin("a", draw(conditions([])))
    if draw(st.booleans()):
        pattern = getattr(pattern, draw(how))("b", draw(conditions(["a"])))
    loop = draw(
        st.sampled_from(
            [
                pattern.one_or_more(),
                pattern.times(1, 3),
                pattern.times_or_more(2),
                *([pattern.zero_or_more(), pattern.times(0, 2)] if len(pattern.blocks) > 1 else []),
            ]
        )
    ).reluctant()
    pattern = draw(st.sampled_from([loop, loop, loop.consecutive(), loop.combinations()]))
    pattern = getattr(pattern, draw(how))("c", draw(conditions(["a"])))
    if draw(st.booleans()):
        pattern = getattr(pattern, draw(how))("d", draw(conditions(["a", "c"])))
    return pattern.within(f"{draw(st.integers(2, 12))} seconds") if draw(st.booleans()) else pattern


@st.composite
def shared_patterns(draw) -> Pattern:
    """Return a pattern of which an event often moves all runs of a state in one way."""
    pattern = Pattern().begin("a", draw(st.sampled_from(PLAIN)))
    starts = [pattern, pattern.one_or_more().greedy(), pattern.times(2).optional().greedy()]
    pattern = draw(st.sampled_from([pattern, *starts]))
    for name in "bcd"[: draw(st.integers(0, 3))]:
        how = draw(st.sampled_from(["next", "followed_by", "followed_by", "not_followed_by"]))
        pattern = getattr(pattern, how)(name, draw(st.sampled_from(PLAIN)))
        if how == "not_followed_by":
            continue
        loops = [pattern.one_or_more(), pattern.zero_or_more(), pattern.times(1, 2)]
        loop = draw(st.sampled_from(loops)).greedy()
        inner = draw(st.sampled_from([loop, loop.consecutive()]))
        pattern = draw(st.sampled_from([pattern, pattern, inner]))
    if all(block.nullable for block in pattern.blocks):
        pattern = pattern.followed_by("z", draw(st.sampled_from(PLAIN)))
    waits = any(block.negated for block in ending(pattern))
    skips = [pattern, pattern.skip_to_next(), pattern.skip_past_last()]
    for block in pattern.blocks[1:]:
        if block.name and not block.negated:
            skips += [pattern.skip_to_first(block.name), pattern.skip_to_last(block.name)]
    pattern = draw(st.sampled_from(skips))
    if draw(st.booleans()) or waits or pattern.skip.kind != "none":
        pattern = pattern.within(f"{draw(st.integers(2, 12))} seconds")
    if draw(st.integers(0, 6)) == 0:
        pattern = pattern.halt(draw(st.sampled_from(PLAIN)))
    return pattern


@st.composite
def streams(draw, most: int = 9) -> list[dict[str, Any]]:
    gaps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=most))
    at, rows = 0, []
    for gap in gaps:
        at += gap
        rows.append({"at": at, "x": draw(st.integers(0, 3))})
    return rows


def table(rows: list[dict[str, Any]], key: bool = False) -> pa.Table:
    columns = {
        "at": pa.array([row["at"] * 1_000_000 for row in rows], pa.timestamp("us")),
        "x": pa.array([row["x"] for row in rows], pa.int64()),
    }
    if key:
        columns["key"] = pa.array([row["key"] for row in rows], pa.string())
    return pa.table(columns)
