"""The SDKs of all languages, as `make sdk` checks them; and that nobody needs one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from millstream.actions.frames import encode_all
from support.actions import SDK

_spec = importlib.util.spec_from_file_location("sdk_check", SDK / "check.py")
assert _spec is not None
assert _spec.loader is not None
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)

SLOW = {"go", "rust", "java", "typescript"}


@pytest.mark.parametrize(
    "language",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in check.LANGUAGES
    ],
)
def test_an_sdk_answers_as_all_others_do(language):
    check.BUILT.mkdir(exist_ok=True)
    try:
        check.check(check.LANGUAGES[language]())
    except check.Missing as missing:
        pytest.skip(f"cannot here: {missing}")


def test_a_wrong_answer_is_found_out(tmp_path):
    liar = tmp_path / "liar.py"
    liar.write_text("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[:-1])")
    with pytest.raises(AssertionError, match="all vectors"):
        check.check([sys.executable, "-S", str(liar)])


def test_a_shell_script_is_an_action():
    payloads = [b"abc", b"", b"\x00\n\\%\xff", bytes(range(256))]
    data = encode_all(payloads)
    done = subprocess.run(
        ["sh", str(SDK / "shell" / "echo.sh")], input=data, capture_output=True, check=True
    )
    assert done.stdout == data
    torn = subprocess.run(
        ["sh", str(SDK / "shell" / "echo.sh")], input=data[:-1], capture_output=True, check=False
    )
    assert torn.returncode == 1
