"""The patterns that a watcher looks for, from the file that a flow would use.

    flow.py, flow.yaml     the `match` stages of the flow, with their keys, and time and columns of
                           the source that they read
    patterns.py            the patterns at its top level, by the names of their variables (not those
                           that begin with "_"); and, if they are there, `schema`, `time` and `key`
    patterns.yaml          patterns: {hot: {match: [...], within: 10 minutes}}; and, if they are
                           there, schema, time and key, for all patterns or for one

Nothing here loads Spark or Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import DuplicateName, InvalidOption, NotLoadable, Where
from millstream.flow.schema import Schema
from millstream.patterns.pattern import Pattern, Phenomenon

if TYPE_CHECKING:
    from millstream.flow.flow import Flow

_FLOW_OR_PATTERNS: Final = "name a Python or YAML file with a flow, or with patterns"


@dataclass(frozen=True, slots=True)
class Watched:
    """A pattern to look for: its events' columns and time, and what its key is made of."""

    name: str
    pattern: Pattern
    key: tuple[str, ...] = ()
    time: str | None = None
    schema: Schema | None = None
    #: The source of the flow that it reads.
    source: str | None = None


def load(path: str | PathLike[str]) -> tuple[Watched, ...]:
    """Return the patterns of a file, each with a name of its own.

    Raises:
        NotLoadable: The file is not there, fails, or has no patterns.
        FlowError: A flow or a pattern has a mistake.
    """
    file = Path(path)
    if not file.is_file():
        raise NotLoadable(f'there is no file "{path}"', hint=_FLOW_OR_PATTERNS)
    if file.suffix in (".yaml", ".yml"):
        found = _of_yaml(file)
    elif file.suffix == ".py":
        found = _of_python(file)
    else:
        raise NotLoadable(f'"{path}" is neither Python nor YAML', hint=_FLOW_OR_PATTERNS)
    if not found:
        hint = 'make one at the top level: hot = ms.Pattern().begin("a", "temperature > 90")'
        raise NotLoadable(f'"{file.name}" has no patterns', hint=hint, where=Where(str(file), 1))
    return distinct(found)


def named(
    patterns: Pattern | Phenomenon | Iterable[Pattern | Phenomenon],
    *,
    key: str | Sequence[str] | None = None,
    time: str | None = None,
    schema: str | Schema | None = None,
) -> tuple[Watched, ...]:
    """Return patterns to look for, with what holds for all of them."""
    given = [patterns] if isinstance(patterns, Pattern | Phenomenon) else list(patterns)
    columns = Schema.parse(schema) if isinstance(schema, str) else schema
    keys = None if key is None else (key,) if isinstance(key, str) else tuple(key)
    return distinct(
        watched
        for one in given
        for watched in _each(one, "pattern", keys, time=time, schema=columns)
    )


def distinct(found: Iterable[Watched]) -> tuple[Watched, ...]:
    """Return patterns whose names differ; those without a name of their own are numbered."""
    listed = list(found)
    names: dict[str, Watched] = {}
    for one in listed:
        own = one.pattern.name is not None
        name, number = one.name, 1
        while name in names:
            if own:
                msg, hint = f'two patterns are called "{name}"', "give each a name of its own"
                raise DuplicateName(msg, hint=hint, where=one.pattern.where)
            number += 1
            name = f"{one.name}{number}"
        names[name] = replace(one, name=name, pattern=replace(one.pattern, name=name))
    return tuple(names.values())


def _each(
    pattern: Any,
    name: str,
    key: tuple[str, ...] | None,
    *,
    emit: str | None = None,
    time: str | None = None,
    schema: Schema | None = None,
    source: str | None = None,
) -> list[Watched]:
    """Return a pattern, or those of a phenomenon."""
    if isinstance(pattern, Phenomenon):
        parts = list(pattern.patterns)
    elif isinstance(pattern, Pattern):
        parts = [pattern]
    else:
        msg = f'"{name}" is {type(pattern).__name__}, which watchers cannot look for'
        raise InvalidOption(msg, hint="write it as a Pattern: MATCH_RECOGNIZE needs Spark")
    return [
        Watched(
            one.name or name,
            one if emit is None or one.output is not None else one.emit(emit),
            one.keys if one.keys is not None else (key or ()),
            time,
            schema,
            source,
        )
        for one in parts
    ]


# Python


