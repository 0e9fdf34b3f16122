"""Functions as data: their sources, with all that they depend on.

What a function does is described by its source, its defaults, the variables that it closes over and
the globals that it uses; these may be functions in turn. What belongs to the user is followed, down
to plain values; what comes with Python or from an installed package is named only, so that an
upgrade of Python or of a library changes nothing here.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import json
import logging
import math
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.plan import code

# JSON: what can be in it, Python's types cannot say shortly.
Data = Any
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_PLAIN = (type(None), bool, int, float, str, bytes, tuple, list, dict, set, frozenset)
_LARGEST = 20_000
_LIBRARIES = ("site-packages", "dist-packages")
_STDLIB = tuple(
    str(Path(path).resolve())
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
_ENGINES = ("millstream", "pyspark")
_OURS = str(Path(__file__).resolve().parent.parent)


@dataclass(slots=True)
class Functions:
    """Collects functions and classes in `table`, each once; they refer to each other by name.

    `packages` are the places of packages that count as the user's even though they are installed.
    """

    table: dict[str, Data] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    # With each object its name; the object is kept so that its id stays its own.
    _names: dict[int, tuple[object, str]] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)

    def stage_function(self, function: Callable[..., object]) -> Data:
        """Return the reference to a function that a stage calls, the user's own wherever it is."""
        named = function if isinstance(function, types.FunctionType | type) else type(function)
        top = (named.__module__ or "__main__").partition(".")[0]
        if top not in sys.stdlib_module_names and top not in _ENGINES:
            self.packages.update(_places(top))
        return self.value(function)

    def value(self, value: object) -> Data:
        """Return a value as JSON, with a reference where it is a function or a class."""
        if value is None or (
            isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)
        ):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if id(value) in self._open:
            return {"cycle": type(value).__qualname__}
        self._open.append(id(value))
        try:
            return _limited(self._compound(value))
        finally:
            self._open.pop()

    def _compound(self, value: object) -> Data:
        match value:
            case types.ModuleType():
                return {"module": value.__name__}
            case types.FunctionType():
                return self._function(value)
            case type():
                return self._class(value)
            case types.MethodType():
                return {"method": self.value(value.__func__), "of": self.value(value.__self__)}
            case functools.partial():
                parts = {"arguments": list(value.args), "keywords": dict(value.keywords)}
                return {
                    "partial": self.value(value.func),
                    **{key: self.value(part) for key, part in parts.items()},
                }
            case enum.Enum():
                return {"enum": self.value(type(value)), "member": value.name}
        if type(value) in _CONTAINERS:
            return _CONTAINERS[type(value)](self, value)
        return self._object(value)

    def _function(self, function: types.FunctionType) -> Data:
        # By its file and not by its module's name, which a library's decorator copies from what it
        # wraps.
        if not self._own(function.__code__.co_filename):
            return self._wrapper(function) or {"library": _library_name(function)}
        return {"function": self._entered(function, self._function_entry)}

    def _wrapper(self, value: object) -> Data:
        """Return the user's functions that an object of a library holds, as a cache or a UDF does.

        None if it holds none.
        How it holds them is the library's business and changes with it. Only what a UDF returns is
        looked at besides.
        """
        parts = getattr(value, "__dict__", {})
        held = [part for part in parts.values() if isinstance(part, types.FunctionType)]
        own = {id(part): part for part in held if self._own(part.__code__.co_filename)}
        if not own:
            return None
        returned = getattr(parts.get("returnType"), "simpleString", None)
        functions = sorted((self.value(part) for part in own.values()), key=canonical)
        if isinstance(value, types.FunctionType):
            module = value.__globals__.get("__name__")
        else:
            module = type(value).__module__
        more = {"returns": returned()} if returned is not None else {}
        return {"wrapped": functions, "by": _top(module), **more}

    def _function_entry(self, function: types.FunctionType) -> Data:
        text = code.function_text(function.__code__)
        entry: dict[str, Data] = {"source": text}
        if text is None:
            # Typed into a prompt: all there is to compare is what was compiled.
            entry["compiled"] = _compiled(function.__code__)
        defaults = {"defaults": function.__defaults__, "keyword_defaults": function.__kwdefaults__}
        entry |= {name: self.value(given) for name, given in defaults.items() if given}
        entry["closure"] = self._closure(function)
        entry["globals"] = self._globals(function.__code__, function.__globals__, text)
        return entry

    def _closure(self, function: types.FunctionType) -> Data:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return {name: self.value(_content(cell)) for name, cell in cells if name != "__class__"}

    def _globals(
        self, compiled: types.CodeType, names: Mapping[str, object], text: str | None
    ) -> Data:
        found = {name: names[name] for name in sorted(set(_loaded(compiled))) if name in names}
        used = {name: self.value(part) for name, part in found.items()}
        for chain in sorted(set(code.chains(text))) if text is not None else ():
            if isinstance(found.get(chain[0]), types.ModuleType):
                used |= self._attribute(chain, found[chain[0]])
        return used

    def _attribute(self, chain: tuple[str, ...], root: object) -> dict[str, Data]:
        """Return what helpers.scale stands for, if `helpers` is a module of the user's."""
        value = root
        for at, name in enumerate(chain[1:], start=2):
            if not (
                isinstance(value, types.ModuleType) and self._own(getattr(value, "__file__", None))
            ):
                return {}
            value = getattr(value, name, None)
            if not isinstance(value, types.ModuleType):
                return {".".join(chain[:at]): self.value(value)}
        return {}

    def _class(self, kind: type) -> Data:
        if kind.__module__ != "__main__" and not self._own(_file_of(kind)):
            return {"library": _library_name(kind)}
        return {"class": self._entered(kind, self._class_entry)}

    def _class_entry(self, kind: type) -> Data:
        filename = _file_of(kind) or "<unknown>"
        used: dict[str, Data] = {}
        # Not those that a library made for it, such as a dataclass's: they change with the library.
        for function in (one for one in _methods(kind) if one.__code__.co_filename == filename):
            text = code.function_text(function.__code__)
            used |= self._globals(function.__code__, function.__globals__, text)
        return {
            "source": code.class_text(filename, kind.__qualname__),
            "bases": [self.value(base) for base in kind.__bases__ if base is not object],
            "attributes": {name: self.value(part) for name, part in _attributes(kind)},
            "globals": used,
        }

    def _object(self, value: object) -> Data:
        kind = self.value(type(value))
        if isinstance(kind, dict) and "class" in kind:
            return {
                "object": kind,
                "state": {name: self.value(part) for name, part in _state(value)},
            }
        if isinstance(value, logging.Logger):
            return {"object": kind, "name": value.name}
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):
            content = hashlib.sha256(value.tobytes()).hexdigest()
            return {
                "object": kind,
                "dtype": str(value.dtype),
                "shape": list(getattr(value, "shape", ())),
                "content": content,
            }
        if isinstance(value, types.BuiltinFunctionType):
            return {"library": _library_name(value)}
        return self._wrapper(value) or {"object": kind, **_text_of(value)}

    def _entered(self, value: Any, describe: Callable[[Any], Data]) -> str:
        """Return the name of a function or class in the table; put it there first if need be."""
        if id(value) not in self._names:
            name = _free(value.__qualname__, self.table)
            self._names[id(value)] = value, name
            self.table[name] = None
            self.table[name] = describe(value)
        return self._names[id(value)][1]

    def _own(self, filename: str | None) -> bool:
        """Tell whether a file is the user's: not Python's, an installed package's or ours."""
        if filename is None:
            return False
        if filename.startswith("<"):
            return not filename.startswith("<frozen")
        path = str(Path(filename).resolve())
        if path.startswith(tuple(self.packages)):
            return True
        return not (
            path.startswith((_OURS, *_STDLIB)) or any(f"/{name}/" in path for name in _LIBRARIES)
        )


