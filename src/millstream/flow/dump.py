"""A flow as YAML text, which loads to an equal flow."""

from __future__ import annotations

from typing import Any

import yaml

from millstream.flow.durations import format as shown
from millstream.flow.flow import Flow
from millstream.flow.sources import SourceSpec
from millstream.flow.stages import Keyed, Reads, Source, forms
from millstream.flow.stages.keyed import spelled
from millstream.flow.stages.stage import Tree
from millstream.secrets import Secret


def dump(flow: Flow) -> str:
    """Return the flow as YAML.

    Raises:
        InvalidFunction: A stage calls a function, which YAML cannot hold.
    """
    sources: Tree = {}
    stages: Tree = {}
    for name, stage in flow.stages.items():
        if isinstance(stage, Source | Reads):
            sources[name] = _source(stage)
        elif not isinstance(stage, Keyed):
            stages[name] = spelled(stage, flow).to_yaml(flow)
    sinks = {
        name: {"from": sink.input, **sink.target.to_yaml()} for name, sink in flow.sinks.items()
    }
    every = None if flow.given_switch_every is None else shown(flow.given_switch_every)
    tree: dict[str, object] = {"name": flow.name, "switch_every": every}
    tree |= {"sources": sources, "stages": stages, "sinks": sinks}
    tree["groups"] = {name: list(group.sinks) for name, group in flow.groups.items()}
    filled = {key: value for key, value in tree.items() if value}
    parts = [yaml.dump({key: value}, **_STYLE) for key, value in filled.items()]
    head = 1 if flow.given_switch_every is None else 2  # the name and the interval stand together
    return "".join(parts[:head]) + "".join("\n" + part for part in parts[head:])


def dump_stage(flow: Flow, name: str) -> str:
    """Return one stage of a flow as YAML.

    Raises:
        InvalidFunction: It calls a function, which YAML cannot hold.
    """
    stage = flow.stages[name]
    if isinstance(stage, Source | Reads):
        return str(yaml.dump({name: _source(stage)}, **_STYLE))
    return str(yaml.dump({name: spelled(stage, flow).to_yaml(flow)}, **_STYLE))


def dump_source(spec: SourceSpec) -> str:
    """Return what a source reads as YAML, which `yaml.load_source` makes an equal one of."""
    return str(yaml.dump(forms.given(spec.to_yaml()), **_STYLE))


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
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[str]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


def _secret(dumper: yaml.SafeDumper, secret: Secret) -> yaml.MappingNode:
    return dumper.represent_mapping(
        "tag:yaml.org,2002:map", {"secret": secret.name}, flow_style=True
    )


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Secret, _secret)
_Dumper.add_representer(list, _list)


def _source(stage: Source | Reads) -> Tree:
    if isinstance(stage, Reads):
        return forms.given({"reads": stage.journal, "schema": stage.schema.ddl, "time": stage.time})
    options = ("time", "lateness", "key", "ahead", "idle", "partitions", "keep_for", "keep_bytes")
    tree: Tree = forms.given(stage.origin.to_yaml()) | forms.changed(stage, *options)
    tree |= forms.given({"journal": stage.address})
    return tree if stage.keyed_by is None else {**tree, "key": str(stage.keyed_by)}
