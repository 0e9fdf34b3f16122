"""What `pip install millstream` leaves out, and which extra has it.

The base sends events, describes flows, looks into journals and asks engines. Everything else is an
extra of the package, because Spark and the compiler of patterns are many times larger.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from millstream.errors import MissingExtra

#: The modules of each extra; those of pyproject.toml, by the names that Python imports.
EXTRAS: Final = {
    "spark": ("pyspark", "py4j", "pandas", "google.protobuf"),
    "engine": ("starlette", "uvicorn", "prometheus_client"),
    "patterns": ("numba", "llvmlite"),
    "postgres": ("psycopg",),
    "mqtt": ("paho",),
    "kafka": ("confluent_kafka", "fastavro", "google.protobuf"),
    "s3": ("obstore",),
}


def missing(error: ImportError, what: str) -> MissingExtra | None:
    """Return the error that names the extra whose module could not be imported.

    None if it is a module of something else.
    """
    module = error.name or ""
    for extra, modules in EXTRAS.items():
        if module.startswith(modules):
            return lacking(what, extra, module.partition(".")[0])
    return None


def lacking(what: str, extra: str, module: str) -> MissingExtra:
    """Return the error about something that needs an extra."""
    hint = f"pip install 'millstream[{extra}]'"
    return MissingExtra(f"{what} needs the package {module}, which is not installed", hint=hint)


def need(extra: str, what: str) -> None:
    """Refuse what needs an extra that is not there; nothing is imported.

    Raises:
        MissingExtra: It is not installed.
    """
    module = EXTRAS[extra][0]
    if find_spec(module) is None:
        raise lacking(what, extra, module)
