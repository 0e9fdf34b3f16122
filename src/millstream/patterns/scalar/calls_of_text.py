"""Functions of text, and patterns in text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from sqlglot import exp

from millstream.patterns.history import Value
from millstream.patterns.scalar.calling import arguments, constant, given, strict
from millstream.patterns.scalar.codes import Build, Code, Writer

#: What regular expressions mean otherwise in Java, or not at all in Python.
_FOREIGN: Final = re.compile(r"\\[ZzGhHRXQEpPkNvV]|&&|\[\[|\(\?P")


def _cut(writer: Writer, tree: exp.Trim) -> Code:
    """Return TRIM, LTRIM or RTRIM of spaces, or of any of the characters of a text."""
    side = (tree.args.get("position") or "BOTH").upper()
    strip = {"LEADING": str.lstrip, "TRAILING": str.rstrip, "BOTH": str.strip}[side]
    text = given(writer, writer.code(tree.this), "string", tree)
    characters = tree.args.get("expression")
    those = writer.literal(" ", "string") if characters is None else writer.code(characters)
    return writer.call(strip, "string", text, those)


def part(text: str, start: int, length: int = 2**31 - 1) -> str:
    """Return a part of a text; its start is counted from 1, or from the end."""
    first = start - 1 if start > 0 else start and len(text) + start
    return text[max(first, 0) : max(first + length, 0)]


def left(text: str, length: int) -> str:
    return text[: max(length, 0)]


def right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def concatenated(*texts: str) -> str:
    return "".join(texts)


def _joined(writer: Writer, tree: exp.ConcatWs) -> Code:
    """Return CONCAT_WS, which leaves nulls out."""
    between, *others = (
        given(writer, code, "string", tree) for code in writer.codes(tree.expressions)
    )
    values = ", ".join((between.source, *(one.value for one in others)))
    return Code(f"{writer.name(joined)}({values})", "string", between.when)


def joined(between: str, *texts: str | None) -> str:
    return between.join(text for text in texts if text is not None)


def place_of(text: str, wanted: str, start: int = 1) -> int:
    """Return where a text stands in another, counted from 1; 0 if it does not."""
    return text.find(wanted, start - 1) + 1 if start > 0 else 0


def replaced(text: str, old: str, new: str = "") -> str:
    return text.replace(old, new) if old else text


def _padded(writer: Writer, tree: exp.Pad) -> Code:
    front = bool(tree.args.get("is_left"))

    def padded(text: str, length: int, fill: str = " ") -> str:
        missing = max(length, 0) - len(text)
        if missing <= 0 or not fill:
            return text[: max(length, 0)]
        filling = (fill * (missing // len(fill) + 1))[:missing]
        return filling + text if front else text + filling

    return strict(padded, "string", "string", "int", "string", least=2)(writer, tree)


def repeated(text: str, times: int) -> str:
    return text * max(times, 0)


# LIKE and RLIKE


def _like(writer: Writer, tree: exp.Expr) -> Code:
    return _matching(writer, tree, "\\")


def _escaped(writer: Writer, tree: exp.Escape) -> Code:
    escape = constant(writer, tree.expression, tree)
    if not isinstance(escape, str) or len(escape) != 1:
        raise writer.refused(tree, "has an ESCAPE that is not one character")
    if not isinstance(tree.this, exp.Like | exp.ILike):
        raise writer.refused(tree)
    return _matching(writer, tree.this, escape)


def _matching(writer: Writer, tree: exp.Expr, escape: str) -> Code:
    if not isinstance(tree.expression, exp.Expr) or isinstance(tree.expression, exp.Any | exp.All):
        raise writer.refused(tree)
    text, pattern = (given(writer, code, "string", tree) for code in writer.codes(arguments(tree)))
    ignoring = isinstance(tree, exp.ILike)
    if pattern.literal:
        try:
            matches = like(pattern.of, escape, ignoring)
        except ValueError as error:
            raise writer.refused(tree, str(error)) from None
        found = Code(f"({writer.name(matches)}({text.source}) is not None)", "boolean", text.when)
    else:

        def matched(value: str, wanted: str) -> bool:
            return like(wanted, escape, ignoring)(value) is not None

        found = writer.call(matched, "boolean", text, pattern)
    return _negated(found, tree)


def _negated(code: Code, tree: exp.Expr) -> Code:
    negates = tree.args.get("negate")
    return Code(f"(not {code.source})", "boolean", code.when) if negates else code


@lru_cache(maxsize=1024)
def like(pattern: str, escape: str, ignoring: bool) -> Callable[[str], Value]:
    """Return what tells whether a text is like a pattern: % is any text, _ any character."""
    found, characters = [], iter(pattern)
    for one in characters:
        if one == escape:
            literal = next(characters, None)
            if literal is None or literal not in ("%", "_", escape):
                raise ValueError(f'has "{escape}" before nothing that it could escape')
            found.append(re.escape(literal))
        else:
            found.append({"%": ".*", "_": "."}.get(one) or re.escape(one))
    flags = re.DOTALL | (re.IGNORECASE if ignoring else re.NOFLAG)
    return re.compile("".join(found), flags).fullmatch


def _regular(writer: Writer, tree: exp.RegexpLike) -> Code:
    if tree.args.get("flag") is not None:
        raise writer.refused(tree)
    text = given(writer, writer.code(tree.this), "string", tree)
    pattern = constant(writer, tree.expression, tree)
    if pattern is None:
        return Code("None", "boolean", ("False",))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search = re.compile(pattern, re.ASCII).search
    except (re.error, FutureWarning) as error:
        raise writer.refused(
            tree, f"has a regular expression that Python cannot read ({error})"
        ) from None
    if _FOREIGN.search(pattern):
        raise writer.refused(tree, "has a regular expression that means something else in Java")
    found = Code(f"({writer.name(search)}({text.source}) is not None)", "boolean", text.when)
    return _negated(found, tree)


TEXT_CALLS: Final[dict[type[exp.Expr], Build]] = {
    exp.Lower: strict(str.lower, "string", "string"),
    exp.Upper: strict(str.upper, "string", "string"),
    exp.Length: strict(len, "int", "string"),
    exp.Trim: _cut,
    exp.Substring: strict(part, "string", "string", "int"),
    exp.Left: strict(left, "string", "string", "int"),
    exp.Right: strict(right, "string", "string", "int"),
    exp.Concat: strict(concatenated, "string", "string"),
    exp.DPipe: strict(concatenated, "string", "string"),
    exp.ConcatWs: _joined,
    exp.Contains: strict(str.__contains__, "boolean", "string", "string"),
    exp.StartsWith: strict(str.startswith, "boolean", "string", "string"),
    exp.EndsWith: strict(str.endswith, "boolean", "string", "string"),
    exp.Replace: strict(replaced, "string", "string", "string"),
    exp.StrPosition: strict(place_of, "int", "string", "string", "int", least=2),
    exp.Reverse: strict(lambda text: text[::-1], "string", "string"),
    exp.Repeat: strict(repeated, "string", "string", "int"),
    exp.Pad: _padded,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escaped,
    exp.RegexpLike: _regular,
}
