"""Fingerprints: what a group means, as data that is stored with its checkpoint and compared later.

A fingerprint holds what the group's stages say and the sources of the functions that they call. Two
are compared by bringing both to a normal form *now*: SQL by its syntax tree, functions by theirs.
So neither another layout nor another version of Spark, Python or a library makes a group look
changed.

It leaves out what does not change the results or the state: where a source's events come from (the
group reads its journal), how long journals are kept, how many rows a console shows, where the flow
of an outbox is, passwords and keys, the switch interval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

from millstream.flow import durations
from millstream.flow.describe import describe_stage
from millstream.flow.stages import EntryPoint, Stage, kinds
from millstream.plan import code
from millstream.plan.functions import Functions, canonical
from millstream.plan.groups import Group, Plan

# JSON values, whose types Python cannot express briefly.
Data = Any
_FORMAT = 1
_UNIMPORTANT = ("keep_for", "keep_bytes", "address")


_Lines = Callable[[str, dict[str, Data], dict[str, Data]], Iterator[str]]


def fingerprint(
    plan: Plan, name: str, snapshots: Mapping[str, str] | None = None
) -> dict[str, Data]:
    """Return what the group of that name means, as data that JSON can hold.

    Call it before the flow runs: functions may change the globals that they use.

    Args:
        plan: The plan.
        name: The group.
        snapshots: By the path of a static table, or of a program and what is shipped with it, a
            text that changes with its content; what is not in it counts by its path alone.
    """
    group = plan.group(name)
    functions = Functions()
    known = snapshots or {}
    stages = {
        stage: _stage(plan, plan.flow.stages[stage], functions, known) for stage in group.stages
    }
    return {
        "format": _FORMAT,
        "group": group.name,
        "stages": stages,
        "output": _output(plan, group),
        "functions": functions.table,
    }


def normal(description: dict[str, Data]) -> dict[str, Data]:
    """Return the form that all spellings of one meaning share, for this Python and sqlglot."""
    return {
        **description,
        "stages": {name: _normal_stage(stage) for name, stage in description["stages"].items()},
        "functions": {
            name: _normal_function(one) for name, one in description["functions"].items()
        },
    }


def digest(description: dict[str, Data]) -> str:
    """Return a short text that is the same for the same meaning.

    Compare stored groups by `difference`: a digest may change with the version of Python that makes
    it.
    """
    return hashlib.sha256(canonical(normal(description)).encode()).hexdigest()


def difference(old: dict[str, Data], new: dict[str, Data]) -> list[str]:
    """Return what differs in meaning, a line for each change; nothing if they mean the same."""
    before, after = normal(old), normal(new)
    lines = list(_named("stage", before["stages"], after["stages"], _stage_lines))
    lines += _named("function", before["functions"], after["functions"], _function_lines)
    lines += _fields("the output", before["output"], after["output"])
    lines += _fields(
        "the group", *({key: part[key] for key in ("format", "group")} for part in (before, after))
    )
    return lines


def _stage(plan: Plan, stage: Stage, functions: Functions, snapshots: Mapping[str, str]) -> Data:
    if isinstance(stage, EntryPoint):
        stream = plan.flow.stream(stage.name)
        schema = (
            None if stream.schema is None else [[field.name, field.type] for field in stream.schema]
        )
        facts = {
            "schema": schema,
            "time": stream.time,
            "lateness": durations.format(stream.lateness),
        }
        return {"kind": "journal", "journal": stage.journal_name, **facts}
    described = describe_stage(stage)
    del described["name"]
    return stage.fingerprint(described, functions, snapshots)


def _output(plan: Plan, group: Group) -> Data:
    if group.journal is not None:
        journal = describe_stage(plan.flow.stages[group.journal])
        return {"stage": group.output, "journal": _without(journal, _UNIMPORTANT)}
    sinks = {name: plan.flow.sinks[name] for name in group.sinks}
    targets = {
        name: _without(describe_stage(sink)["target"], sink.target.incidental)
        for name, sink in sinks.items()
    }
    return {"stage": group.output, "sinks": targets}


def _without(described: dict[str, Data], names: Sequence[str]) -> dict[str, Data]:
    return {key: value for key, value in described.items() if key not in names}


def _normal_stage(meaning: dict[str, Data]) -> dict[str, Data]:
    # A kind that nobody knows any more is compared as it was written.
    kind = kinds().get(meaning["kind"], Stage)
    return kind.normal(meaning)


def _normal_function(entry: dict[str, Data]) -> dict[str, Data]:
    return {**entry, "source": None if entry["source"] is None else code.normal(entry["source"])}


def _named(kind: str, old: dict[str, Data], new: dict[str, Data], lines: _Lines) -> Iterator[str]:
    """Yield the lines for parts that are gone, new or changed."""
    yield from (f'{kind} "{name}" is gone' for name in old if name not in new)
    yield from (f'{kind} "{name}" is new' for name in new if name not in old)
    for name in (name for name in old if name in new):
        if canonical(old[name]) != canonical(new[name]):
            yield from lines(f'{kind} "{name}"', old[name], new[name])


def _stage_lines(title: str, old: dict[str, Data], new: dict[str, Data]) -> Iterator[str]:
    yield from _fields(title, old, new)


def _function_lines(title: str, old: dict[str, Data], new: dict[str, Data]) -> Iterator[str]:
    if old.get("source") != new.get("source"):
        yield f"{title} has another source:"
        yield from _diff(old.get("source") or "", new.get("source") or "")
    rest = [{key: value for key, value in part.items() if key != "source"} for part in (old, new)]
    yield from _fields(title, *rest)


def _diff(old: str, new: str) -> Iterator[str]:
    """Yield the lines that differ, without the diff's own headings."""
    for line in unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"    {line[0]} {line[1:]}"


def _fields(title: str, old: dict[str, Data], new: dict[str, Data]) -> Iterator[str]:
    """Yield the lines for values that differ, going down into mappings."""
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if canonical(before) == canonical(after) and (key in old) == (key in new):
            continue
        if key == "snapshot":
            yield f"{title}: its content has changed"
        elif (
            isinstance(before, dict)
            and isinstance(after, dict)
            and not _reference(before)
            and not _reference(after)
        ):
            yield from _fields(f'{title}, "{key}"', before, after)
        elif key not in old or key not in new:
            change, value = ("new", after) if key not in old else ("gone", before)
            yield f'{title}, "{key}" is {change}: {_brief(value)}'
        else:
            yield f'{title}: "{key}" was {_brief(before)}, now {_brief(after)}'


def _reference(data: dict[str, Data]) -> bool:
    return any(
        key in data for key in ("function", "class", "library", "module", "partial", "large")
    )


def _brief(data: Data) -> str:
    """Return a value in few words."""
    if isinstance(data, dict) and len(data) == 1:
        ((key, value),) = data.items()
        if key in ("function", "class", "library", "module"):
            return f"{key} {value}"
    text = data if isinstance(data, str) else canonical(data)
    return text if len(text) <= 120 else text[:117] + "..."
