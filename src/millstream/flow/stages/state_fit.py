"""Whether the state of a stage fits a changed one, and what is done to each value: pure.

States are mappings of names to mappings of columns where a fold declares them. Otherwise the value
that states begin with shows their shape. The same columns fit, wider ones (int to bigint, float to
double), and more of them: an added one begins with its value in the new stage's `initial`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from millstream.flow.kept import Kept, conformed

_WIDER: Final = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))

#: The names that lead to an entry of a state.
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateFit:
    """How a state fits: `differences` stand in the way, `changes` do not, and are shown.

    `convert` is the user's function, to which nothing is refused. Without one, entries of a value
    are `dropped`, `renamed` (each to the name behind it) and `added`, in this order.
    """

    differences: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    added: tuple[tuple[Path, Any], ...] = ()
    convert: Callable[[Any], Any] | None = None
    #: What the new stage declares: a value that is changed has its columns.
    states: Kept = ()
    #: The kind itself makes the new state of the old one.
    remade: bool = False
    #: What a user can do about the differences, besides to lose all.
    ways: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.differences

    @property
    def as_it_is(self) -> bool:
        """Whether values stay what they are."""
        changed = self.renamed or self.dropped or self.added or self.remade
        return self.convert is None and not changed

    @property
    def appended(self) -> dict[str, Any] | None:
        """The entries that each value gets behind its own, if it is a mapping and that is all."""
        if self.as_it_is:
            return {}
        if self.convert is not None or self.renamed or self.dropped or self.states:
            return None
        if any(len(path) > 1 for path, _ in self.added):
            return None
        return {path[0]: default for path, default in self.added}

    def value(self, before: Any) -> Any:
        """Return the value that a key goes on with; the one before is not changed.

        Raises:
            ValueError: It does not have the columns that the new stage declares.
        """
        if self.as_it_is:
            return before
        after = self._renewed(before) if self.convert is None else self.convert(before)
        return conformed(self.states, after) if self.states else after

    def _renewed(self, before: Any) -> Any:
        if not isinstance(before, dict):
            return before
        names = dict(self.renamed)
        stays = {name: one for name, one in before.items() if name not in self.dropped}
        after = {names.get(name, name): one for name, one in stays.items()}
        for path, default in self.added:
            _put(after, path, default)
        return after


def _put(state: dict[str, Any], path: Path, default: Any) -> None:
    *above, last = path
    for name in above:
        inside = state.get(name, {})
        if not isinstance(inside, dict):
            return
        state[name] = dict(inside)  # that of the value before stays as it is
        state = state[name]
    if last not in state:
        state[last] = deepcopy(default)


def fit_of_columns(
    before: Kept,
    after: Kept,
    initial: Mapping[str, Any],
    renames: Mapping[str, str] | None = None,
    drops: Collection[str] = (),
) -> StateFit:
    """Return how declared states fit; `renames` are old names of states with their new ones."""
    named = {old: new for old, new in (renames or {}).items() if old in dict(before)}
    gone = tuple(name for name, _ in before if name in drops)
    known = {named.get(name, name): columns for name, columns in before if name not in gone}
    wanted = dict(after)
    differences, changes, added = [], [], list[tuple[Path, Any]]()
    for state, columns in known.items():
        if state not in wanted:
            differences.append(f'state "{state}" would be gone')
            continue
        for name, old, new in _both(columns, wanted[state]):
            where = f'column "{state}.{name}"'
            if new is None:
                differences.append(f"{where} would be gone")
            elif old is None:
                default = initial.get(state, {}).get(name)
                added.append(((state, name), default))
                changes.append(f"{where} is new, and begins as {default!r}")
            elif old != new and wider(old, new):
                changes.append(f"{where} was {old}, and is {new}")
            elif old != new:
                differences.append(f"{where} is {old}, and would be {new}")
    for state in wanted.keys() - known.keys():
        added.append(((state,), initial.get(state)))
        changes.append(f'state "{state}" is new')
    changes += [f'state "{old}" is called "{new}" now' for old, new in named.items()]
    changes += [f'state "{name}" is dropped' for name in gone]
    moved = tuple((old, new) for old, new in named.items() if old not in gone)
    return StateFit(tuple(differences), tuple(changes), moved, gone, tuple(added), states=after)


def _both(
    old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, str | None, str | None]]:
    before, after = dict(old), dict(new)
    for name in dict.fromkeys((*before, *after)):
        yield name, before.get(name), after.get(name)


def wider(old: str, new: str) -> bool:
    """Tell whether every value of a type is one of another.

    Example:
        >>> wider("int", "bigint"), wider("bigint", "int"), wider("float", "double")
        (True, False, True)
    """
    return any(
        old in chain and new in chain and chain.index(old) <= chain.index(new) for chain in _WIDER
    )


def fit_of_values(before: Any, after: Any) -> StateFit:
    """Return how states fit that begin with these values; None has any shape."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if _alike(before, after):
            return StateFit()
        return StateFit((f"a state began as {before!r}, and would as {after!r}",))
    differences: list[str] = []
    added: list[tuple[Path, Any]] = []
    _compare((), before, after, differences, added)
    changes = tuple(f'"{".".join(path)}" is new, and begins as {one!r}' for path, one in added)
    return StateFit(tuple(differences), changes, added=tuple(added))


def _compare(
    above: Path,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    differences: list[str],
    added: list[tuple[Path, Any]],
) -> None:
    for name in dict.fromkeys((*before, *after)):
        path = (*above, str(name))
        if name not in after:
            differences.append(f'"{".".join(path)}" would be gone')
        elif name not in before:
            added.append((path, after[name]))
        elif isinstance(before[name], dict) and isinstance(after[name], dict):
            _compare(path, before[name], after[name], differences, added)
        elif not _alike(before[name], after[name]):
            was = f"began as {before[name]!r}, and would as {after[name]!r}"
            differences.append(f'"{".".join(path)}" {was}')


def _alike(old: object, new: object) -> bool:
    if old is None or new is None:
        return True
    if isinstance(old, bool) or isinstance(new, bool):
        return type(old) is type(new)
    return type(old) is type(new) or (isinstance(old, int | float) and isinstance(new, int | float))
