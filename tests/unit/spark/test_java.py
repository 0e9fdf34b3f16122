"""Spark's Java is started before a session waits for it; here a shell script stands for it."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pyspark.core.context import SparkContext

from millstream.errors import RunError
from millstream.spark.session import java, session
from millstream.spark.session.java import JavaStart
from millstream.spark.session.start import SparkStart

CONNECTION = struct.pack(">ii", 4711, 6) + b"secret"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def spark_home(place: Path, script: str) -> dict[str, str]:
    """Make a folder of Spark's whose Java is a script."""
    file = place / "bin" / "spark-submit"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"SPARK_HOME": str(place)}


def test_java_starts_with_spark_s_settings_and_ends_if_nobody_waits_for_it(tmp_path: Path) -> None:
    home = spark_home(tmp_path, f'echo "$@" > {tmp_path}/given; exec cat')
    begun = JavaStart({"spark.master": "local[2]"}, home, None)
    assert begun._process is not None
    process = psutil.Process(begun._process.pid)
    until = time.monotonic() + 20
    while process.name() != "cat" and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "given").read_text() == "--conf spark.master=local[2] pyspark-shell\n"
    begun.abandon()
    begun.abandon()
    assert not process.is_running()
    assert not begun._folder.exists()


def test_what_a_java_says_that_ends_is_in_the_log(tmp_path: Path) -> None:
    home = spark_home(tmp_path, "echo no memory >&2; exit 3")
    log = tmp_path / "logs" / "run.log"
    begun = JavaStart({}, home, log)
    with pytest.raises(RunError, match="Java has ended with 3"):
        begun.join()
    assert log.read_text() == "no memory\n"
    assert not begun._folder.exists()


def test_pyspark_is_given_the_java_that_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "written").write_bytes(CONNECTION)
    copy = f'cp {tmp_path}/written "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"'
    rename = 'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"'
    home = spark_home(tmp_path, f"{copy}; {rename}; exec cat")
    found: dict[str, str] = {}

    def connect() -> SimpleNamespace:
        found.update({name: os.environ[name] for name in (java._PORT, java._SECRET)})
        return SimpleNamespace(jvm=None)

    monkeypatch.setattr(java, "launch_gateway", connect)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda *_, **how: found.update(how))
    begun = JavaStart({}, home, None)
    process = begun._process
    assert process is not None
    assert process.stdin is not None
    begun.join()
    assert (found[java._PORT], found[java._SECRET]) == ("4711", "secret")
    assert found["gateway"].proc is process  # type: ignore[attr-defined]
    assert java._PORT not in os.environ
    begun.abandon()
    assert process.poll() is None, "whoever has waited for it owns it"
    process.stdin.close()
    assert process.wait(20) == 0


def test_a_process_has_one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    begun = JavaStart({}, spark_home(tmp_path, f"touch {tmp_path}/started"), None)
    begun.join()
    begun.abandon()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    JavaStart({}, {"SPARK_HOME": str(tmp_path)}, None).join()
    assert not (tmp_path / "started").exists()


def test_a_java_that_cannot_be_started_is_an_error_of_ours_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java.tempfile, "mkdtemp", lambda: str(_made(tmp_path / "connection")))
    with pytest.raises(RunError, match=r"Spark did not start.*spark-submit"):
        JavaStart({}, {"SPARK_HOME": str(tmp_path)}, None)
    assert not (tmp_path / "connection").exists()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("variable", [None, "PYSPARK_SUBMIT_ARGS"])
def test_a_java_that_lacks_what_a_flow_has_set_since_is_not_used(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, used = [], []
    abandoned = SimpleNamespace(abandon=lambda: begun.clear())

    def begin(*_: object, **__: object) -> SimpleNamespace:
        begun.append(abandoned)
        return abandoned

    monkeypatch.setattr(session, "begin_java", begin)
    monkeypatch.setattr(session, "session", lambda *_, **how: used.append(how["begun"]))
    start = SparkStart("flow")
    start.begin()
    if variable is not None:
        monkeypatch.setenv(variable, "--packages a:b:1 pyspark-shell")
    start.session()
    assert used == [abandoned if variable is None else None]
    assert bool(begun) == (variable is None)
