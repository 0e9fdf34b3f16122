"""A flow from a file: `flow.py`, which is run, or `flow.yaml`, which is read."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import traceback
from os import PathLike
from pathlib import Path
from types import ModuleType

from millstream.errors import FlowError, MillstreamError, NotLoadable, Where
from millstream.flow.flow import Flow

_OURS = str(Path(__file__).resolve().parent.parent)


def load(path: str | PathLike[str]) -> Flow:
    """Return the flow that a file describes.

    A Python file is run as a module of its own name, with its folder on the path; it holds one
    Flow, or one that is called `flow`.

    Raises:
        NotLoadable: The file is not there, fails, or does not hold exactly one flow.
        FlowError: The flow has a mistake.
    """
    file = Path(path)
    if not file.is_file():
        raise NotLoadable(f'there is no file "{path}"', hint="name a flow.py or a flow.yaml")
    if file.suffix in (".yaml", ".yml"):
        from millstream.flow.yaml import load as load_yaml

        return load_yaml(file)
    if file.suffix != ".py":
        msg = f'"{path}" is neither Python nor YAML'
        raise NotLoadable(msg, hint="name a flow.py or a flow.yaml")
    return flow_in(run(file), file)


def run(file: Path) -> ModuleType:
    """Run a Python file as a module of its own name, with its folder on the path.

    Raises:
        NotLoadable: It fails.
        FlowError: A flow or a pattern in it has a mistake.
    """
    path = str(file.resolve())
    spec = importlib.util.spec_from_file_location(_module_name(file), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        # It stays there: the flow's functions may import their neighbours when they run.
        sys.path.insert(0, folder)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    linecache.checkcache(path)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(spec.name, None)
        if before is not None:
            sys.modules[spec.name] = before
        explained = _explained(error, file)
        if explained is error:
            raise
        raise explained from error
    return module


def _module_name(file: Path) -> str:
    """Return the file's own name, or another if that would hide a module that is already there."""
    other = sys.modules.get(file.stem)
    known = getattr(other, "__file__", None)
    taken = other is not None and (known is None or Path(known).resolve() != file.resolve())
    return f"flow_{file.stem}" if taken or file.stem in sys.stdlib_module_names else file.stem


def _explained(error: Exception, file: Path) -> MillstreamError:
    if isinstance(error, MillstreamError) and getattr(error, "where", None) is not None:
        return error
    where = _where(error, file)
    if isinstance(error, FlowError):
        return type(error)(error.message, hint=error.hint, where=where)
    if isinstance(error, MillstreamError):
        return error
    return NotLoadable(f'"{file.name}" failed with {type(error).__name__}: {error}', where=where)


def _where(error: Exception, file: Path) -> Where | None:
    """Return the innermost line of the user's that an error passed."""
    if isinstance(error, SyntaxError):
        code = (error.text or "").strip()
        return Where(error.filename or str(file), error.lineno or 1, code, error.offset)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _of_user(frame.filename, file):
            return Where(frame.filename, frame.lineno or 1, frame.line or "")
    return None


def _of_user(filename: str, file: Path) -> bool:
    return Path(filename).resolve() == file.resolve() or not (
        filename.startswith((_OURS, "<")) or "importlib" in filename
    )


def flow_in(module: ModuleType, file: Path) -> Flow:
    """Return the flow of a module that was run: the only one, or the one called `flow`."""
    named = getattr(module, "flow", None)
    if isinstance(named, Flow):
        return named
    flows = {id(value): value for value in vars(module).values() if isinstance(value, Flow)}
    if len(flows) == 1:
        return next(iter(flows.values()))
    msg, hint = f'"{file.name}" holds no flow', 'make one at the top level: flow = ms.Flow("name")'
    if flows:
        names = ", ".join(sorted(flow.name for flow in flows.values()))
        msg = f'"{file.name}" holds {len(flows)} flows: {names}'
        hint = "call the one to run `flow`"
    raise NotLoadable(msg, hint=hint, where=Where(str(file), 1))
