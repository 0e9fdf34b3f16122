"""What can be wrong with a Kafka source, found before anything runs and without a broker."""

from __future__ import annotations

from pathlib import Path

from millstream.connectors.kafka import Kafka
from millstream.connectors.kafka.records import records_of


def check_kafka(spec: Kafka, root: Path) -> None:
    """Read the schema of the values, and look for columns that they cannot fill.

    Raises:
        NotThere: The schema file does not exist.
        UnknownFormat: It cannot be read.
        UnsupportedColumn: The format cannot hold a column.
        MissingExtra: A package is missing.
    """
    records_of(spec, spec.schema.arrow(), root)
