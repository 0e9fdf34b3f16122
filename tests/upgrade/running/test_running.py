"""A run and a job of an earlier release go on: every result is there, and once."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from upgrade.running.archive import names, results, unpack
from upgrade.running.record import ENGINE, millstream, running, waiting

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SAVED = sorted(Path(__file__).parent.glob("saved_*.tar.xz"))
SENDER = ("--sender", "recording")


@pytest.fixture(params=SAVED, ids=[path.name.partition(".")[0] for path in SAVED])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(request.param, tmp_path)
    return tmp_path


def lines(saved: Path) -> list[str]:
    return (saved / "events.jsonl").read_text().splitlines()


def dead(folder: Path) -> list[str]:
    """Return the reasons of all dead letters of a run."""
    letters = millstream(folder, "journal", "cat", "every.events.dead")
    return [json.loads(line)["reason"] for line in letters.splitlines()]


def compare(saved: Path, folder: Path, flow: str) -> None:
    expected = json.loads((saved / "expected" / f"{flow}.json").read_text())
    found = results(folder)
    assert sorted(found) == sorted(expected)
    for sink, right in expected.items():
        missing, extra = (
            Counter(right) - Counter(found[sink]),
            Counter(found[sink]) - Counter(right),
        )
        assert right
        assert (missing, extra) == (Counter(), Counter()), sink


@pytest.mark.long
def test_a_run_goes_on_where_it_was_stopped(saved: Path) -> None:
    folder = saved / "run"
    known = names(folder)
    assert all(results(folder).values()), "it was stopped in the middle"
    assert dead(folder)
    # All of them again: what the journal has is known by its number.
    sent = json.loads(
        millstream(folder, "send", "every.events", *SENDER, "--end", "--json", lines=lines(saved))
    )
    assert 0 < sent["sent"] < len(lines(saved))
    assert sent["repeated"] > 0
    millstream(folder, "run", "every.py", "--until-end", "--rows-per-batch", "200")
    compare(saved, folder, "every")
    refused = [reason for reason in dead(folder) if reason != "late"]
    assert len(refused) == 1, "the bad record is there once"
    assert names(folder) - known == set()


@pytest.mark.long
def test_a_job_goes_on_in_the_middle_of_its_switch(saved: Path) -> None:
    folder = saved / "engine"
    known = names(folder)
    with running(folder, *ENGINE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]

        def job() -> dict[str, Any]:
            with urllib.request.urlopen(f"{url}/jobs/switched", timeout=600) as answer:
                found: dict[str, Any] = json.load(answer)
                return found

        begun = job()["switch"]
        assert (job()["version"], begun["version"], begun["state"]) == ("2", "3", "going on")
        send = ("send", "switched.events", "--engine", url, *SENDER)
        millstream(folder, *send, lines=lines(saved))
        waiting(lambda: job()["switch"]["state"] != "going on", "the switch")
        done = job()
        assert (done["version"], done["switch"]["state"]) == ("3", "done"), done["switch"]
        assert done["switch"]["cut"] == begun["cut"]
        drained = millstream(folder, "drain", "switched", "--flush", "--engine", url)
        assert drained == "switched has finished\n"
    compare(saved, folder, "switched")
    assert names(folder) - known == set()
