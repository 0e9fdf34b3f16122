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


#: Fields that descriptions have besides since then, where they are not at their default.
ADDED = {"nodes": None}


@pytest.mark.parametrize("what", RECORDED)
def test_what_is_written_of_sources_and_sinks_is_the_same_as_before(what: str) -> None:
    found = json.loads(json.dumps(written()[what]), object_hook=_without_added)
    assert found == RECORDED[what]


def _without_added(tree: dict[str, object]) -> dict[str, object]:
    return {key: one for key, one in tree.items() if key not in ADDED or one != ADDED[key]}


def test_the_yaml_of_the_version_before_loads_to_the_same_flow(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(f"name: everything\nwindow: 1 hour\n\nsources:{RECORDED['yaml']}")
    assert load(file) == every_flow()
