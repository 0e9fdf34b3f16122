"""What Spark's Java is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.spark.session import heap, session
from millstream.spark.session.session import _java_options, class_archive


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("", ["-XX:+UseSerialGC", "-XX:NewSize=128m"]),
        ("-Xss4m", ["-XX:+UseSerialGC", "-XX:NewSize=128m", "-Xss4m"]),
        # Java starts with one collector, not with two.
        ("-XX:+UseG1GC  -Xss4m", ["-XX:+UseG1GC", "-Xss4m"]),
    ],
)
def test_options_for_java_are_added_to_ours(
    given: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_JAVA_OPTIONS", given)
    assert _java_options(None, None) == [*heap.COLLECTING, *chosen]


def test_java_collects_beside_the_flow_where_there_are_cores_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MILLSTREAM_JAVA_OPTIONS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert _java_options(None, None)[-1] == "-XX:+UseG1GC"


def test_options_of_one_driver_alone_leave_it_the_archive_of_classes_that_all_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = set()
    for options in ("", "-Djava.io.tmpdir=/tmp/one", "-Djava.io.tmpdir=/tmp/two"):
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
        session._said_by.cache_clear()
        found.add(class_archive(tmp_path / "spark"))
    session._said_by.cache_clear()
    assert len(found) == 1
