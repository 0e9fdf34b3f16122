"""What Spark's Java is started with."""

from __future__ import annotations

import pytest

from millstream.spark.session.session import _java_options


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("", ["-XX:+UseParallelGC"]),
        ("-Xss4m", ["-XX:+UseParallelGC", "-Xss4m"]),
        (
            "-XX:+UseG1GC  -Xss4m",
            ["-XX:+UseG1GC", "-Xss4m"],
        ),  # Java starts with one collector, not with two
    ],
)
def test_options_for_java_are_added_to_ours(
    given: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_JAVA_OPTIONS", given)
    assert _java_options(None, None) == options
