"""Parts that the written forms of several kinds share: YAML entries and labels."""

from __future__ import annotations

from millstream.flow.stages.stage import Tree


def given(tree: Tree) -> Tree:
    """Return an entry without what was left out."""
    return {key: value for key, value in tree.items() if value is not None}


def columns(names: tuple[str, ...]) -> str | list[str]:
    """Return a column, or a list of several."""
    return names[0] if len(names) == 1 else list(names)


def end_of(path: str) -> str:
    """Return the last part of a path, which a picture has room for."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name if len(name) <= 28 else name[:25] + "..."
