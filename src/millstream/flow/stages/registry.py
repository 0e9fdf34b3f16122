"""The known kinds of stages: ours, those of installed packages, and those that code registers."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from millstream.errors import DuplicateName, NotLoadable
from millstream.flow.stages.stage import Stage

#: Packages name their kinds here, `sample = "package.module:Sample"`, in their metadata.
GROUP = "millstream.stages"
_kinds: dict[str, type[Stage]] = {}
_Kind = TypeVar("_Kind", bound=type[Stage])


def register(kind: _Kind) -> _Kind:
    """Add a kind of stage, so that YAML files and stored fingerprints may name it; a decorator.

    Raises:
        DuplicateName: Another kind has its word, or one of its words in YAML.
    """
    for other in _kinds.values():
        taken = {kind.kind, *kind.yaml_words} & {other.kind, *other.yaml_words}
        # A flow that is loaded again defines its own kinds again.
        if taken and _path(other) != _path(kind):
            msg = f'stage kind "{_path(kind)}" has the word "{min(taken)}" of "{_path(other)}"'
            raise DuplicateName(msg, hint="give it another word")
    _kinds[kind.kind] = kind
    return kind


def kinds() -> dict[str, type[Stage]]:
    """Return all kinds by their words."""
    _load_installed()
    return dict(_kinds)


@cache
def _load_installed() -> None:
    from importlib.metadata import entry_points  # takes longer to load than this room

    for found in entry_points(group=GROUP):
        try:
            register(found.load())
        except (ImportError, AttributeError) as error:
            msg = f'stage kind "{found.name}" cannot be loaded from "{found.value}": {error}'
            raise NotLoadable(msg, hint="repair or remove the package that names it") from error


def _path(kind: type[Stage]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
