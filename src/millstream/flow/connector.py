"""Connectors: the sources and sinks that are installed, ours and those of other packages.

Each module or folder of `millstream.connectors` is one of ours. A package adds its own with an
entry point, which names a `Connector`:

    [project.entry-points."millstream.connectors"]
    mqtt = "my_package.mqtt:connector"
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Final, TypeVar

from millstream.errors import InvalidOption
from millstream.flow.sources import SourceSpec
from millstream.flow.spec import Spec
from millstream.flow.targets import TargetSpec

GROUP: Final = "millstream.connectors"
_log = logging.getLogger(__name__)
_Kind = TypeVar("_Kind", bound=Spec)


@dataclass(frozen=True, slots=True)
class Connector:
    """What a system can be: sources, targets of sinks, or both."""

    sources: tuple[type[SourceSpec], ...] = ()
    targets: tuple[type[TargetSpec], ...] = ()


@cache
def sources() -> Mapping[str, type[SourceSpec]]:
    """Return the sources that are installed, by their words in YAML."""
    return _by_word(kind for one in _installed() for kind in one.sources)


@cache
def targets() -> Mapping[str, type[TargetSpec]]:
    """Return the targets that are installed, by their words in YAML."""
    return _by_word(kind for one in _installed() for kind in one.targets)


@cache
def _installed() -> tuple[Connector, ...]:
    loaded = (_load(point) for point in (*_ours(), *entry_points(group=GROUP)))
    return tuple(one for one in loaded if one is not None)


def _ours() -> Iterator[EntryPoint]:
    """Find ours by their files: metadata may be older than the source, or missing."""
    for module in iter_modules(import_module(GROUP).__path__):
        yield EntryPoint(module.name, f"{GROUP}.{module.name}:connector", GROUP)


def _load(point: EntryPoint) -> Connector | None:
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001 (flows that do not use it go on)
        _log.warning('connector "%s" (%s) cannot be loaded: %s', point.name, point.value, error)
        return None
    if isinstance(found, Connector):
        return found
    _log.warning('connector "%s" (%s) is %s', point.name, point.value, type(found).__name__)
    return None


def _by_word(kinds: Iterable[type[_Kind]]) -> Mapping[str, type[_Kind]]:
    found: dict[str, type[_Kind]] = {}
    for kind in kinds:
        other = found.setdefault(kind.word(), kind)
        if other is not kind:
            names = " and ".join(f"{one.__module__}.{one.__qualname__}" for one in (other, kind))
            msg = f'two connectors are called "{kind.word()}": {names}'
            raise InvalidOption(msg, hint="uninstall the package of one of them")
    return dict(sorted(found.items()))
