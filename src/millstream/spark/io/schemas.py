"""Spark's schemas as those of journals."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of a journal with these columns."""
    return to_arrow_schema(schema, timezone="UTC")
