"""Two versions of a flow in one process: each has modules of its own, also of the same names.

A flow's functions keep the modules that they were loaded with. What is imported later, by a
function that runs, is found beside the version that was loaded last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from millstream.flow.flow import Flow
from millstream.flow.load import load


def load_apart(path: str | PathLike[str], other: str | PathLike[str]) -> Flow:
    """Return the flow in a file, whatever was imported for the flow in the file `other`.

    Raises:
        NotLoadable: The file is not there, fails, or does not hold exactly one flow.
        FlowError: The flow has a mistake.
    """
    folder, away = Path(path).resolve().parent, Path(other).resolve().parent
    if folder == away:
        return load(path)
    for name in [name for name in sys.modules if _beside(name, away)]:
        del sys.modules[name]
    sys.path[:] = [one for one in sys.path if one not in (str(folder), str(away))]
    return load(path)


@contextmanager
def visiting(path: str | PathLike[str]) -> Iterator[None]:
    """Restore the modules of other versions after imports for the flow in a file."""
    folder = Path(path).resolve().parent
    before, paths = dict(sys.modules), sys.path[:]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name not in before and _beside(name, folder)]:
            del sys.modules[name]
        sys.modules.update(
            {name: module for name, module in before.items() if sys.modules.get(name) is not module}
        )
        sys.path[:] = paths


def _beside(name: str, folder: Path) -> bool:
    """Tell whether a module, or the package that it is in, lies in a folder."""
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or top in ("__main__", "millstream") or top in sys.stdlib_module_names:
        return False
    place = Path(file).resolve()
    return folder in (place.parent, place.parent.parent if place.name == "__init__.py" else None)
