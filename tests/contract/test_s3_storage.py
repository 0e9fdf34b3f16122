"""A bucket of a real S3 server keeps what every storage promises."""

from __future__ import annotations

import pytest

from contract.check_storage import StorageChecks
from millstream.errors import (
    BucketMissing,
    InvalidStorage,
    StorageAway,
    StorageError,
    StorageForbidden,
    StorageUnsafe,
)
from millstream.storage import S3, Storage, storage_at
from millstream.testing.kafka import free_port
from support.careless_s3 import careless_s3
from support.s3 import Server

pytestmark = pytest.mark.process


class TestS3(StorageChecks):
    @pytest.fixture
    def storage(self, s3: Server) -> Storage:
        return storage_at(s3.new_address())

    def test_names_are_keys_below_the_prefix(self, s3: Server) -> None:
        address = s3.new_address()
        storage_at(address).put("a/b.json", b"{}")
        prefix = address.rpartition("/")[2]
        assert storage_at(f"s3://{s3.bucket}").read(f"{prefix}/a/b.json") == b"{}"
        assert storage_at(f"{address}/a").list() == ["b.json"]

    def test_it_passes_the_probe_and_keeps_nothing_of_it(self, s3: Server) -> None:
        storage = S3(s3.bucket, "probed")
        storage.probe()
        assert storage.list("probe") == []

    def test_no_process_can_hold_a_name(self, storage: Storage) -> None:
        with pytest.raises(InvalidStorage, match="cannot be held by a process") as found:
            storage.claim("lock")
        assert found.value.hint is not None
        assert "numbered log" in found.value.hint


def refused(kind: type[StorageError], what: str, bucket: str = "bucket") -> StorageError:
    storage = S3(bucket, "x")
    for do in (lambda: storage.read("a"), lambda: storage.put("a", b""), storage.probe):
        with pytest.raises(kind, match=what) as found:
            do()
        assert found.value.hint
    return found.value


def test_a_bucket_that_is_missing_is_named(s3: Server) -> None:
    refused(BucketMissing, f'there is no bucket "nobodys" at {s3.endpoint}', "nobodys")


def test_wrong_keys_are_refused(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    error = refused(StorageForbidden, "refuses the keys for s3://bucket/x")
    assert "another" not in f"{error}{error.hint}"


def test_without_keys_the_hint_names_the_variables(
    s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refused(StorageForbidden, "there are no keys for s3://bucket/x")
    assert "AWS_ACCESS_KEY_ID" in (error.hint or "")


def test_keys_can_be_secrets(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"MILLSTREAM_SECRET_{name}", s3.environment[name])
        monkeypatch.delenv(name)
    storage = storage_at(s3.new_address())
    storage.put("a", b"one")
    assert storage.read("a") == b"one"


def test_a_server_that_is_away_is_named(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StorageAway, match="does not answer for s3://bucket/x") as found:
        S3("bucket", "x").read("a")
    assert "AWS_ENDPOINT_URL" in (found.value.hint or "")


def test_a_server_that_ignores_the_condition_is_refused(
    s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with careless_s3() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(StorageUnsafe, match="several callers") as found:
            S3("bucket", "x").probe()
    assert "If-None-Match" in (found.value.hint or "")


@pytest.mark.parametrize("address", ["s3://", "s3:///a", "s3://key:secret@bucket/a", "gs://b/c"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(InvalidStorage):
        storage_at(address)
