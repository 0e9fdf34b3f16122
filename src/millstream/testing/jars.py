"""Jars from Maven Central by name, fetched once into the cache with PySpark's own Ivy."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from millstream.errors import RunError

_MODULE: Final = """<ivy-module version="2.0">
  <info organisation="millstream" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
#: The configurations "master" and "runtime" are those of Maven: a jar, and what it runs with.
_DEPENDENCY: Final = (
    '    <dependency org="{}" name="{}" rev="{}" conf="default->master,runtime(*)"{}/>'
)


def jars(
    name: str, coordinates: Sequence[str], *, digest: str | None = None, alone: bool = False
) -> Path:
    """Return the folder of some jars and of all that they need; the first call fetches them.

    Args:
        name: The name of the folder in the cache.
        coordinates: "group:artifact:version" each.
        digest: What `digest_of` returns for the folder: other jars are refused.
        alone: Without what they need.

    Raises:
        RunError: They cannot be fetched, or are not those that they were.
    """

    def fetch(folder: Path) -> Path:
        fresh = folder / "lib"
        _fetch(name, coordinates, fresh, alone=alone)
        if digest is not None and (found := digest_of(fresh)) != digest:
            msg = f"the jars of {name} are not those that they were: their digest is {found}"
            raise RunError(msg, hint="is the mirror of Maven Central to be trusted?")
        return fresh

    return made_once(cache() / "jars" / name, fetch)


def made_once(place: Path, make: Callable[[Path], Path]) -> Path:
    """Return a place in the cache, which the first process that needs it makes; others wait for it.

    Args:
        place: The file or folder.
        make: Makes it inside an empty folder, and returns where; it is moved to its place.
    """
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    # One lock for all in a folder: Ivy's own cache, beside the jars, is for one process at a time.
    with (place.parent / "made.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                make(Path(folder)).rename(place)
    return place


def digest_of(folder: Path) -> str:
    """Return a digest of the names and contents of the jars in a folder."""
    lines = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.name}\n"
        for path in sorted(folder.iterdir())
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def java() -> str:
    """Return the path of Java: that of JAVA_HOME, else of PATH.

    Raises:
        RunError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=None if home is None else str(Path(home) / "bin"))
    if found is None:
        raise RunError("there is no Java", hint="on Debian: apt-get install default-jre-headless")
    return found


def cache() -> Path:
    """Return the folder of what was fetched and built."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "millstream"


def _fetch(name: str, coordinates: Sequence[str], place: Path, *, alone: bool) -> None:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise RunError("jars are fetched by PySpark's Ivy", hint="pip install 'millstream[spark]'")
    (ivy,) = (Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")
    module = place.parent / "ivy.xml"
    transitive = ' transitive="false"' if alone else ""
    dependencies = (_DEPENDENCY.format(*one.split(":"), transitive) for one in coordinates)
    module.write_text(_MODULE.format(name=name, dependencies="\n".join(dependencies)))
    done = subprocess.run(
        [
            *(java(), "-jar", str(ivy), "-ivy", str(module)),
            *("-cache", str(cache() / "jars" / "ivy"), "-types", "jar", "bundle"),
            *("-retrieve", f"{place}/[artifact]-[revision](-[classifier]).[ext]"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not place.exists():
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        msg = f"the jars of {name} cannot be fetched: {''.join(last) or 'Ivy has no reason'}"
        raise RunError(msg, hint="Maven Central, or its mirror in ~/.ivy2, must be in reach")
