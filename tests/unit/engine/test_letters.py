"""Dead letters of jobs over HTTP, and the commands that ask for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.cli.app import app
from millstream.engine.access import token_book
from millstream.engine.access.permissions import May
from millstream.errors import LetterMissing, LetterRefused, MillstreamError, NotPermitted
from millstream.journal import DeadLetter, journal_at
from support.links import pairs, row
from support.served import Served, serving

DEAD = "/jobs/f/dead"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An engine whose job "f" has refused three rows, one of them for no reason that lasts."""
    with serving(tmp_path) as served:
        served.deploy()
        texts = [json.dumps(row(n), default=str) for n in (1, 2)]
        with journal_at(tmp_path / "f" / "journals" / "s").dead_letters() as dead:
            dead.put_all(
                DeadLetter("till", n, f"no row {n}", text) for n, text in enumerate([*texts, "?"])
            )
        yield served


def run(served: Served, *words: str, token: str | None = None, code: int = 0) -> Result:
    found = CliRunner().invoke(
        app,
        ["dead", *words, "--engine", served.server.url],
        env={"MILLSTREAM_TOKEN": token or served.server.token},
    )
    if isinstance(found.exception, MillstreamError):
        raise found.exception
    assert found.exit_code == code, found.output
    return found


def ids(served: Served) -> list[str]:
    return [one["id"] for one in served.http.get(DEAD).json()["letters"]]


def test_letters_come_in_pages(served: Served) -> None:
    page = served.http.get(DEAD, params={"limit": 2}).json()
    assert [one["reason"] for one in page["letters"]] == ["no row 0", "no row 1"]
    assert page["next"] == 2
    rest = served.http.get(DEAD, params={"limit": 2, "from": 2}).json()
    assert ([one["record"] for one in rest["letters"]], rest["next"]) == (["?"], None)
    assert served.http.get(DEAD, params={"journal": "x"}).json()["letters"] == []
    one = served.http.get(f"{DEAD}/{page['letters'][0]['id'][:10]}").json()
    assert one == page["letters"][0]
    assert (one["state"], one["kind"], one["stage"]) == ("waiting", "source", "s")


def test_letters_are_found_by_state_and_origin(served: Served) -> None:
    served.http.post("/jobs/f/discard", json={"ids": ids(served)[:2]})

    def reasons(**query: str | int) -> list[str]:
        page = served.http.get(DEAD, params=query).json()
        return [one["reason"] for one in page["letters"]]

    assert reasons() == ["no row 0", "no row 1", "no row 2"]
    assert reasons(state="waiting") == reasons(state="waiting", limit=1) == ["no row 2"]
    assert reasons(state="discarded", **{"from": 1}) == ["no row 1"]
    assert reasons(origin="till", state="waiting") == ["no row 2"]
    assert reasons(origin="scanner") == []


def test_letters_are_replayed_once_however_often_it_is_asked(served: Served) -> None:
    order = {"ids": ids(served)}
    answer = served.http.post("/jobs/f/replay", json=order).json()
    assert answer["replayed"] == ids(served)[:2]
    assert "malformed record" in answer["refused"][ids(served)[2]]
    again = served.http.post("/jobs/f/replay", json=order).json()
    assert again["replayed"] == []
    assert [n for _, n in pairs(served.data)] == [1, 2]


def test_edited_rows_are_all_replayed_or_none(served: Served) -> None:
    good, bad = json.loads(json.dumps(row(7), default=str)), {"origin": 7}
    rows = {ids(served)[0]: good, ids(served)[2]: bad}
    refused = served.http.post("/jobs/f/replay/edited", json={"rows": rows})
    assert refused.status_code == 409
    assert refused.json()["error"] == "LetterRefused"
    rows[ids(served)[2]] = {**good, "n": 8}
    assert (
        len(served.http.post("/jobs/f/replay/edited", json={"rows": rows}).json()["replayed"]) == 2
    )
    assert sorted(n for _, n in pairs(served.data)) == [7, 8]


