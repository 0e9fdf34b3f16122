"""Each damage to what a shard's manifest names is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.state import Entry, ShardState, StateFiles
from millstream.state.importing import imported, put
from millstream.state.manifest import Manifest, Run, dump, load
from millstream.state.verifying import import_faults, shard_faults
from millstream.storage import Folder


def kept(path: Path, stage: str = "sums") -> tuple[StateFiles, bytes, Path]:
    """Return a shard's files and manifest, and its only run file."""
    files = StateFiles(Folder(path), stage, retain=8, inline=10)
    data = ShardState(Manifest(), files, 3).commit({b"a": Entry(b"\x01"), b"b": Entry(b"\x02")})
    assert data is not None
    (run,) = load(data).runs
    return files, data, path / run.name


def test_what_is_whole_has_no_fault(tmp_path: Path) -> None:
    files, data, _ = kept(tmp_path)
    assert list(shard_faults(files, 3, data)) == []


def test_a_file_of_a_version_that_wrote_no_hash_is_compared_by_size_and_rows(
    tmp_path: Path,
) -> None:
    files, data, file = kept(tmp_path)
    name = f"keys/sums/3/00000001-{'0' * 32}.arrow"
    file.rename(tmp_path / name)
    (run,) = load(data).runs
    known = [Run(name, run.rows, run.size)]
    assert list(shard_faults(files, 3, dump(Manifest(1, known)))) == []
    known = [Run(name, run.rows + 1, run.size)]
    (fault,) = shard_faults(files, 3, dump(Manifest(1, known)))
    assert fault.endswith(", which has 2 keys and should have 3")


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "which is gone"),
    "cut": (lambda file: file.write_bytes(file.read_bytes()[:100]), "which has 100 bytes and"),
    "flipped": (flipped, "which is damaged: its hash is another one"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_is_named(case: str, tmp_path: Path) -> None:
    files, data, file = kept(tmp_path)
    damage, fact = DAMAGES[case]
    damage(file)
    (fault,) = shard_faults(files, 3, data)
    assert fault.startswith(f"shard 3 needs {file.relative_to(tmp_path)}, {fact}")


def test_a_manifest_with_a_file_of_another_stage_is_a_fault(tmp_path: Path) -> None:
    files, _, _ = kept(tmp_path)
    _, others, _ = kept(tmp_path, "others")
    (fault,) = shard_faults(files, 3, others)
    assert "a file of another job or stage" in fault


def test_a_manifest_that_is_none_is_a_fault(tmp_path: Path) -> None:
    files, data, _ = kept(tmp_path)
    for damaged in (data[:-3], b"\xc1\x09"):
        (fault,) = shard_faults(files, 3, damaged)
        assert fault.startswith("the manifest of shard 3 cannot be read: ")


def test_an_import_whose_manifest_is_gone_is_a_fault(tmp_path: Path) -> None:
    files, data, _ = kept(tmp_path)
    put(files, 7, {3: data}, {3: {b"a": Entry(b"\x05")}})
    decision = imported(files.storage, "sums")
    assert decision is not None
    assert list(import_faults(files, decision)) == []
    (tmp_path / f"keys/sums/imported/{decision.token}/3").unlink()
    (fault,) = import_faults(files, decision)
    assert fault.startswith("shard 3 takes over the import keys/sums/imported/")
