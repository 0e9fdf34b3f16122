"""Sources and sinks are described, dumped and fingerprinted as the version before did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.flow.yaml import load
from upgrade.connectors.every_flow import every_flow, written

RECORDED = json.loads(
    (Path(__file__).parents[2] / "upgrade" / "connectors" / "format_1.json").read_text()
)


@pytest.mark.parametrize("what", RECORDED)
def test_what_is_written_of_sources_and_sinks_is_the_same_as_before(what: str) -> None:
    assert json.loads(json.dumps(written()[what])) == RECORDED[what]


def test_the_yaml_of_the_version_before_loads_to_the_same_flow(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(f"name: everything\nwindow: 1 hour\n\nsources:{RECORDED['yaml']}")
    assert load(file) == every_flow()
