"""Programs as stages of flows, on Spark."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import millstream as ms
from millstream.errors import GroupChanged, InvalidOption
from millstream.spark.flow_run import FlowRun, Options
from millstream.testing import flow_test
from millstream.testing.under_test import batch_of
from support.actions import PYTHON, SDK, marked, running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BEGIN = datetime(2026, 3, 8, 14, tzinfo=UTC)
HEAD = f"""#!{PYTHON} -S
import json, os, sys, time
sys.path.insert(0, {str(SDK / "python")!r})
import millstream_action as action
"""


def row(n: int, word: str = "x") -> dict[str, Any]:
    return {"n": n, "word": word, "at": BEGIN + timedelta(seconds=n)}


def numbers() -> ms.Stream:
    return ms.Flow("words").source(
        "numbers", ms.inbox("n bigint, word string, at timestamp"), time="at"
    )


def program(folder: Path, name: str, code: str) -> str:
    file = folder / name
    file.write_text(HEAD + code)
    file.chmod(0o755)
    return str(file)


def results(
    stream: ms.Stream, rows: list[dict[str, Any]], sink: str = "out"
) -> tuple[list[dict[str, Any]], Any]:
    stream.sink(sink, ms.memory())
    with flow_test(stream.flow) as t:
        t.send("numbers", rows)
        t.end()
        return sorted(t.results(sink), key=lambda r: (r["at"], str(r))), t.dead_letters("numbers")


DOUBLE = """
while (m := action.read_message()) is not None:
    row = json.loads(m)
    if row["n"] % 3 == 0:
        action.ack_message()
    else:
        action.write_message(json.dumps({"twice": row["n"] * 2, "said": sys.argv[1] + row["word"], "word": "new"}, indent=1).encode())
"""


def test_json_answers_become_columns_and_rows_without_answer_are_left_out(tmp_path):
    double = program(tmp_path, "double", DOUBLE)
    stream = numbers().action(
        "double", [double, "> $HOME "], output="twice bigint, said string, word string"
    )
    assert stream.columns == ("n", "at", "twice", "said", "word")
    found, dead = results(stream, [row(n, f"w{n}") for n in range(10)])
    assert [r["n"] for r in found] == [1, 2, 4, 5, 7, 8]
    assert [r["twice"] for r in found] == [2, 4, 8, 10, 14, 16]
    assert found[0]["said"] == "> $HOME w1"
    assert (found[0]["word"], found[0]["at"]) == ("new", BEGIN + timedelta(seconds=1))
    assert dead == []


def test_a_window_counts_what_a_program_splits(tmp_path):
    split = program(
        tmp_path,
        "split",
        """
while (m := action.read_message()) is not None:
    for part in json.loads(m)["word"].split():
        action.write_message(json.dumps({"part": part}).encode())
    action.ack_message()
""",
    )
    parts = numbers().action(
        "split", [split], input="word", output="part string", contract="stream"
    )
    counted = parts.window("counted", every="1 minute", by="part", times="count(*)")
    counted.sink("counted", ms.memory())
    with flow_test(counted.flow) as t:
        t.send("numbers", [row(0, "to be or"), row(1, "not to be"), row(2, "")])
        t.end()
        assert {r["part"]: r["times"] for r in t.results("counted")} == {
            "to": 2,
            "be": 2,
            "or": 1,
            "not": 1,
        }


def test_a_row_that_the_program_dies_of_is_a_dead_letter_alone(tmp_path):
    code = """
while (m := action.read_message()) is not None:
    row = json.loads(m)
    if row["word"] == "die":
        sys.stderr.write("no such word\\n"); os._exit(3)
    if row["word"] == "wrong":
        action.write_message(b'{"twice": "many"}')
    else:
        action.write_message(json.dumps({"twice": row["n"] * 2}).encode())
"""
    double = program(tmp_path, "double", code)
    stream = numbers().action("double", [double], output="twice bigint", attempts=2)
    words = {7: "die", 11: "wrong"}
    found, dead = results(stream, [row(n, words.get(n, "x")) for n in range(30)])
    assert [r["n"] for r in found] == [n for n in range(30) if n not in words]
    reasons = sorted(letter["reason"] for letter in dead)
    assert len(reasons) == 2
    assert "ended with code 3" in reasons[1]
    assert "no such word" in reasons[1]
    assert "its answer is not what output= says" in reasons[0]


def test_raw_bytes_go_through_as_they_are(tmp_path):
    upper = program(
        tmp_path,
        "upper",
        """
while (m := action.read_message()) is not None:
    action.write_message(m.upper())
""",
    )
    stream = numbers().action("upper", [upper], input="word", output="loud string", format="raw")
    found, _ = results(stream, [row(n, f"ä{n}") for n in range(5)])
    assert [r["loud"] for r in found] == [f"ä{n}" for n in range(5)]


def test_messagepack_and_the_environment(tmp_path):
    code = """
while (m := action.read_message()) is not None:
    assert m[:3] == b"\\x81\\xa1n"
    n = m[-1]
    text = os.environ["SAY"].encode()
    action.write_message(b"\\x82\\xa1a" + bytes([n]) + b"\\xa1b" + bytes([0xa0 + len(text)]) + text)
