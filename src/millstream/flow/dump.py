"""A flow as YAML text, which loads to an equal flow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import yaml

from millstream.flow.durations import format as shown
from millstream.flow.flow import Flow
from millstream.flow.stages import Reads, Source, forms
from millstream.flow.stages.stage import Tree


def dump(flow: Flow) -> str:
    """Return the flow as YAML.

    Raises:
        InvalidFunction: A stage calls a function, which YAML cannot hold.
    """
    stages = flow.stages.values()
    tree = {
        "name": flow.name,
        "switch_every": None if flow.given_switch_every is None else shown(flow.given_switch_every),
        "sources": {
            stage.name: _source(stage) for stage in stages if isinstance(stage, Source | Reads)
        },
        "stages": {
            stage.name: stage.to_yaml(flow)
            for stage in stages
            if not isinstance(stage, Source | Reads)
        },
        "sinks": {
            sink.name: {"from": sink.input, **sink.target.to_yaml()} for sink in flow.sinks.values()
        },
    }
    filled = {key: value for key, value in tree.items() if value}
    parts = [yaml.dump({key: value}, **_STYLE) for key, value in filled.items()]
    head = 1 if flow.given_switch_every is None else 2  # the name and the interval stand together
    return "".join(parts[:head]) + "".join("\n" + part for part in parts[head:])


class _Dumper(yaml.SafeDumper):
    """Leaves words like "on" and "no" unquoted, as our own reader takes them for what they are."""


_Dumper.yaml_implicit_resolvers = {
    letter: [
        (tag, pattern)
        for tag, pattern in resolvers
        if not (letter in "yYnNoO" and tag.endswith(":bool"))
    ]
    for letter, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
}


_STYLE: dict[str, Any] = {
    "Dumper": _Dumper,
    "sort_keys": False,
    "allow_unicode": True,
    "width": 110,
}


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


def _list(dumper: yaml.SafeDumper, items: list[str]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def _source(stage: Source | Reads) -> Tree:
    if isinstance(stage, Reads):
        return forms.given({"reads": stage.journal, "schema": stage.schema.ddl, "time": stage.time})
    common: Tree = {
        "time": stage.time,
        "lateness": shown(stage.lateness) if stage.lateness else None,
    }
    more = {
        "key": stage.key,
        "ahead": None if stage.ahead == timedelta(days=1) else shown(stage.ahead),
        "idle": None if stage.idle == timedelta(seconds=10) else shown(stage.idle),
        "partitions": None if stage.partitions == 1 else stage.partitions,
        "keep_for": stage.keep_for and shown(stage.keep_for),
        "keep_bytes": stage.keep_bytes,
    }
    return forms.given({**stage.origin.to_yaml(), **common, **more})
