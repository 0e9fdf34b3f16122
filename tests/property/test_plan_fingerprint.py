"""Fingerprints of random functions: layout never counts, meaning always does."""

import ast
import itertools
import random
import sys
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.plan.fingerprint import difference, digest, fingerprint
from millstream.plan.groups import plan as plan_of

_numbers = itertools.count()
OPERATORS = ["+", "-", "*", "//"]


@st.composite
def expressions(draw, names=("state", "row['v']", "LIMIT", "factor", "helper(state)", "nested(2)")):
    parts = [
        draw(st.sampled_from(names) | st.integers(0, 99).map(str))
        for _ in range(draw(st.integers(1, 4)))
    ]
    text = parts[0]
    for part in parts[1:]:
        text = f"({text} {draw(st.sampled_from(OPERATORS))} {part})"
    return text


@st.composite
def programs(draw):
    """Return the parts of a module with a fold: a limit, a helper, a closure and a step."""
    return {
        "limit": draw(st.integers(0, 50)),
        "factor": draw(st.integers(0, 50)),
        "helper": draw(expressions(names=("x", "LIMIT"))),
        "body": draw(expressions()),
        "condition": draw(st.sampled_from(["<", ">", "==", "!="])),
    }


def written(parts: dict, style: random.Random | None = None) -> str:
    """Return the module; with a style, laid out at random."""
    text = f"""
LIMIT = {parts["limit"]}

def helper(x):
    return {parts["helper"]}

def make(factor):
    def nested(n):
        return n * factor
    def step(state, row):
        if row["v"] {parts["condition"]} LIMIT + helper(1):
            return {parts["body"]} + nested(factor), None
        return state, {{"at": row["at"]}}
    return step
"""
    return text if style is None else laid_out(text, style)


def laid_out(text: str, style: random.Random) -> str:
    """Return the same program with other lines, comments, docstrings and spaces."""
    lines = []
    for line in text.splitlines():
        lines += [""] * style.randrange(2)
        indent = " " * (len(line) - len(line.lstrip()))
        if line.strip() and style.random() < 0.5:
            lines.append(
                f"{indent}# {style.random()}" if not line.strip().startswith("else") else ""
            )
        lines.append(line + ("  # so" if line.strip() and style.random() < 0.3 else ""))
        if line.strip().startswith("def ") and style.random() < 0.5:
            lines.append(f'{indent}    """Says {style.random()}."""')
    other = "\n".join(lines)
    return ast.unparse(ast.parse(other)) if style.random() < 0.3 else other


def described(text: str, factor: int) -> dict:
    source = f"""
import millstream as ms
{text}
flow = ms.Flow("f")
rows = flow.source("rows", ms.inbox("k string, v double, at timestamp"), time="at", key="k")
rows.fold("total", make({factor}), initial=0, output="at timestamp").sink("out", ms.memory())
rows.window("w", every="1 h", n="count(*)").sink("other", ms.memory())
"""
    with tempfile.TemporaryDirectory() as folder:
        name = f"random_flow_{next(_numbers)}"
        file = Path(folder) / f"{name}.py"
        file.write_text(source)
        try:
            return fingerprint(plan_of(ms.load(file)), "out")
        finally:
            sys.modules.pop(name, None)
            sys.path[:] = [path for path in sys.path if not path.startswith(folder)]


@settings(max_examples=40)
@given(programs(), st.integers(0, 2**32))
def test_another_layout_is_the_same_function(parts, seed):
    one = described(written(parts), parts["factor"])
    other = described(written(parts, random.Random(seed)), parts["factor"])
    assert difference(one, other) == []
    assert digest(one) == digest(other)


@settings(max_examples=40)
@given(programs(), st.data())
def test_another_constant_closure_global_or_helper_is_another_function(parts, data):
    key = data.draw(st.sampled_from(sorted(parts)))
    changed = dict(parts)
    if isinstance(parts[key], int):
        changed[key] = parts[key] + data.draw(st.integers(1, 9))
    elif key == "condition":
        changed[key] = data.draw(
            st.sampled_from([one for one in ("<", ">", "==", "!=") if one != parts[key]])
        )
    else:
        changed[key] = f"({parts[key]} + {data.draw(st.integers(1, 9))})"
    one, other = (
        described(written(parts), parts["factor"]),
        described(written(changed), changed["factor"]),
    )
    assert difference(one, other)
    assert digest(one) != digest(other)
