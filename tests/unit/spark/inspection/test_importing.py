"""Which files fit a state, and which do not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.inspection.columns import layout_of
from millstream.spark.inspection.importing import differences

TIME = pa.timestamp("us", tz="UTC")
LAYOUT = layout_of(["k"], [["a"]], [{"n": 1, "mean": 0.5, "tags": ["x"], "whole": {"a": 1}}])
FITS: dict[str, Any] = {
    "k": pa.string(),
    "n": pa.int64(),
    "mean": pa.float64(),
    "tags": pa.list_(pa.string()),
    "whole": pa.struct([("a", pa.int64())]),
}


def test_the_columns_of_an_export_fit_in_any_order() -> None:
    assert differences(LAYOUT, LAYOUT.schema) == []
    assert differences(LAYOUT, pa.schema(list(reversed(FITS.items())))) == []


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("n", pa.int32()),
        ("n", pa.null()),
        ("mean", pa.float32()),
        ("mean", pa.int64()),
        ("k", pa.large_string()),
        ("tags", pa.large_list(pa.large_string())),
    ],
    ids=str,
)
def test_narrower_types_and_nulls_fit(column: str, kind: pa.DataType) -> None:
    assert differences(LAYOUT, pa.schema([*{**FITS, column: kind}.items()])) == []


def test_all_differences_are_listed() -> None:
    given = {**FITS, "n": pa.float64(), "more": pa.int64(), "k": pa.int64()}
    del given["mean"]
    assert differences(LAYOUT, pa.schema(list(given.items()))) == [
        'column "mean" is missing',
        'column "more" is not known',
        'column "k" is int64, and the state has string',
        'column "n" is double, and the state has int64',
    ]
