"""Mistakes thrown at every public entry: each is an error of ours that names the mistake.

The tables beside this file have a line for what a user writes and one for the error. In `yaml.txt` a
part of a correct document is replaced. No error of Python, Arrow, Spark or sqlglot may come through.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream import errors
from millstream.cli import main
from millstream.plan.groups import plan

HERE = Path(__file__).parent
COLUMNS = "shop string, amount double, n int, at timestamp"
D = "shop string, item string, amount double, n int, ok boolean, at timestamp, day date"
YAML = f"""name: shops
sources:
  orders:
    inbox: {COLUMNS}
    time: at
    key: shop
stages:
  takings:
    from: orders
    window: 10 minutes
    by: shop
    aggregates: {{n: count(*)}}
sinks:
  takings:
    from: takings
    jsonl: out
"""
Mistake = tuple[str, str, str]


def table(name: str) -> list[Mistake]:
    """Return what is written, the kind of the error and a part of its text."""
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    found = [line.strip().partition(": ") for line in lines[1::2]]
    return [(code, kind, part) for code, (kind, _, part) in zip(lines[::2], found, strict=True)]


def check(mistake: Mistake, call: Callable[[], object]) -> errors.MillstreamError:
    _, kind, part = mistake
    with pytest.raises(errors.MillstreamError) as caught:
        call()
    error = caught.value
    assert type(error).__name__ == kind
    assert part in error.message
    text = "".join(traceback.format_exception_only(error))
    assert not re.search(r"object at 0x|pyarrow|pyspark|sqlglot|NoneType object", text)
    # Where it is, or what to do about it: most have both.
    assert error.hint or getattr(error, "where", None)
    return error


def names() -> dict[str, Any]:
    """Return what the lines of the table of Python use."""
    flow = ms.Flow("x")
    narrow = ms.inbox("shop string, at timestamp")
    begun = ms.Pattern().begin("a", "n > 1")
    return {
        "ms": ms,
        "D": D,
        "flow": flow,
        "o": flow.source("o", ms.inbox(D), time="at", key="shop"),
        "untimed": flow.source("untimed", ms.inbox(D)),
        "narrow": flow.source("narrow", narrow, time="at"),
        "other": ms.Flow("y").source("o", ms.inbox(D), time="at"),
        "A": lambda condition: ms.Pattern().begin("a", condition).within("1 hour"),
        "AB": lambda condition: (
            begun.followed_by("b", condition).followed_by("c", "n > 3").within("1 hour")
        ),
    }


@pytest.mark.parametrize("mistake", table("python"), ids=lambda mistake: mistake[0])
def test_a_mistake_in_python(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("not a flow")
    known = names()
    check(mistake, lambda: eval(mistake[0], known))


@pytest.mark.parametrize("mistake", table("yaml"), ids=lambda mistake: mistake[0])
def test_a_mistake_in_yaml(mistake: Mistake, tmp_path: Path) -> None:
    line = mistake[0].replace("{D}", COLUMNS).replace("\\n", "\n")
    right, wrong = line.split(" => ") if " => " in line else (line.removesuffix(" =>"), "")
    assert right in YAML
    file = tmp_path / "flow.yaml"
    file.write_text(YAML.replace(right, wrong, 1))
    error = check(mistake, lambda: plan(ms.load(file)))
    assert isinstance(error, errors.FlowError)
    assert error.where is not None
    assert error.where.file == str(file)


@pytest.mark.parametrize("mistake", table("sql"), ids=lambda mistake: mistake[0])
def test_a_mistake_in_sql(mistake: Mistake) -> None:
    flow = ms.Flow("x")
    flow.source("o", ms.inbox(COLUMNS), time="at", key="shop")
    check(mistake, lambda: flow.sql("q", mistake[0]))


FLOW = f"""
import millstream as ms
flow = ms.Flow("shops")
orders = flow.source("orders", ms.inbox("{COLUMNS}"), time="at", key="shop")
orders.window("takings", every="10 minutes", n="count(*)").sink("takings", ms.jsonl("out"))
"""
AWAY = "--engine http://127.0.0.1:9"
#: What is typed, the exit status and a part of what is printed.
TYPED = [
    ("nonsense", 2, "No such command 'nonsense'"),
    ("run", 2, "Missing argument 'FLOW'"),
    ("run missing.py", 1, 'there is no file "missing.py"'),
    ("run notes.txt", 1, '"notes.txt" is neither Python nor YAML'),
    ("run empty.py", 1, '"empty.py" holds no flow'),
    ("run empty.yaml", 1, '"empty.yaml" is empty'),
    ("run broken.py", 1, '"broken.py" failed with SyntaxError'),
    ("run failing.py", 1, '"failing.py" failed with ZeroDivisionError: division by zero'),
    ("run folder.py", 1, 'there is no file "folder.py"'),
    ("run flow.py --state disk", 2, 'expected "memory" or "rocksdb"'),
    ("run flow.py --port 99999", 2, "'--port'"),
    ("run flow.py --port many", 2, "'--port'"),
    ("run flow.py --rows-per-batch 0", 2, "'--rows-per-batch'"),
    ("run flow.py --network 300.1.", 1, "300.1."),
    ("run flow.py --network 10.255.255.", 1, "10.255.255."),
    ("run flow.py --key missing.key", 1, "missing.key"),
    ("run flow.py --until-the-end", 2, "No such option"),
    ("plan missing.yaml --quick", 1, 'there is no file "missing.yaml"'),
    ("plan flow.py --quick --svg nowhere/plan.svg", 1, "nowhere/plan.svg"),
    ("send", 2, "Missing argument"),
    ("send orders", 1, '"orders" does not name a source'),
    ("send shops.orders", 1, 'there is no inbox of "shops.orders"'),
    ("send shops.nothing --flow flow.py", 1, 'flow "shops" has no inbox "nothing"'),
    ("send shop.orders --flow flow.py", 1, 'holds flow "shops", not "shop"'),
    ("send shops.orders --to nowhere", 1, "nowhere"),
    (f"send shops.orders {AWAY}", 3, "http://127.0.0.1:9"),
    (f"jobs {AWAY}", 3, "http://127.0.0.1:9"),
    (f"status shops {AWAY}", 3, "http://127.0.0.1:9"),
    (f"deploy flow.py {AWAY}", 3, "http://127.0.0.1:9"),
    ("deploy missing.py", 1, 'there is no file "missing.py"'),
    ("jobs --engine nowhere", 1, "nowhere"),
    ("jobs --token-file missing", 1, "missing"),
    ("engine --node 2 --of 2", 1, "there is no node 2 of 2"),
    ("engine --host 0.0.0.0 --port 0", 1, "0.0.0.0"),
    ("engine --tls-cert missing.pem --port 0", 1, 'there is no file "missing.pem" for TLS'),
    ("journal cat shops.orders", 1, 'there is no journal "shops.orders"'),
    ("journal cat nothing", 1, 'there is no journal "nothing"'),
    ("journal verify shops.orders", 1, 'there is no journal "shops.orders"'),
    ("journal repair shops.orders", 1, 'there is no journal "shops.orders"'),
    ("journal read shops.orders", 2, "No such command 'read'"),
    ("checkpoint show shops.takings", 1, 'there is no checkpoint of a group "shops.takings"'),
    ("keys new a/b", 1, "a/b"),
    ("keys show missing", 1, "missing"),
    ("new 3shops", 2, '"3shops" is not one word'),
    ("scheme check missing.yaml", 1, "missing.yaml"),
    ("scheme check flow.py", 1, "flow.py"),
    ("actions add score missing", 1, "missing"),
]  # fmt: skip


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed[0])
def test_a_mistake_on_the_command_line(
    typed: tuple[str, int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line, status, part = typed
    monkeypatch.chdir(tmp_path)
    for name in ("MILLSTREAM_ENGINE", "MILLSTREAM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    contents = {
        "flow.py": FLOW,
        "notes.txt": "",
        "empty.py": "",
        "empty.yaml": "",
        "broken.py": "flow = (",
        "failing.py": "flow = 1 / 0",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "folder.py").mkdir()
    monkeypatch.setattr(sys, "argv", ["millstream", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capfd.readouterr()
    text = re.sub(r"[\s│]+", " ", printed.err)
    assert (ended.value.code, part in text) == (status, True), printed.err
    assert "Traceback" not in text
    assert status == 2 or printed.err.startswith("error: ")


def test_there_are_many() -> None:
    assert len(TYPED) + sum(len(table(name)) for name in ("python", "yaml", "sql")) > 300
