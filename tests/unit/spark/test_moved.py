"""A checkpoint whose folder was moved finds the schemas of its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.moved import relocated, settle_in
from support.checkpoints import ID, written

BEFORE = (
    'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"transformWithStateInPandasExec"},'
    '"stateStoreInfo":[{"stateSchemaFilePaths":["file:/old/place/state/0/_stateSchema/default/0_a",'
    '"file:/older/place/state/0/_stateSchema/default/1_b"]}],'
    '"operatorPropertiesJson":"{\\"stateName\\":\\"state/0\\"}"}'
)


@pytest.mark.parametrize("place", ["file:/new", 'file:/a "b" c', "s3a://bucket/größe"])
def test_paths_begin_where_the_checkpoint_is(place: str) -> None:
    escaped = place.replace('"', '\\"')
    found = relocated(BEFORE, place)
    assert f'["{escaped}/state/0/_stateSchema/default/0_a"' in found
    assert f'"{escaped}/state/0/_stateSchema/default/1_b"]' in found
    assert '"operatorPropertiesJson":"{\\"stateName\\":\\"state/0\\"}"' in found
    assert relocated(found.replace(escaped, "file:/x"), "file:/x") == found.replace(
        escaped, "file:/x"
    )


def test_a_file_that_is_changed_loses_its_checksum_and_others_keep_theirs(tmp_path: Path) -> None:
    folder = tmp_path / "groups/sums" / ID / "state"
    moved = written(folder / "0/_metadata/v2/0", BEFORE)
    written(folder / "0/_metadata/v2/.0.crc", b"crc")
    plain = written(folder / "1/_metadata/metadata", 'v1\n{"operatorInfo":{}}')
    kept = written(folder / "1/_metadata/.metadata.crc", b"crc")
    checkpoint = Checkpoint(tmp_path / "groups/sums", "sums", ID, {})
    settle_in(checkpoint)
    assert f"file:{folder}/0/_stateSchema/default/0_a" in moved.read_text()
    assert not (moved.parent / ".0.crc").exists()
    assert kept.exists()
    written(moved.parent / ".0.crc", b"of this content")
    settle_in(checkpoint)  # nothing to do
    assert (moved.parent / ".0.crc").exists()
    assert plain.read_text() == 'v1\n{"operatorInfo":{}}'
