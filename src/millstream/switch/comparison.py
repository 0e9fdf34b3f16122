"""What a shadow has found: how the results of two versions compare, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from millstream.switch.changes import Change

Kind = Literal["missing", "extra", "different"]
KINDS: Final[tuple[Kind, ...]] = ("missing", "extra", "different")
_HEAD: Final = ("sink", "equal", "missing", "extra", "different", "waiting")


class Example(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result that is not the same in both versions, as each of them has it."""

    kind: Kind
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


class Compared(msgspec.Struct, frozen=True):
    """How the results of one output compare.

    missing: the old version alone has it; extra: the new one alone; different: both have it, with
    other values. What is `waiting` is not complete in both versions yet. Outputs that only one
    version has are not compared, only counted. `by` are the columns by which results are paired,
    beside their start, whose column is `start` if they have one. Columns that one version alone has
    do not count.
    """

    name: str
    change: Change
    equal: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    waiting: int = 0
    by: tuple[str, ...] = ()
    start: str | None = None
    columns_gone: tuple[str, ...] = ()
    columns_new: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    @property
    def counted(self) -> int:
        if self.change is Change.REPLACED:
            return self.equal + self.missing + self.extra + self.different
        return 0

    @property
    def same(self) -> bool:
        return self.counted == self.equal or self.change is not Change.REPLACED


class Comparison(msgspec.Struct, frozen=True):
    """How two versions compare, in results that start from `since` on and before `until`, in UTC.

    `left_out` are the groups that cannot run in the shadow. `dead_letters` are those that the new
    version would have made. `broken` says why the shadow ended before it was meant to.
    """

    since: str | None = None
    until: str | None = None
    outputs: tuple[Compared, ...] = ()
    left_out: tuple[str, ...] = ()
    dead_letters: int = 0
    broken: str | None = None

    @property
    def counted(self) -> int:
        """How many results were compared."""
        return sum(one.counted for one in self.outputs)

    @property
    def same(self) -> bool:
        """Whether no result that was compared is missing, extra or different."""
        return all(one.same for one in self.outputs)


# as text


def table(found: Comparison) -> str:
    """Return how two versions compare, a line for each output, and some examples.

     sink    equal  missing  extra  different  waiting
     hourly    118        0      1          2        4
    compared: results that start from 2026-01-01T12:00:00Z on, before 2026-01-01T13:00:00Z
    hourly different: shop=a window_start=2026-01-01T12:00:00Z  amount 10.0 -> 12.0
    """
    rows = [_HEAD, *(_row(one) for one in found.outputs)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [
        " "
        + "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join([*lines, *_sentences(found)])


def _row(one: Compared) -> tuple[str, ...]:
    numbers = (one.equal, one.missing, one.extra, one.different, one.waiting)
    match one.change:
        case Change.NEW:
            return one.name, "", "", f"{one.extra}", "", ""
        case Change.REMOVED:
            return one.name, *[""] * len(numbers)
    return one.name, *map(str, numbers)


def _sentences(found: Comparison) -> Iterator[str]:
    if found.since is None:
        yield "nothing was compared: the new version had not begun"
    elif not found.counted:
        yield f"nothing was compared: no result that starts from {found.since} on is complete in both versions"
    else:
        until = "" if found.until is None else f", before {found.until}"
        yield f"compared: results that start from {found.since} on{until}"
    for one in found.outputs:
        yield from _remarks(one)
    if found.left_out:
        yield f"not in the shadow: {', '.join(found.left_out)}, whose state is handed over in a switch"
    if found.broken is not None:
        yield f"the shadow broke off: {found.broken}"
    if found.dead_letters:
        yield f"the new version would have made {found.dead_letters} dead letters"
    for one in found.outputs:
        for example in one.examples:
            yield f"{one.name} {example.kind}: {_shown(example, (*one.by, one.start))}"


def _remarks(one: Compared) -> Iterator[str]:
    if one.change is not Change.REPLACED:
        yield f"{one.name} is {one.change}: there is nothing to compare it with"
    for columns, what in ((one.columns_gone, "gone"), (one.columns_new, "new")):
        if columns:
            yield f"{one.name}: {', '.join(columns)} {'is' if len(columns) == 1 else 'are'} {what}, and not compared"


def _shown(example: Example, by: tuple[str | None, ...]) -> str:
    old, new = example.old, example.new
    if old is None or new is None:
        return _values(new or old or {})
    changed = [name for name in old if name in new and old[name] != new[name]]
    # What tells which result it is, and what is not the same.
    told = {name: value for name, value in old.items() if name not in changed and name in by}
    return "  ".join([*([_values(told)] if told else []), *_arrows(old, new, changed)])


def _values(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items())


def _arrows(old: Mapping[str, Any], new: Mapping[str, Any], names: list[str]) -> list[str]:
    return [f"{name} {old[name]} -> {new[name]}" for name in names]
