"""The schema of the values of a topic that a sink writes: from a file, or from a registry.

schema_file             values are Avro records alone
registry                the newest schema of the subject "<topic>-value"; values begin with its number
registry, schema_file   the same, after the file's schema has been registered there
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.connectors.kafka.avro_values import AvroValues, parsed
from millstream.connectors.kafka.formats.registry import Registry
from millstream.connectors.kafka.topic import KafkaTopic
from millstream.errors import NotThere, RunError, UnknownColumn, UnknownFormat


def avro_values(spec: KafkaTopic, root: Path) -> AvroValues:
    """Return how a topic's values are written.

    Raises:
        NotThere: The schema file, or the subject in the registry, does not exist.
        UnknownFormat: The schema is not one of an Avro record.
        BrokerAway: The registry does not answer.
    """
    schema = None if spec.schema_file is None else _of_file(root / spec.schema_file)
    if spec.registry is None:
        assert schema is not None
        return AvroValues(json.dumps(schema))
    registry = Registry(spec.registry, spec.registry_password, _unparsed)
    subject = f"{spec.topic}-value"
    if schema is not None:
        return AvroValues(json.dumps(schema), registry.register(subject, schema))
    number, schema = registry.latest(subject)
    return AvroValues(json.dumps(_record(schema, f'schema {number} of "{subject}"')), number)


def check_fields(values: AvroValues, names: Sequence[str], topic: str) -> None:
    """Look whether results have the fields of a schema, and no others.

    Raises:
        UnknownColumn: A field without a default is not among the results.
        RunError: A column is not among the fields.
    """
    fields = {field["name"]: field for field in json.loads(values.schema)["fields"]}
    for name, field in fields.items():
        if name not in names and "default" not in field:
            msg = f'results have no column "{name}", which the schema of topic "{topic}" asks for'
            raise UnknownColumn(msg, hint=f"they have {', '.join(names)}")
    for name in names:
        if name not in fields:
            msg = f'the schema of topic "{topic}" has no field "{name}", which results have'
            raise RunError(msg, hint=f"choose columns with a sql stage; it has {', '.join(fields)}")


def _of_file(path: Path) -> Any:
    if not path.is_file():
        raise NotThere(f'the schema file "{path}" does not exist', hint="is schema_file= right?")
    try:
        schema = json.loads(path.read_text())
    except ValueError as error:
        raise _no_schema(str(path), str(error)) from None
    return _record(schema, str(path))


def _record(schema: Any, where: str) -> Any:
    try:
        parsed(schema, "a Kafka topic of Avro")
    except ValueError as error:
        raise _no_schema(where, str(error)) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _no_schema(where, "it is not a record")
    return schema


def _no_schema(where: str, why: str) -> UnknownFormat:
    hint = 'a record, {"type": "record", "name": ..., "fields": [...]}'
    return UnknownFormat(f'"{where}" is not an Avro schema for a topic: {why}', hint=hint)


def _unparsed(schema: Any) -> Any:
    return schema
