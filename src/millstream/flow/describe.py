"""A flow as plain data for JSON: what the CLI and the page show, and what fingerprints are made of.

It holds no functions (only their names), no passwords and no paths of code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from millstream.brokers.connection import Connection
from millstream.errors import Where
from millstream.flow import durations
from millstream.flow.flow import Flow
from millstream.flow.matching import Matchable
from millstream.flow.schema import Schema
from millstream.flow.spec import Spec
from millstream.flow.stages import Sink, Stage
from millstream.flow.targets import Table
from millstream.secrets import Secret

# JSON values, whose types Python cannot express briefly.
Data = Any
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")


def describe(flow: Flow) -> dict[str, Data]:
    """Return the flow as data that JSON can hold."""
    return {
        "flow": flow.name,
        "window": durations.format(flow.switch_every),
        "stages": [
            {**describe_stage(stage), **_stream(flow, stage)} for stage in flow.stages.values()
        ],
        "sinks": [{**describe_stage(sink), **_place(sink.where)} for sink in flow.sinks.values()],
    }


def describe_stage(stage: Stage | Sink) -> dict[str, Data]:
    """Return what a stage says, without the place that says it."""
    data = {field.name: _value(getattr(stage, field.name)) for field in dataclasses.fields(stage)}
    del data["where"]
    return {"kind": stage.kind, **(stage.described(data) if isinstance(stage, Stage) else data)}


def function_name(function: Callable[..., object]) -> str:
    """Return how people call a function."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _stream(flow: Flow, stage: Stage) -> dict[str, Data]:
    stream = flow.stream(stage.name)
    key = stream.key if stream.keyed_by is None else str(stream.keyed_by)
    facts = {"time": stream.time, "key": key, "lateness": durations.format(stream.lateness)}
    columns = None if stream.schema is None else _value(stream.schema)
    return {
        "inputs": list(stage.inputs),
        "output": {"columns": columns, **facts},
        **_place(stage.where),
    }


def _place(where: Where | None) -> dict[str, Data]:
    # The file's name only: a description is compared and shown on other machines.
    return {"place": None if where is None else f"{PurePath(where.file).name}:{where.line}"}


def _value(value: object) -> Data:
    match value:
        case timedelta():
            return durations.format(value)
        case Schema():
            return [[field.name, field.type] for field in value]
        case Secret():
            return {"secret": value.name}
        case _ if isinstance(value, Spec | Table):
            return _spec(value)
        case Matchable() | Connection():
            return value.described()
        case tuple():
            return [list(item) if isinstance(item, tuple) else item for item in value]
        case _ if callable(value):
            return {"function": function_name(value)}
    return value


def _spec(spec: Spec | Table) -> dict[str, Data]:
    assert dataclasses.is_dataclass(spec)
    data = {field.name: _value(getattr(spec, field.name)) for field in dataclasses.fields(spec)}
    # Whichever field has an address in it: nobody knows the options of other packages' connectors.
    shown = {
        name: _PASSWORD.sub(r"\1:***@", value) if isinstance(value, str) else value
        for name, value in data.items()
        if value is not None or name not in getattr(spec, "added", ())
    }
    return {"kind": spec.kind, **shown}
