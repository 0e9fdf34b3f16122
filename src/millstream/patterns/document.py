"""Patterns in YAML, read and written: a list of blocks, and what holds for the whole beside it.

    match:
      - {begin: first, where: delay > 60}
      - {followed_by: worse, where: delay > first.delay, times: 3}     # or times: [2, 4], at_least: 2
      - {not_followed_by: ok, where: [delay <= 0, cancelled]}          # a list: any of these conditions
      - {followed_by: pair, group: [{begin: x, where: a}, {next: y, where: b}], at_least: 1, optional: true}
      - {next: change, either: [[{begin: up, where: a}], [{begin: down, where: b}]]}
    within: 2 hours                # also: skip, singleton, precondition, halt, timeouts

Blocks may also have: greedy, reluctant, consecutive, combinations, until, within. A phenomenon is
several such patterns by name:

    phenomenon:
      up: {match: [{begin: a, where: delay > 60}, {followed_by: b, where: delay > 2 * a.delay}],
          within: 1 hour}
      down: {match: [{begin: a, where: delay > 60}, {followed_by: b, where: delay <= 0}], within: 1
          hour}

Conditions in Python are not for YAML, which calls no functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import yaml

from millstream.errors import InvalidFunction, NotLoadable
from millstream.flow import durations
from millstream.flow.document import Entry
from millstream.flow.site import placed
from millstream.patterns.blocks import Block, Condition
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.query import Query

# A tree of YAML values, whose types Python cannot say shortly.
Tree = dict[str, Any]

KINDS: Final = ("begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
_FLAGS: Final = ("optional", "greedy", "reluctant", "consecutive", "combinations")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_WORDS: Final = {"strict": "next", "relaxed": "followed_by", "any": "followed_by_any"}


def read_pattern(stage: Entry) -> Pattern:
    """Return the pattern that a stage describes."""
    node = stage.get("match")
    pattern = _sequence(stage, node, stage.title)
    if (within := stage.text("within")) is not None:
        pattern = pattern.within(within)
    for condition in stage.texts("precondition") or ():
        pattern = pattern.precondition(condition)
    for condition in stage.texts("halt") or ():
        pattern = pattern.halt(condition)
    pattern = pattern.singleton() if stage.flag("singleton") else pattern
    pattern = pattern.timeouts() if stage.flag("timeouts") else pattern
    if (rules := stage.text("rules")) is not None:
        if rules != "bobocep":
            fact = f'"rules" of {stage.title} is "{rules}"'
            raise NotLoadable(fact, hint='expected "bobocep", or nothing', where=stage.where)
        pattern = pattern.like_bobocep()
    skip = stage.text("skip")
    return pattern if skip is None else _skipping(stage, pattern, skip)


def read_phenomenon(stage: Entry, name: str) -> Phenomenon:
    """Return the patterns that a stage describes together, under its name."""
    patterns: list[Pattern] = []
    for called, entry in stage.entries("phenomenon", "pattern").items():
        with placed(entry.where):
            pattern = replace(read_pattern(entry), name=called, output=entry.text("emit"))
        entry.finish()
        patterns.append(pattern)
    if not patterns:
        hint = 'expected "phenomenon:" and below it names, each with "match:"'
        raise NotLoadable(f"{stage.title} names no patterns", hint=hint, where=stage.where)
    return Phenomenon(name, tuple(patterns))


def _skipping(stage: Entry, pattern: Pattern, skip: str) -> Pattern:
    match skip.split():
        case ["to", "next"]:
            return pattern.skip_to_next()
        case ["past", "last"]:
            return pattern.skip_past_last()
        case ["to", "first", block, *rest] if rest in ([], ["or", "fail"]):
            return pattern.skip_to_first(block, or_fail=bool(rest))
        case ["to", "last", block, *rest] if rest in ([], ["or", "fail"]):
            return pattern.skip_to_last(block, or_fail=bool(rest))
    fact = f'"skip" of {stage.title} is "{skip}"'
    hint = 'expected "to next", "past last", "to first block" or "to last block"'
    raise NotLoadable(fact, hint=hint, where=stage.where)


def _sequence(stage: Entry, node: yaml.Node | None, title: str) -> Pattern:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        fact = f"the pattern of {title} is not a list of blocks"
        hint = 'expected "match:" and below it "- {begin: name, where: condition}"'
        raise NotLoadable(fact, hint=hint, where=stage.where)
    pattern = Pattern()
    for item in node.value:
        entry = Entry(stage.file, f"a block of {title}", item, item.start_mark)
        with placed(entry.where):
            pattern = _block(pattern, entry)
        entry.finish()
    return pattern


def _block(pattern: Pattern, entry: Entry) -> Pattern:
    kind = entry.one_of(KINDS)
    _refuse_python(entry)
    name, conditions = entry.text(kind), entry.texts("where")
    group, either, within = entry.get("group"), entry.get("either"), entry.text("within")
    inner: Pattern | None = None
    if group is not None:
        inner = _sequence(entry, group, entry.title)
    elif isinstance(either, yaml.SequenceNode):
        inner = Pattern.either(*(_sequence(entry, one, entry.title) for one in either.value))
    add: Callable[..., Pattern] = getattr(pattern, kind)
    if kind.startswith("not_"):
        return add(name, conditions, within=within) if within else add(name, conditions)
    content = inner if inner is not None else conditions
    first = name if name is not None or inner is None else inner
    return _options(add(first, None if first is inner else content, within=within), entry)


def _refuse_python(entry: Entry) -> None:
    python = next((key for key in ("python", "predicate", "function") if entry.has(key)), None)
    texts = [*(entry.texts("where") or ()), *(entry.texts("until") or ())]
    named = [one for one in texts if _FUNCTION.fullmatch(one.strip())]
    if python is not None or named:
        fact = f'{entry.title} has a condition in Python, "{named[0] if named else python}"'
        hint = "YAML calls no functions: write this flow in Python"
        raise NotLoadable(fact, hint=hint, where=entry.where)


def _options(pattern: Pattern, entry: Entry) -> Pattern:
    least, times = entry.whole("at_least"), _times(entry)
    within = entry.text("times_within")
    if times:
        pattern = pattern.times(*times, within=within)
    elif least == 0:
        pattern = pattern.zero_or_more(within=within)
    elif least is not None:
        pattern = pattern.times_or_more(least, within=within)
    for flag in _FLAGS:
        if entry.flag(flag):
            pattern = getattr(pattern, flag)()
    until = entry.texts("until")
    return pattern if until is None else pattern.until(until)


def _times(entry: Entry) -> list[int]:
    given = entry.texts("times") or ()
    wrong = next((one for one in given if not one.isdigit()), None)
    if wrong is not None:
        fact = f'{entry.title} has "times: {wrong}", which is no number'
        raise NotLoadable(fact, hint="times: 3, or times: [2, 4]", where=entry.where)
    return [int(one) for one in given]


# Writing


def write_pattern(pattern: object) -> Tree:
    """Return a pattern as a tree of YAML values.

    Raises:
        InvalidFunction: A condition is a Python function.
    """
    if isinstance(pattern, Query):
        return {"sql": pattern.sql}
    if isinstance(pattern, Phenomenon):
        return {"phenomenon": {one.name: _whole(one, emit=one.output) for one in pattern.patterns}}
    assert isinstance(pattern, Pattern), "a flow matches nothing else"
    if pattern.output is not None or pattern.name is not None:
        fact = "the pattern has a name or outputs of its own"
        raise InvalidFunction(fact, hint="keep this flow in Python, or give emit= to match")
    return _whole(pattern)


def _whole(pattern: Pattern, *, emit: str | None = None) -> Tree:
    if pattern.predicates or pattern.keys is not None:
        fact = "the pattern has a Python condition, or a key of its own"
        raise InvalidFunction(fact, hint="keep this flow in Python, or give by= to match")
    tree: Tree = {
        "match": [_written(block, first=not place) for place, block in enumerate(pattern.blocks)]
    }
    tree["within"] = None if pattern.span is None else durations.format(pattern.span)
    tree["skip"] = None if pattern.skip.kind == "none" else _skip(pattern)
    tree["singleton"], tree["timeouts"] = pattern.one_at_a_time or None, pattern.late or None
    tree["precondition"], tree["halt"] = _conditions(pattern.required), _conditions(pattern.halting)
    tree["rules"], tree["emit"] = pattern.rules, emit
    return {key: value for key, value in tree.items() if value is not None}


def _skip(pattern: Pattern) -> str:
    kind = "to next" if pattern.skip.kind == "next" else pattern.skip.kind.replace("_", " ")
    fails = " or fail" if pattern.skip.or_fail else ""
    return kind if pattern.skip.block is None else f"{kind} {pattern.skip.block}{fails}"


def _written(block: Block, *, first: bool) -> Tree:
    kind = "begin" if first else ("not_" if block.negated else "") + _WORDS[block.contiguity]
    tree: Tree = {kind: block.name or None, "where": _conditions(block.conditions)}
    bodies = [
        [_written(one, first=not place) for place, one in enumerate(body)] for body in block.body
    ]
    tree |= {"either": bodies} if len(bodies) > 1 else {"group": bodies[0]} if bodies else {}
    tree |= _quantifier(block)
    tree["until"] = _conditions(block.until)
    tree["within"] = None if block.within is None else durations.format(block.within)
    tree["times_within"] = None if block.between is None else durations.format(block.between)
    return {key: value for key, value in tree.items() if value is not None or key == kind}


def _quantifier(block: Block) -> Tree:
    tree: Tree = {}
    if block.loops:
        least, most = block.least, block.most
        times = [least, most] if least != most else most
        tree = {"at_least": least} if most is None else {"times": times}
    flags = {"optional": block.optional, block.preference: block.preference != "fork"}
    flags["consecutive"] = block.inner == "strict" and block.loops
    flags["combinations"] = block.inner == "any"
    return {**tree, **{flag: True for flag in _FLAGS if flags.get(flag)}}


def _conditions(conditions: tuple[Condition, ...]) -> str | list[str] | None:
    texts = [one for one in conditions if isinstance(one, str)]
    return None if not texts else texts[0] if len(texts) == 1 else texts
