"""A flow as YAML text, which loads to an equal flow."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

import yaml

from millstream.errors import InvalidFunction
from millstream.flow.durations import format as shown
from millstream.flow.expressions import column
from millstream.flow.flow import Flow
from millstream.flow.site import Site
from millstream.flow.sources import Files, Inbox, Rate, Replay
from millstream.flow.stages import (
    SHARDS,
    Action,
    Apply,
    Distinct,
    Fold,
    Join,
    Journal,
    Lookup,
    Match,
    Merge,
    Reads,
    Sink,
    Source,
    Sql,
    Stage,
    Window,
)
from millstream.flow.targets import Console, Memory, Outbox, Postgres

# A tree of YAML values, whose types Python cannot say shortly.
Tree = dict[str, Any]


def dump(flow: Flow) -> str:
    """Return the flow as YAML.

    Raises:
        InvalidFunction: A stage calls a function, which YAML cannot hold.
    """
    stages = flow.stages.values()
    tree = {
        "name": flow.name,
        "window": None if flow.given_window is None else shown(flow.given_window),
        "sources": {
            stage.name: _source(stage) for stage in stages if isinstance(stage, Source | Reads)
        },
        "stages": {
            stage.name: _stage(flow, stage)
            for stage in stages
            if not isinstance(stage, Source | Reads)
        },
        "sinks": {sink.name: _sink(sink) for sink in flow.sinks.values()},
    }
    filled = {key: value for key, value in tree.items() if value}
    parts = [yaml.dump({key: value}, **_STYLE) for key, value in filled.items()]
    head = 1 if flow.given_window is None else 2  # the name and the window stand together
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


def _given(tree: Tree) -> Tree:
    return {key: value for key, value in tree.items() if value is not None}


def _columns(names: tuple[str, ...]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _source(stage: Source | Reads) -> Tree:
    if isinstance(stage, Reads):
        return _given({"reads": stage.journal, "schema": stage.schema.ddl, "time": stage.time})
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
    return _given({**_origin(stage), **common, **more})


def _origin(stage: Source) -> Tree:
    match stage.origin:
        case Inbox(schema, producers, runtimes, format):
            named = None if producers is None else list(producers)
            plain = None if format == "json" else format
            return {"inbox": schema.ddl, "producers": named, "runtimes": runtimes, "format": plain}
        case Files(path, kind, schema, follow, options):
            tree = {"files": path, "schema": schema.ddl, "format": kind}
            return {**tree, "follow": follow or None, "options": dict(options) or None}
        case Rate(rows_per_second, rows):
            return {"rate": rows_per_second, "rows": rows}
        case Replay(path, kind, schema, speed, _):
            return {"replay": path, "schema": schema.ddl, "format": kind, "speed": speed}


def _stage(flow: Flow, stage: Stage) -> Tree:
    match stage:
        case Sql():
            return {"from": stage.input, "sql": stage.query}
        case Window():
            return _window(stage)
        case Merge():
            return {"merge": list(stage.inputs)}
        case Join():
            tree = {"join": [stage.left, stage.right], "on": _columns(stage.on)}
            return {**tree, "within": shown(stage.within), "how": stage.how}
        case Lookup():
            return _lookup(stage)
        case Distinct():
            return {
                "from": stage.input,
                "distinct": _columns(stage.by),
                "within": shown(stage.within),
            }
        case Journal():
            return _journal(flow, stage)
        case Apply() | Fold():
            site = Site(flow.name, stage.name, "stage", stage.where)
            hint = "keep this flow in Python, or say it with sql"
            raise site.mistake(
                InvalidFunction, "calls a function, which YAML cannot hold", hint=hint
            )
        case Match():
            return _match(flow, stage)
        case Action():
            return _action(stage)
        case Source() | Reads():
            return _source(stage)


def _action(stage: Action) -> Tree:
    tree: Tree = {
        "from": stage.input,
        "action": list(stage.argv),
        "input": _columns(stage.columns) or None,
    }
    tree |= {
        "output": stage.output.ddl,
        "contract": None if stage.contract == "one" else stage.contract,
    }
    tree |= {
        "format": None if stage.format == "json" else stage.format,
        "env": dict(stage.env) or None,
    }
    tree |= {
        "files": list(stage.files) or None,
        "memory_bytes": stage.memory_bytes,
        "cpu_seconds": stage.cpu_seconds,
    }
    tree |= {
        "time_limit": None if stage.time_limit == timedelta(minutes=1) else shown(stage.time_limit)
    }
    tree |= {"attempts": None if stage.attempts == 3 else stage.attempts, "user": stage.user}
    listed = stage.conn_whitelist
    return _given({**tree, "conn_whitelist": None if listed is None else list(listed)})


def _match(flow: Flow, stage: Match) -> Tree:
    site = Site(flow.name, stage.name, "stage", stage.where)
    # By its name: a flow takes any pattern and knows none.
    document = import_module("millstream.patterns.document")
    with site.naming("pattern"):
        pattern = document.write_pattern(stage.pattern)
    if "sql" in pattern:
        return {"from": stage.input, **pattern}
    key = flow.stream(stage.input).key
    by = None if stage.by == ((key,) if key is not None else ()) else list(stage.by)
    shards = None if stage.shards == SHARDS else stage.shards
    return _given({"from": stage.input, **pattern, "by": by, "emit": stage.emit, "shards": shards})


def _window(stage: Window) -> Tree:
    if stage.gap is not None:
        lengths: Tree = {
            "session": shown(stage.gap),
            "longest": stage.longest and shown(stage.longest),
        }
    else:
        assert stage.every is not None
        assert stage.size is not None
        lengths = {
            "window": shown(stage.every),
            "size": None if stage.kind == "tumbling" else shown(stage.size),
        }
    plain = all(text == column(name) for name, text in stage.by)
    by = _columns(tuple(name for name, _ in stage.by)) if plain else dict(stage.by)
    return _given({"from": stage.input, **lengths, "by": by, "aggregates": dict(stage.aggregates)})


def _lookup(stage: Lookup) -> Tree:
    schema = None if stage.table.schema is None else stage.table.schema.ddl
    table = {"lookup": stage.table.path, "format": stage.table.format, "schema": schema}
    return _given({"from": stage.input, **table, "on": _columns(stage.on), "how": stage.how})


def _journal(flow: Flow, stage: Journal) -> Tree:
    kept = stage.keep_for and shown(stage.keep_for)
    tree = _given(
        {
            "journal": stage.input,
            "partitions": None if stage.partitions == 1 else stage.partitions,
            "keep_for": kept,
        }
    )
    tree |= _given({"keep_bytes": stage.keep_bytes})
    # The key is written only where it is not the stream's own: also that there is none.
    return tree if stage.key == flow.stream(stage.input).key else {**tree, "key": stage.key}


def _sink(sink: Sink) -> Tree:
    match sink.target:
        case Console(rows):
            return {"from": sink.input, "console": rows}
        case Memory():
            return {"from": sink.input, "memory": None}
        case Postgres(url, table):
            return {"from": sink.input, "postgres": url, "table": table}
        case Outbox(address, source, key, server, end):
            options = _given({"key": key, "server": server, "end": end or None})
            return {"from": sink.input, "outbox": address, "source": source, **options}
        case target:
            return {
                "from": sink.input,
                type(target).__name__.lower().replace("jsonlines", "jsonl"): target.path,
            }
