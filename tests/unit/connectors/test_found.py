"""Which connectors are found, and how."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from millstream.errors import InvalidOption
from millstream.flow import connector

OURS = {"files", "inbox", "rate"}


@pytest.fixture(autouse=True)
def not_cached() -> Iterator[None]:
    cached = (connector.sources, connector.targets, connector._installed)
    for found in cached:
        found.cache_clear()
    yield
    for found in cached:
        found.cache_clear()


def test_ours_are_found_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "entry_points", lambda *, group: ())
    assert set(connector.sources()) >= OURS
    assert set(connector.targets()) >= {"console", "jsonl", "memory", "postgres"}


def test_metadata_that_repeats_ours_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    again = EntryPoint("files", "millstream.connectors.files:connector", connector.GROUP)
    monkeypatch.setattr(connector, "entry_points", lambda *, group: (again,))
    assert set(connector.sources()) >= OURS


def test_a_word_that_two_connectors_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = connector.sources()["rate"]
    other = type("Other", (first,), {})
    both = tuple(connector.Connector(sources=(kind,)) for kind in (first, other))
    connector.sources.cache_clear()
    monkeypatch.setattr(connector, "_installed", lambda: both)
    with pytest.raises(InvalidOption, match='two connectors are called "rate"'):
        connector.sources()
