"""What is kept beside Spark so that it starts quickly; it starts without all of it, too.

    ~/.cache/millstream/spark-4.3.0-<place>/          Spark's folder as links, without its zipped Python sources
    ~/.cache/millstream/spark-4.3.0-<place>-<java>.jsa    Java's archive of loaded classes (archive.py makes it)
    ~/.cache/millstream/spark-4.3.0-<place>-<java>.json   its size: Java dies of a file that is cut short

Spark puts `python/lib/pyspark.zip` in front of the path of every Python process
that it starts. Modules in a zip file are compiled again by each of them, half a
second or more each time, while the same modules are installed, compiled, in
site-packages. In the folder of links there is no such file.

What nobody uses for two weeks is removed (storage/caches.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from millstream.storage import caches

_LINKED: Final = ("bin", "jars", "sbin")


def cache() -> Path:
    """Return the folder for what can be made again at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"


def light() -> Path | None:
    """Return Spark's folder as links, made if it is not there; None where that cannot be."""
    if "SPARK_HOME" in os.environ:
        return None
    real = Path(pyspark.__file__).resolve().parent
    if not (real / "jars").is_dir():
        return None
    made = cache() / _name(real)
    caches.hold(made)
    try:
        if not _leads_to(made, real):
            _make(made, real)
    except OSError:
        # A home that cannot be written to, or another process that was quicker.
        return made if _leads_to(made, real) else None
    return made


def _name(real: Path) -> str:
    return f"spark-{pyspark.__version__}-{_digest(str(real))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _leads_to(made: Path, real: Path) -> bool:
    return all((made / name).resolve() == (real / name).resolve() for name in _LINKED)


def _make(made: Path, real: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".spark-", dir=made.parent))
    try:
        for name in _LINKED:
            (temporary / name).symlink_to(real / name)
        if made.is_symlink() or made.exists():
            shutil.rmtree(made)
        temporary.rename(made)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    caches.hold(made)
    caches.tidy(made.parent)


# The archive of loaded classes


def archive(place: Path, java: str) -> Path:
    """Return where the archive is, for Spark at `place` and the Java of version `java`."""
    return place.with_name(f"{place.name}-{_digest(java)}.jsa")


def usable(path: Path) -> bool:
    """Tell whether an archive is there and whole, and hold it; whether it fits is Java's to find out."""
    caches.hold(path)
    try:
        return bool(
            path.stat().st_size == json.loads(path.with_suffix(".json").read_text())["size"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def seal(temporary: Path, path: Path) -> None:
    """Put a new archive in its place, and remove old ones; running processes keep the one they have."""
    size = temporary.stat().st_size
    with contextlib.suppress(FileNotFoundError):
        path.with_suffix(".json").unlink()
    temporary.rename(path)
    path.with_suffix(".json").write_text(json.dumps({"size": size}))
    caches.hold(path)
    caches.tidy(path.parent)
