"""Flows in files, loaded as a user's are."""

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import millstream as ms
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan as plan_of

_HEAD = """\
import millstream as ms

flow = ms.Flow("f")
rows = flow.source("rows", ms.inbox("k string, v double, at timestamp"), time="at", key="k")
"""
_LIBRARY = """\
import functools

class Returned:
    def __init__(self, text):
        self.simpleString = lambda: text

def udf(returned):
    def wrap(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            return function(*arguments)
        wrapper.func = function
        wrapper.returnType = Returned(returned)
        wrapper.internal = object()
        return wrapper
    return wrap
"""
_numbers = itertools.count()


@pytest.fixture
def described(tmp_path, monkeypatch) -> Iterator[Callable[..., dict]]:
    """Return a function from the text of a flow, below its source, to the fingerprint of its group "out"."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "wrapping_library.py").write_text(_LIBRARY)
    sys.path.append(str(installed))

    def describe(text: str, *, head: str = "", helpers: str = "", group: str = "out") -> dict:
        # A folder each, so that no version sees another's compiled file.
        folder = tmp_path / f"v{next(_numbers)}"
        folder.mkdir()
        (folder / "helpers_of_test.py").write_text(textwrap.dedent(helpers))
        sys.modules.pop("helpers_of_test", None)
        sys.path.insert(0, str(folder))
        file = folder / "flow_of_test.py"
        file.write_text(textwrap.dedent(head) + _HEAD + textwrap.dedent(text))
        return fingerprint(plan_of(ms.load(file)), group)

    yield describe
    for name in set(sys.modules) - before:
        del sys.modules[name]
