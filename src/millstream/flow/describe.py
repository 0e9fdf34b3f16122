"""A flow as plain data for JSON: what the CLI and the page show, and what fingerprints are made of.

It holds no functions (only their names), no passwords and no paths of code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from millstream.errors import Where
from millstream.flow import durations
from millstream.flow.flow import Flow
from millstream.flow.matching import Matchable
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.stages import Sink, Stage
from millstream.flow.targets import Table, TargetSpec

# JSON: what can be in it, Python's types cannot say shortly.
Data = Any
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
_PAIRS = ("by", "aggregates", "options", "env")


def describe(flow: Flow) -> dict[str, Data]:
    """Return the flow as data that JSON can hold."""
    return {
        "flow": flow.name,
        "window": durations.format(flow.window),
        "stages": [
            {**describe_stage(stage), **_stream(flow, stage)} for stage in flow.stages.values()
        ],
        "sinks": [{**describe_stage(sink), **_place(sink.where)} for sink in flow.sinks.values()],
    }


def describe_stage(stage: Stage | Sink) -> dict[str, Data]:
    """Return what a stage says, without the place that says it."""
    data = {
        field.name: _value(field.name, getattr(stage, field.name))
        for field in dataclasses.fields(stage)
    }
    del data["where"]
    # A window has a kind of its own: it is a tumbling, sliding or session one.
    own = {"shape": data.pop("kind")} if "kind" in data else {}
    return {"kind": type(stage).__name__.lower(), **own, **data}


def function_name(function: Callable[..., object]) -> str:
    """Return how people call a function."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _stream(flow: Flow, stage: Stage) -> dict[str, Data]:
    stream = flow.stream(stage.name)
    facts = {"time": stream.time, "key": stream.key, "lateness": durations.format(stream.lateness)}
    columns = None if stream.schema is None else _value("columns", stream.schema)
    return {
        "inputs": list(stage.inputs),
        "output": {"columns": columns, **facts},
        **_place(stage.where),
    }


def _place(where: Where | None) -> dict[str, Data]:
    # The file's name only: a description is compared and shown on other machines.
    return {"place": None if where is None else f"{PurePath(where.file).name}:{where.line}"}


def _value(name: str, value: object) -> Data:
    match value:
        case timedelta():
            return durations.format(value)
        case Schema():
            return [[field.name, field.type] for field in value]
        case tuple() if name in _PAIRS and all(isinstance(item, tuple) for item in value):
            return [list(item) for item in value]
        case _ if isinstance(value, SourceSpec | TargetSpec | Table):
            return _spec(value)
        case Matchable():
            return value.described()
        case _ if name in ("function", "step"):
            assert callable(value)
            return {"function": function_name(value)}
        case _ if name == "initial":
            return plain(value)
        case tuple():
            return list(value)
    return value


def _spec(spec: SourceSpec | TargetSpec | Table) -> dict[str, Data]:
    fields = dataclasses.fields(spec)
    data = {field.name: _value(field.name, getattr(spec, field.name)) for field in fields}
    if "url" in data:
        data["url"] = _PASSWORD.sub(r"\1:***@", str(data["url"]))
    return {"kind": type(spec).__name__.lower()} | data


def plain(value: object) -> Data:
    """Return a value as JSON can hold it; what JSON does not know as its text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
    return repr(value)
