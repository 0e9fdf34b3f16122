"""A folder of the local disk keeps what every storage promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.check_storage import ClaimChecks, StorageChecks
from millstream.storage import Folder, Storage


class TestFolder(StorageChecks, ClaimChecks):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return Folder(tmp_path / "storage")

    def test_names_are_files(self, tmp_path: Path) -> None:
        Folder(tmp_path).put("a/b.json", b"{}")
        assert (tmp_path / "a" / "b.json").read_bytes() == b"{}"
        assert [one.name for one in (tmp_path / "a").iterdir()] == ["b.json"]