def _of_python(file: Path) -> list[Watched]:
    from millstream.flow.flow import Flow
    from millstream.flow.load import flow_in, run

    module = run(file)
    if any(isinstance(value, Flow) for value in vars(module).values()):
        return _of_flow(flow_in(module, file), file)
    schema, key = _columns(module, file), _named_key(module)
    time = getattr(module, "time", None)
    found: list[Watched] = []
    for name, value in _patterns(module).items():
        given = time if isinstance(time, str) else None
        found += _each(value, name, key, time=given, schema=schema)
    return found


def _patterns(module: ModuleType) -> dict[str, Pattern | Phenomenon]:
    """Return the patterns of a module, each once; those that are parts of another are not meant."""
    found: dict[str, Pattern | Phenomenon] = {}
    for name, value in vars(module).items():
        known = any(value is one for one in found.values())
        if isinstance(value, Pattern | Phenomenon) and not known and not name.startswith("_"):
            found[name] = value
    parts = [
        one.blocks
        for each in found.values()
        if isinstance(each, Phenomenon)
        for one in each.patterns
    ]
    return {
        name: one
        for name, one in found.items()
        if isinstance(one, Phenomenon) or one.blocks not in parts
    }


def _columns(module: ModuleType, file: Path) -> Schema | None:
    schema = getattr(module, "schema", None)
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, str):
        return Schema.parse(schema)
    hint = 'write the columns as in SQL: schema = "sensor string, at timestamp"'
    raise NotLoadable(f'"schema" is {type(schema).__name__}', hint=hint, where=Where(str(file), 1))


def _named_key(module: ModuleType) -> tuple[str, ...] | None:
    key = getattr(module, "key", None)
    if isinstance(key, str):
        return (key,)
    return tuple(key) if isinstance(key, list | tuple) else None


# flows


def _of_flow(flow: Flow, file: Path) -> list[Watched]:
    from millstream.flow.stages import Match, Source

    found: list[Watched] = []
    for stage in flow.stages.values():
        if not isinstance(stage, Match):
            continue
        above = flow.stages[stage.input]
        if not isinstance(above, Source):
            fact = f'match "{stage.name}" reads "{stage.input}", which is not a source'
            hint = "a watcher sees the events of a source as they come: match those"
            raise InvalidOption(fact, hint=hint, where=stage.where)
        found += _each(
            stage.pattern,
            stage.name,
            stage.by,
            emit=stage.emit,
            time=above.time,
            schema=above.schema,
            source=above.name,
        )
    if not found:
        hint = 'add one: events.match("hot", pattern)'
        raise NotLoadable(f'flow "{flow.name}" has no match', hint=hint, where=Where(str(file), 1))
    return found


# YAML


def _of_yaml(file: Path) -> list[Watched]:
    from millstream.flow.document import read

    document = read(file)
    if not document.has("patterns"):
        from millstream.flow.yaml import load as load_yaml

        return _of_flow(load_yaml(file), file)
    from millstream.flow.site import placed
    from millstream.patterns.document import read_pattern

    schema, time, key = (document.text("schema"), document.text("time"), document.texts("key"))
    columns = None if schema is None else Schema.parse(schema)
    found: list[Watched] = []
    for name, entry in document.entries("patterns", "pattern").items():
        with placed(entry.where):
            pattern = replace(read_pattern(entry), name=name, output=entry.text("emit"))
        own = entry.texts("key")
        entry.finish()
        found += _each(pattern, name, tuple(own or key or ()), time=time, schema=columns)
    document.finish()
    return found


# what holds for all


def overridden(
    found: Sequence[Watched],
    *,
    key: str | Sequence[str] | None = None,
    time: str | None = None,
    schema: str | None = None,
) -> tuple[Watched, ...]:
    """Return patterns with the user's options in place of those of their file."""
    keys = None if key is None else (key,) if isinstance(key, str) else tuple(key)
    columns = None if schema is None else Schema.parse(schema)
    return tuple(
        replace(
            one,
            key=one.key if keys is None or one.pattern.keys is not None else keys,
            time=time or one.time,
            schema=columns or one.schema,
        )
        for one in found
    )


def of_one_source(found: Sequence[Watched], source: str | None = None) -> tuple[Watched, ...]:
    """Return the patterns over the events of one source: the only one, or the one that is named."""
    sources = list(dict.fromkeys(one.source for one in found if one.source is not None))
    if source is not None and source not in sources:
        hint = f"its sources are {', '.join(sources)}" if sources else "leave it out"
        raise InvalidOption(f'no pattern is over the events of source "{source}"', hint=hint)
    if source is None and len(sources) > 1:
        names = " and ".join(f'"{one}"' for one in sources)
        hint = f"name one of them: --source {sources[0]}"
        raise InvalidOption(f"the patterns are over the sources {names}", hint=hint)
    return tuple(one for one in found if source is None or one.source == source)
