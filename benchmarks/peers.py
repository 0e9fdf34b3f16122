"""Other systems to compare with, each in an environment of its own, installed when it is first asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FLINK = "apache-flink==2.3.0"
HOME = Path(__file__).parents[1] / ".tools" / "peers"


def flink() -> Path:
    """Return the Python that has PyFlink.

    Raises:
        SystemExit: It could not be installed.
    """
    # Flink's own requirements have no wheels for every Python.
    return _environment("flink", FLINK, "pyflink", python="3.11")


def _environment(name: str, package: str, module: str, *, python: str) -> Path:
    place = HOME / name
    found = place / "bin" / "python"
    stamp = place / "installed"
    if stamp.exists() and stamp.read_text() == package:
        return found
    uv = shutil.which("uv") or str(HOME.parent / "bin" / "uv")
    print(
        f"installing {package} into {place.relative_to(HOME.parents[1])} (some 500 MB)", flush=True
    )
    try:
        wanted = (
            sys.executable if sys.version_info[:2] == tuple(map(int, python.split("."))) else python
        )
        subprocess.run(
            [uv, "venv", "--quiet", "--clear", "--python", wanted, str(place)], check=True
        )
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", str(found), package], check=True
        )
        subprocess.run([str(found), "-c", f"import {module}"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"error: {package} could not be installed: {error}\n  hint: --alone measures ours"
        ) from error
    stamp.write_text(package)
    return found
