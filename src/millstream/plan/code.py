"""The source text of functions and classes, and its normal form.

A function is found in its file by the place of its code, so that a lambda among others is found
too. The text is kept as it was written; only when two versions are compared is it parsed, both by
the running Python, and brought to a form without comments, docstrings, formatting and positions.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

Found = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_LAMBDA = "<lambda>"


def function_text(code: CodeType) -> str | None:
    """Return the source of a function, None if its file is missing or not what was compiled."""
    text = _file_text(code.co_filename)
    if text is None:
        return None
    if code.co_name == _LAMBDA:
        return _lambda_text(code, text)
    named = [node for node in _definitions(text) if getattr(node, "name", "") == code.co_name]
    found = next((node for node in named if _first_line(node) == code.co_firstlineno), None)
    return None if found is None else _lines(text, found)


def class_text(filename: str, qualname: str) -> str | None:
    """Return the source of a class, None if its file is not there."""
    text = _file_text(filename)
    if text is None:
        return None
    found = [
        node
        for path, node in _paths(_parsed(text))
        if path == qualname and isinstance(node, ast.ClassDef)
    ]
    return _lines(text, found[-1]) if found else None


def normal(text: str) -> str:
    """Return the form that all layouts of one function or class share."""
    try:
        return ast.unparse(_bare(parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return text


def parse(text: str) -> ast.AST:
    """Return the syntax tree of a function, class or lambda, however far it was indented."""
    if text.startswith("lambda"):
        return ast.parse(f"({text}\n)", mode="eval").body
    # An "if" around it instead of taking off spaces, which would change strings of several lines.
    return ast.parse(f"if True:\n{text}" if text[:1].isspace() else text)


def chains(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names in a source text: ("helpers", "scale") for helpers.scale(x)."""
    for node in ast.walk(parse(text)):
        names: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            names.append(root.attr)
            root = root.value
        if names and isinstance(root, ast.Name):
            yield (root.id, *reversed(names))


def _bare(tree: ast.AST) -> ast.AST:
    """Return the tree without docstrings; the "if" around an indented one goes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = [part for part in node.body if not _text_only(part)] or [ast.Pass()]
        if isinstance(node, ast.Constant):
            node.kind = None
    if isinstance(tree, ast.Module) and len(tree.body) == 1 and isinstance(tree.body[0], ast.If):
        return ast.Module(tree.body[0].body, [])
    return tree


def _text_only(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _file_text(filename: str) -> str | None:
    linecache.checkcache(filename)
    return "".join(linecache.getlines(filename)) or None


@lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _definitions(text: str) -> list[Found]:
    return [node for node in ast.walk(_parsed(text)) if isinstance(node, Found)]


def _first_line(node: Found) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _lines(text: str, node: Found) -> str:
    return "".join(text.splitlines(keepends=True)[_first_line(node) - 1 : node.end_lineno])


def _lambda_text(code: CodeType, text: str) -> str | None:
    """Return the innermost lambda whose body holds all that the code was made of."""
    places = [place for place in code.co_positions() if None not in place and place[2:] != (0, 0)]
    around = [
        node
        for node in _definitions(text)
        if isinstance(node, ast.Lambda) and all(_within(place, node.body) for place in places)
    ]
    around = [node for node in around if node.lineno == code.co_firstlineno]
    found = min(around, key=_length, default=None)
    return None if found is None else ast.get_source_segment(text, found)


def _within(place: tuple[int | None, ...], node: ast.expr) -> bool:
    line, end_line, column, end_column = place
    assert line is not None
    assert end_line is not None
    assert column is not None
    assert end_column is not None
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return start <= (line, column) and (end_line, end_column) <= end


def _length(node: ast.Lambda) -> tuple[int, int]:
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _paths(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the definitions in a tree with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield above + node.name, node
            yield from _paths(node, f"{above}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield above + node.name, node
            yield from _paths(node, f"{above}{node.name}.<locals>.")
        else:
            yield from _paths(node, above)