"""
    pack = program(tmp_path, "pack", code)
    stream = numbers().action(
        "pack", [pack], input="n", output="a int, b string", format="msgpack", env={"SAY": "hi"}
    )
    found, _ = results(stream, [row(n) for n in range(5)])
    assert [(r["a"], r["b"]) for r in found] == [(n, "hi") for n in range(5)]


def test_arrow_batches_row_for_row_and_by_row_numbers(tmp_path):
    code = """
import pyarrow as pa
while (m := action.read_message()) is not None:
    table = pa.ipc.open_stream(m).read_all()
    ns = table.column("n").to_pylist()
    if 13 in ns:
        os._exit(1)
    rows = [i for i, n in enumerate(ns) if n % 2]
    out = pa.table({"_row": rows, "half": [ns[i] / 2 for i in rows]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, out.schema) as writer:
        writer.write_table(out)
    action.write_message(sink.getvalue().to_pybytes())
"""
    file = Path(program(tmp_path, "half", code))
    file.write_text(file.read_text().replace(" -S\n", "\n", 1))
    stream = numbers().action(
        "half", [str(file)], input="n", output="half double", format="arrow", attempts=1
    )
    found, dead = results(stream, [row(n) for n in range(20)])
    assert [(r["n"], r["half"]) for r in found] == [(n, n / 2) for n in range(1, 20, 2) if n != 13]
    assert len(dead) == 1


def test_a_program_of_the_flow_is_shipped_with_its_files_and_kept_between_batches(
    tmp_path, monkeypatch
):
    program(
        tmp_path,
        "score",
        """
model, life = open("models/m.txt").read(), int.from_bytes(os.urandom(6), "big")
while (m := action.read_message()) is not None:
    action.write_message(json.dumps({"life": life, "model": model, "cwd": os.getcwd()}).encode())
""",
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.txt").write_text("7")
    (tmp_path / "flow.yaml").write_text(
        """
name: words
sources:
  numbers: {inbox: "n bigint, word string, at timestamp", time: at}
stages:
  scored:
    from: numbers
    action: [./score]
    input: [n, word]
    output: life bigint, model string, cwd string
    files: models/m.txt
sinks:
  out: {from: scored, memory: }
"""
    )
    with flow_test(tmp_path / "flow.yaml") as t:
        for n in range(3):
            t.send("numbers", [row(n)])
            t.advance_to(BEGIN + timedelta(seconds=n))
        t.end()
        found = t.results("out")
        assert len({r["life"] for r in found}) <= 2
        assert {r["model"] for r in found} == {"7"}
        assert str(tmp_path) not in {r["cwd"] for r in found}


VERSION = """
while (m := action.read_message()) is not None:
    action.write_message(json.dumps({"version": %d}).encode())
"""


def test_a_program_that_an_engine_keeps_is_shipped_and_another_is_another_group(spark, tmp_path):
    binaries = {}
    for number in (1, 2):
        # As an engine keeps it: by its hash, of which nothing is to be seen in the program's
        # folder.
        binaries[number] = {
            "score@latest": Path(program(tmp_path, f"{number:064x}", VERSION % number))
        }
        binaries[number]["score@latest"].chmod(0o555)

    def run(number: int | None) -> list[dict[str, Any]]:
        stream = numbers().action("scored", ["score@latest"], output="version int")
        stream.sink("out", ms.memory())
        options = Options(tmp_path / "data", tmp_path, binaries=binaries.get(number, {}))
        running = FlowRun(spark, stream.flow, options)
        running.start()
        try:
            running.host.inbox("numbers").enqueue(
                str(number), range(3), batch_of([row(n) for n in range(3)], stage)
            )
            while not running.caught_up():
                time.sleep(0.05)
            return running.memory["out"].rows()
        finally:
            running.stop()

    stage = numbers().flow.stages["numbers"]
    with pytest.raises(
        InvalidOption, match='stage "scored" of flow "words" runs "score@latest", which is not here'
    ):
        run(None)
    assert [r["version"] for r in run(1)] == [1, 1, 1]
    with pytest.raises(GroupChanged, match='"score@latest": its content has changed'):
        run(2)


def test_a_program_that_is_killed_changes_nothing(tmp_path):
    slow = program(
        tmp_path,
        "slow",
        """
while (m := action.read_message()) is not None:
    time.sleep(0.02)
    action.write_message(json.dumps({"twice": 2 * json.loads(m)["n"]}).encode())
""",
    )
    stream = numbers().action("slow", [slow, marker := marked()], output="twice bigint")
    stream.sink("out", ms.memory())
    killed: set[int] = set()
    with flow_test(stream.flow) as t:
        t.send("numbers", [row(n) for n in range(150)])
        killer = threading.Thread(target=_kill_twice, args=(marker, killed))
        killer.start()
        t.end()
        killer.join()
        found = sorted(t.results("out"), key=lambda r: r["n"])
    assert [(r["n"], r["twice"]) for r in found] == [(n, 2 * n) for n in range(150)]
    assert len(killed) == 2


def _kill_twice(marker: str, killed: set[int]) -> None:
    until = time.monotonic() + 240
    while len(killed) < 2 and time.monotonic() < until:
        # What has no children is the program, not its launcher.
        for one in running(marker):
            with suppress(psutil.Error):
                if one.pid not in killed and not one.children():
                    time.sleep(0.3)
                    one.kill()
                    killed.add(one.pid)
        time.sleep(0.05)
