"""The cookbook of patterns, with the recipes that need Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unit.docs.blocks import DOCS
from unit.docs.test_guide import Page

pytestmark = pytest.mark.spark


def test_the_cookbook_shows_what_happens_also_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(DOCS / "guide" / "cookbook.md", spark=spark)
    page.run()
    assert Path("timeline.svg").read_text() == (DOCS / "images" / "timeline.svg").read_text()
    assert page.names["picture"] == (DOCS / "images" / "automaton.svg").read_text()