def _file_of(kind: type) -> str | None:
    """Return the file of a class, as its methods know it.

    Another version of its module may have taken the name.
    """
    own = (method for method in _methods(kind) if method.__module__ == kind.__module__)
    known = next((method.__globals__.get("__file__") for method in own), None)
    return known or getattr(sys.modules.get(kind.__module__), "__file__", None)


def _places(package: str) -> list[str]:
    """Return where the files of a package, or of a module on its own, are."""
    module = sys.modules.get(package)
    folders = [f"{Path(path).resolve()}/" for path in getattr(module, "__path__", [])]
    file = getattr(module, "__file__", None)
    return folders or ([str(Path(file).resolve())] if file is not None else [])


def _tuple(functions: Functions, value: tuple[object, ...]) -> Data:
    return {"tuple": [functions.value(part) for part in value]}


def _list(functions: Functions, value: list[object]) -> Data:
    return [functions.value(part) for part in value]


def _set(functions: Functions, value: set[object]) -> Data:
    return {"set": sorted((functions.value(part) for part in value), key=canonical)}


def _dict(functions: Functions, value: dict[object, object]) -> Data:
    return {"dict": [[functions.value(key), functions.value(part)] for key, part in value.items()]}


def _bytes(_: Functions, value: bytes) -> Data:
    return {"bytes": bytes(value).hex()}


