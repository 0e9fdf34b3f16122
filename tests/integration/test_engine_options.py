"""What an engine's drivers get from its options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.engines import drivers_of, wait_until

ENGINE = (sys.executable, "-m", "millstream", "engine", "--port", "0", "--json")


def test_drivers_have_what_concerns_their_executors(tmp_path: Path) -> None:
    (tmp_path / "packages.tar").touch()
    data = tmp_path / "data"
    given = ("--serve", "never", "--serve-port", "7401", "--executor-python", "packages.tar")
    command = [*ENGINE, "--data", str(data), "--warm", "1", *given]
    engine = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: drivers_of(data), what="a driver")
        environment = drivers_of(data)[0].environ()
    finally:
        engine.kill()
        engine.wait()
    assert environment["MILLSTREAM_SERVE"] == "never"
    assert environment["MILLSTREAM_SERVE_PORT"] == "7401"
    assert environment["MILLSTREAM_EXECUTOR_PYTHON"] == str(tmp_path / "packages.tar")
    wait_until(lambda: not drivers_of(data), what="the end of its drivers")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--serve", "sometimes"), "auto, always, never"),
        (("--executor-python", "no.tar"), "no.tar"),
    ],
)
def test_options_that_no_driver_could_use_are_refused_at_the_start(
    option: tuple[str, str], said: str, tmp_path: Path
) -> None:
    command = [*ENGINE, "--data", str(tmp_path / "data"), *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert option[0] in done.stderr
