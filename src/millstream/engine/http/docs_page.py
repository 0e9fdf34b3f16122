"""The description of the HTTP API as a page: plain HTML, without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code {{ font-size: 14px }} h2 {{ margin-top: 2.5rem; font-size: 17px }} dt {{ margin-top: .4rem }}
h2 b {{ display: inline-block; min-width: 4.5rem }} .summary {{ color: #555; font-weight: normal }}
</style></head><body>
"""
_HOME: Final = """<h1>Millstream engine</h1>
<p>The console was not built: in a checkout, <code>make setup</code> builds it.</p>
<p>You reached the HTTP interface of an engine.</p>
<ul><li><a href="/docs">/docs</a>: what you can request</li>
<li><a href="/jobs">/jobs</a>: its jobs</li>
<li><a href="/engine">/engine</a>: its node, and where its inboxes are</li>
<li><a href="/metrics">/metrics</a>: metrics for Prometheus</li>
<li><a href="/openapi.json">/openapi.json</a>: the description for programs</li></ul>
"""


def home() -> bytes:
    """Return the page at the root of an engine without a console: where to go from there."""
    return f"{_HEAD.format(title='Millstream engine')}{_HOME}</body></html>\n".encode()


def page(description: Mapping[str, Any]) -> bytes:
    """Return the page of an OpenAPI description."""
    title = f"{description['info']['title']}: HTTP"
    parts = [_HEAD.format(title=escape(title)), f"<h1>{escape(title)}</h1>"]
    parts.append(f"<p>{escape(description['info']['description'])} Tokens are sent as ")
    parts.append("<code>Authorization: Bearer TOKEN</code>. For programs: ")
    parts.append('<a href="/openapi.json">openapi.json</a>.</p>')
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _operation(method.upper(), path, operation)
    return "".join([*parts, "</body></html>\n"]).encode()


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f'<h2 id="{name}"><b>{method}</b> <code>{escape(path)}</code> '
    yield f'<span class="summary">{escape(operation["summary"])}</span></h2>\n'
    for text in operation.get("description", "").split("\n\n"):
        yield f"<p>{escape(text)}</p>\n"
    rows = [_parameter(one) for one in operation.get("parameters", ())]
    rows += [_body(media, one) for media, one in _content(operation)]
    statuses = sorted(operation["responses"].items())
    rows.append(("Answers", ", ".join(f"{code} {one['description']}" for code, one in statuses)))
    yield "<dl>"
    yield from (f"<dt>{term}</dt><dd>{escape(text)}</dd>" for term, text in rows)
    yield "</dl>\n"


def _parameter(one: Mapping[str, Any]) -> tuple[str, str]:
    default = one["schema"].get("default")
    more = "" if default is None else f" Default {str(default).lower()}."
    needed = ", required" if one["required"] else ""
    return f"<code>{escape(one['name'])}</code> ({one['in']}{needed})", one["description"] + more


def _content(operation: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from operation.get("requestBody", {}).get("content", {}).items()


def _body(media: str, one: Mapping[str, Any]) -> tuple[str, str]:
    schema = one["schema"]
    about = schema.get("$ref", "").rpartition("/")[2] or schema.get(
        "description", schema.get("type")
    )
    return f"Body, <code>{escape(media)}</code>", str(about)
