"""What an unfinished batch has left of its state is gone before the batch is run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.unfinished import forget_unfinished
from support.checkpoints import ID, written


def checkpoint(folder: Path, offsets: int, commits: int, address: str | None = None) -> Checkpoint:
    """Make a checkpoint of so many batches, each with its state, also the one that is not committed."""
    for batch in range(offsets):
        written(folder / ID / f"offsets/{batch}", "v1")
        for name in (f"{batch + 1}.changelog", f"left-keyToNumValues/{batch + 1}.zip"):
            file = written(folder / ID / f"state/0/1/{name}", b"state")
            written(file.with_name(f".{file.name}.crc"), b"crc")
    for batch in range(commits):
        written(folder / ID / f"commits/{batch}", "v1")
    written(folder / ID / "state/0/_metadata/v2/9", "v2")
    written(folder / ID / "state/0/1/SSTs/000009-x.sst", b"table")
    return Checkpoint(folder, "sums", ID, {}, address)


def versions(folder: Path) -> list[str]:
    state = folder / ID / "state/0/1"
    return sorted(str(one.relative_to(state)) for one in state.rglob("*") if one.is_file())


@pytest.mark.parametrize(("offsets", "commits"), [(0, 0), (3, 3)])
def test_a_checkpoint_whose_batches_are_all_committed_stays_as_it_is(
    tmp_path: Path, offsets: int, commits: int
) -> None:
    found = checkpoint(tmp_path, offsets, commits)
    before = versions(tmp_path)
    assert not forget_unfinished(found)
    assert versions(tmp_path) == before


@pytest.mark.parametrize("commits", [0, 2])
def test_versions_of_a_batch_that_was_not_committed_go_with_their_checksums(
    tmp_path: Path, commits: int
) -> None:
    assert forget_unfinished(checkpoint(tmp_path, commits + 1, commits))
    kept = [
        name for n in range(1, commits + 1) for name in (f"{n}.changelog", f".{n}.changelog.crc")
    ]
    stores = [f"left-keyToNumValues/{name.replace('changelog', 'zip')}" for name in kept]
    assert versions(tmp_path) == sorted([*kept, *stores, "SSTs/000009-x.sst"])
    assert (tmp_path / ID / "state/0/_metadata/v2/9").exists()


def test_files_with_names_of_their_own_stay(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 3, 2, address=str(tmp_path))
    before = versions(tmp_path)
    assert forget_unfinished(found)
    assert versions(tmp_path) == before
