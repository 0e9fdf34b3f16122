"""What Spark gets to know about S3, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.session.s3a import s3a_keys, s3a_settings

SECRETS = {
    "AWS_ACCESS_KEY_ID": "who-it-is",
    "AWS_SECRET_ACCESS_KEY": "what-it-knows",
    "AWS_SESSION_TOKEN": "for-a-while",
}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**SECRETS, "AWS_ENDPOINT_URL": "http://there:9000"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.delenv("MILLSTREAM_S3_JARS", raising=False)
    return "s3://bucket/prefix"


def test_settings_that_stand_on_a_command_line_have_no_keys(bucket: str) -> None:
    settings = s3a_settings(bucket)
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://there:9000"
    assert not set(settings.values()) & set(SECRETS.values())


def test_keys_are_given_apart(bucket: str) -> None:
    assert s3a_keys(bucket) == {
        "fs.s3a.access.key": "who-it-is",
        "fs.s3a.secret.key": "what-it-knows",
        "fs.s3a.session.token": "for-a-while",
    }


def test_a_folder_needs_neither(bucket: str, tmp_path: Path) -> None:
    for address in (None, str(tmp_path)):
        assert s3a_settings(address) == s3a_keys(address) == {}


@pytest.mark.parametrize(
    ("address", "on_s3"), [(None, False), ("/mnt/shared/job", False), ("s3://bucket/job", True)]
)
def test_only_a_bucket_is_in_reach_of_executors_everywhere(
    address: str | None, on_s3: bool, tmp_path: Path
) -> None:
    assert Checkpoint(tmp_path, "sums", "abc", {}, address).on_s3 == on_s3