def test_discarded_letters_wait_no_more(served: Served) -> None:
    order = {"ids": ids(served)[:1]}
    assert served.http.post("/jobs/f/discard", json=order).json() == {"discarded": 1}
    assert served.http.post("/jobs/f/discard", json=order).json() == {"discarded": 0}
    assert served.http.get(DEAD).json()["letters"][0]["state"] == "discarded"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{DEAD}/00000000", 404),
        (f"{DEAD}/x", 400),
        ("/jobs/g/dead", 404),
        (f"{DEAD}?limit=0", 400),
        (f"{DEAD}?state=lost", 400),
    ],
)
def test_what_is_not_there_is_refused(served: Served, path: str, status: int) -> None:
    assert served.http.get(path).status_code == status


def test_letters_need_a_token_even_here(served: Served) -> None:
    served.http.headers.pop("authorization")
    assert served.http.get(DEAD).status_code == 401
    assert served.http.get(f"{DEAD}/0").status_code == 401
    for what in ("replay", "replay/edited", "discard"):
        assert served.http.post(f"/jobs/f/{what}", json={}).status_code == 401


def test_replays_are_in_the_audit_log(served: Served) -> None:
    served.http.post("/jobs/f/replay", json={"ids": ids(served)[:1]})
    served.http.post("/jobs/f/discard", json={"ids": ids(served)[1:]})
    found = [one["what"] for one in served.http.get("/audit").json()]
    assert found[-2:] == ["replay", "discard"]


def test_commands_list_show_replay_edit_and_discard(served: Served, tmp_path: Path) -> None:
    assert run(served, "ls", "f").output.count("waiting") == 3
    first, second, third = ids(served)
    listed = run(served, "ls", "f", "--json", "--where", "n = 2").output.splitlines()
    assert [json.loads(line)["id"] for line in listed] == [second]
    assert '"origin": "k1"' in run(served, "show", "f", first[:8]).output
    done = run(served, "replay", "f", "--reason", "no row", "--json", code=1)
    assert json.loads(done.stdout)["replayed"] == [first, second]
    assert "no dead letters that fit" in run(served, "ls", "f", "--until", "2 hours ago").output
    file = tmp_path / "letters.jsonl"
    assert "wrote 1 letter" in run(served, "replay", "f", "--edit", str(file)).output
    line = json.loads(file.read_text())
    assert (line["id"], line["row"], line["record"]) == (third, None, "?")
    with pytest.raises(LetterRefused, match="line 1 has no row"):
        run(served, "replay", "f", "--edit", str(file))
    file.write_text(json.dumps({**line, "row": row(9)}, default=str))
    assert "replayed 1 letter" in run(served, "replay", "f", "--edit", str(file)).output
    assert sorted(n for _, n in pairs(served.data)) == [1, 2, 9]
    assert "--all shows 3 letters" in run(served, "ls", "f").output
    assert run(served, "ls", "f", "--all").output.count("replayed") == 3
    assert "discarded 3 letters" in run(served, "discard", "f", first, second, third).output
    with pytest.raises(LetterMissing):
        run(served, "show", "f", "0123456789")


def test_who_may_look_replays_nothing_and_who_may_operate_sends_no_rows_of_their_own(
    served: Served,
) -> None:
    look = token_book.create(served.data, "look", [May.LOOK], now=0.0)
    operate = token_book.create(served.data, "operate", [May.OPERATE], now=0.0)
    with pytest.raises(NotPermitted):
        run(served, "replay", "f", token=look)
    headers = {"Authorization": f"Bearer {operate}"}
    rows = {"rows": {ids(served)[0]: {}}}
    assert served.http.post("/jobs/f/replay/edited", json=rows, headers=headers).status_code == 403
    answer = served.http.post("/jobs/f/replay", json={"ids": ids(served)[:1]}, headers=headers)
    assert len(answer.json()["replayed"]) == 1
