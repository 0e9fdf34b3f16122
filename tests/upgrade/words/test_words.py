"""What is written to disk and sent keeps its words, whatever the classes are called that hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upgrade.words.words import GOLDEN, words

SAVED: dict[str, Any] = json.loads(GOLDEN.read_text())
FOUND: dict[str, Any] = json.loads(json.dumps(words(), default=list))
HINT = "if that is meant, run PYTHONPATH=tests python -m upgrade.words.words, and keep reading the old words"


@pytest.mark.parametrize("where", ["kept", "sent", "http", "fingerprints"])
def test_words_stay(where: str) -> None:
    assert sorted(FOUND[where]) == sorted(SAVED[where]), HINT
    for name, saved in SAVED[where].items():
        assert FOUND[where][name] == saved, f"{name}: {HINT}"


@pytest.mark.parametrize("where", ["errors", "public"])
def test_names_that_others_use_stay(where: str) -> None:
    assert SAVED[where]
    assert set(SAVED[where]) <= set(FOUND[where]), HINT
