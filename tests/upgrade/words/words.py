"""The words that Millstream writes to disk and sends: they outlive the names of the classes that hold them.

    PYTHONPATH=tests python -m upgrade.words.words    writes words.json anew, after a change that is meant

Each entry is named for the file or the message that it is in. A class may be renamed or moved, and
then only its import here changes.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import millstream as ms
from millstream import errors
from millstream.actions import queue
from millstream.connectors.files import taken
from millstream.engine import tokens
from millstream.engine.access import audit, token_book
from millstream.engine.http.routes import DESCRIPTION
from millstream.engine.jobs import lifecycle, package, store, switch_record
from millstream.engine.leases import coordination
from millstream.engine.schemes import supervisor
from millstream.ingest import settings
from millstream.links import envelope, host
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan
from millstream.spark.io import control, source
from millstream.switch import machine, record

GOLDEN: Final = Path(__file__).parent / "words.json"

KEPT: Final[Mapping[str, Any]] = {
    "jobs.sqlite, jobs.job": lifecycle.Job,
    "jobs.sqlite, settings": store.JobSettings,
    "jobs.sqlite, versions.switch": switch_record.Switch,
    "package, millstream.json": package.Manifest,
    "engine, http.json": tokens._Note,
    "engine, tokens.json": token_book._Stored,
    "engine, audit.jsonl": audit.AuditEntry,
    "coordination, deployed/*": coordination.Deployment,
    "coordination, engines/*": coordination.Presence,
    "coordination, settings": coordination._Settings,
    "inboxes.json": host._Note,
    "schemes": supervisor.Memory,
    "journal, source.json": settings.SourceSettings,
    "journal, files": taken.TakenFile,
    "switch/record": record.Record,
    "switch/history": machine.Entry,
    "group, orders": control.Orders,
    "group, answers": control.Answer,
    "group, offsets": source.Offset,
    "runtime, *.queue": queue.State,
}
SENT: Final[Mapping[str, Any]] = {
    "links, requests": envelope.Request,
    "links, answers": envelope.Answer,
}


def words() -> dict[str, Any]:
    """Return all of them."""
    return {
        "kept": {name: shape(kind) for name, kind in KEPT.items()},
        "sent": {name: shape(kind) for name, kind in SENT.items()},
        "http": http(),
        "errors": sorted(
            name
            for name, kind in vars(errors).items()
            if isinstance(kind, type) and issubclass(kind, errors.MillstreamError)
        ),
        "fingerprints": fingerprints(),
        "public": sorted(ms.__all__),
    }


def shape(kind: Any) -> Any:
    """Return what a type looks like as JSON or MessagePack, without the names of classes."""
    (found,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    return terse(found, components)


def http() -> dict[str, Any]:
    """Return what can be asked over HTTP, and what is answered when all is well."""
    components = DESCRIPTION["components"]["schemas"]
    known: dict[str, str] = {}

    def once(where: str, content: Mapping[str, Any]) -> Any:
        """Return the shapes of a body by media type; one that was there before by its place."""
        if not content:
            return None
        shapes = {media: terse(one["schema"], components) for media, one in content.items()}
        first = known.setdefault(json.dumps(shapes), where)
        return shapes if first == where else f"as {first}"

    found = {}
    for path, operations in DESCRIPTION["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            given = operation.get("parameters", [])
            answers = operation["responses"]
            (status,) = [one for one in answers if one.startswith("2")]
            found[name] = {
                "parameters": {
                    f"{one['in']} {one['name']}": terse(one["schema"], components) for one in given
                },
                "body": once(f"{name} body", operation.get("requestBody", {}).get("content", {})),
                status: once(f"{name} {status}", answers[status]["content"]),
                "refused": " ".join(one for one in answers if one != status),
            }
    return found


def terse(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Any:
    """Return a JSON schema in short: fields of objects, a question mark if they may be missing, and types."""
    if "$ref" in schema:
        return terse(components[schema["$ref"].rpartition("/")[2]], components)
    if "anyOf" in schema:
        kinds = [terse(one, components) for one in schema["anyOf"]]
        return " | ".join(kinds) if all(isinstance(one, str) for one in kinds) else kinds
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "prefixItems" in schema:
        items = [terse(one, components) for one in schema["prefixItems"]]
        return ", ".join(items) if all(isinstance(one, str) for one in items) else items
    if schema.get("items"):
        item = terse(schema["items"], components)
        return f"{item}, ..." if isinstance(item, str) else [item, "..."]
    if "properties" in schema:
        needed = schema.get("required", ())
        return {
            name if name in needed else f"{name}?": terse(one, components)
            for name, one in schema["properties"].items()
        }
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": terse(schema["additionalProperties"], components)}
    return str(schema.get("const", schema.get("format", schema.get("type", "anything"))))


def fingerprints() -> dict[str, Any]:
    """Return what the groups of a flow with every kind of stage and sink mean."""
    flow = importlib.import_module("upgrade.words.kinds").flow
    planned = plan(flow)
    return {group.name: fingerprint(planned, group.name) for group in planned.groups}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(words(), indent=1, sort_keys=True, default=list) + "\n")
