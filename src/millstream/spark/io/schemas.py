"""Spark's schemas as those of journals."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of a journal with these columns."""
    return to_arrow_schema(schema, timezone="UTC")


@cache
def arrow_schema_of(text: str) -> Any:
    """Return the same for columns as Spark's JSON."""
    return arrow_schema(StructType.fromJson(json.loads(text)))