# Exact types only: a subclass is an object of its own.
_CONTAINERS: dict[type, Callable[[Functions, Any], Data]] = {
    tuple: _tuple,
    list: _list,
    set: _set,
    frozenset: _set,
    dict: _dict,
    types.MappingProxyType: lambda functions, value: _dict(functions, dict(value)),
    bytes: _bytes,
    bytearray: _bytes,
}


def canonical(data: Data) -> str:
    """Return the one JSON text of some data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _limited(data: Data) -> Data:
    """Return the data, or its digest if it is long.

    A table of a million rows need not be stored with each checkpoint.
    """
    text = canonical(data)
    if len(text) <= _LARGEST:
        return data
    return {"large": hashlib.sha256(text.encode()).hexdigest(), "length": len(text)}


def _loaded(compiled: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function uses, those of functions inside it too."""
    for instruction in dis.get_instructions(compiled):
        if instruction.opname in _LOADS:
            yield str(instruction.argval)
    for constant in compiled.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _loaded(constant)


def _compiled(compiled: types.CodeType) -> str:
    constants = [
        _compiled(part) if isinstance(part, types.CodeType) else repr(part)
        for part in compiled.co_consts
    ]
    text = canonical([compiled.co_code.hex(), list(compiled.co_names), constants])
    return hashlib.sha256(text.encode()).hexdigest()


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a variable that is not set yet


def _methods(kind: type) -> Iterator[types.FunctionType]:
    """Yield the functions that a class defines, also those in properties and the like."""
    for part in vars(kind).values():
        inner = [
            part,
            *(
                getattr(part, name, None)
                for name in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")
            ),
        ]
        yield from (function for function in inner if isinstance(function, types.FunctionType))


def _attributes(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the plain values that a class holds."""
    if issubclass(kind, enum.Enum):
        yield from ((name, member.value) for name, member in kind.__members__.items())
        return
    for name, value in vars(kind).items():
        if isinstance(value, _PLAIN) and not (name.startswith("__") and name.endswith("__")):
            yield name, value


def _state(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object of the user's."""
    slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
    names = dict.fromkeys([*getattr(value, "__dict__", {}), *slots])
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    if isinstance(value, tuple | list | set | frozenset | dict | int | float | str):
        base = next(kind for kind in type(value).__mro__ if kind.__module__ == "builtins")
        yield "", base(value)


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _text_of(value: object) -> dict[str, Data]:
    """Return an object of a library as its text, if that says the same in another process."""
    if type(value).__module__.startswith("millstream."):
        # A flow or a stream that happens to be a global: it is no part of what the function does.
        return {}
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (anyone's __repr__)
        return {}
    return {} if _ADDRESS.search(text) else {"shown": text}


def _library_name(value: Any) -> str:
    """Return the package and the name of something; the modules between change with the library."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{_top(getattr(value, '__module__', None))}.{name}"


def _top(module: str | None) -> str:
    # What was written in C may be in Python tomorrow, without the underscore.
    return (module or "builtins").partition(".")[0].lstrip("_")


def _free(name: str, taken: Mapping[str, Data]) -> str:
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}#{count}"
    return found
