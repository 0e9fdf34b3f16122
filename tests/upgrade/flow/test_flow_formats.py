"""Flows mean, byte for byte, what earlier releases wrote down of them with their checkpoints."""

from __future__ import annotations

import json

import pytest

from millstream.plan.fingerprint import difference, digest
from upgrade.flow.make import FLOWS, meaning, recorded, text


@pytest.mark.parametrize("file", FLOWS)
def test_a_flow_is_described_planned_and_fingerprinted_as_before(file: str) -> None:
    assert text(file) == recorded(file).read_text()


@pytest.mark.parametrize("file", FLOWS)
def test_a_stored_fingerprint_means_what_a_fresh_one_does(file: str) -> None:
    stored = json.loads(recorded(file).read_text())["fingerprints"]
    fresh = meaning(file)["fingerprints"]
    for group, one in fresh.items():
        assert difference(stored[group], one) == []
        assert digest(stored[group]) == digest(one)
