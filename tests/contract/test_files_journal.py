"""The kind `files` keeps what every journal promises, whichever way it is addressed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from contract.check_journal import JournalChecks
from millstream.errors import UnknownJournalKind
from millstream.journal import Journal, journal_at, journals_in
from millstream.journal.kinds.files import FilesJournal


class TestFiles(JournalChecks):
    @pytest.fixture(params=["path", "text", "url"])
    def empty(self, request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
        path = tmp_path / "some journal"
        addresses: dict[str, Path | str] = {"path": path, "text": str(path), "url": path.as_uri()}
        return journal_at(addresses[request.param])


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("file:/a", "/a"),
        ("a:b/c", "a:b/c"),
        ("a/b", "a/b"),
    ],
)
def test_paths_and_file_urls_are_folders(address: str, path: str) -> None:
    assert journal_at(address) == FilesJournal(Path(path))


@pytest.mark.parametrize("address", ["file://far/a", "s3://bucket/a"])
def test_other_kinds_are_refused_with_a_hint(address: str) -> None:
    with pytest.raises(UnknownJournalKind, match=address) as caught:
        journal_at(address)
    hint = "give a path or a URL like file:///data/orders or kafka://host:9092/orders"
    assert caught.value.hint == hint


def test_journals_are_found_by_name(tmp_path: Path) -> None:
    assert journals_in(tmp_path / "nowhere") == {}
    for name in ("b", "a"):
        journal_at(tmp_path / name).create(pa.schema([("v", pa.int64())]))
    (tmp_path / "other").mkdir()
    assert list(journals_in(tmp_path)) == ["a", "b"]
