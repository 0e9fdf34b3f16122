from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Comparison, Example
from millstream.switch.progress import SwitchProgress, SwitchStep
from support.served import PACKAGE, Served

BAD = base64.b64encode(b"bad").decode()


@pytest.fixture(autouse=True)
def deployed(served: Served) -> None:
    served.deploy()


def test_a_switch_is_asked_for_and_the_status_of_the_job_tells_how_it_goes(served: Served) -> None:
    assert served.http.get("/jobs/f").json()["switch"] is None
    asked = served.http.post(
        "/jobs/f/switch",
        json={"package": PACKAGE, "limit": 30, "consent": ["a"], "since": "2026-01-01T10:00:00Z"},
    )
    assert asked.status_code == 202
    assert (asked.json()["switch"]["state"], asked.json()["version"]) == ("asked", "1")
    assert served.engine.wanted is not None
    assert (served.engine.wanted.timeout, served.engine.wanted.consent) == (
        timedelta(seconds=30),
        ("a",),
    )
    assert served.engine.wanted.since == datetime(2026, 1, 1, 10, tzinfo=UTC)
    steps = (SwitchStep(1_767_268_801.0, "overlapping", "cut"),)
    served.engine.reported(
        "f",
        SwitchProgress("2", "overlapping", cut_us=1_767_268_800_000_000, left_s=4.0, steps=steps),
    )
    going = served.http.get("/jobs/f").json()["switch"]
    assert (going["phase"], going["cut"], going["left_s"]) == (
        "overlapping",
        "2026-01-01T12:00:00.000Z",
        4.0,
    )
    assert going["steps"] == [
        {"at": "2026-01-01T12:00:01.000Z", "what": "overlapping", "detail": "cut"}
    ]
    served.engine.reported("f", SwitchProgress("2", "running", ended="done"))
    done = served.http.get("/jobs/f").json()
    assert (done["version"], done["switch"]["state"], done["switch"]["left_s"]) == (
        "2",
        "done",
        None,
    )
    found = served.http.get("/jobs/f/versions").json()
    assert [(one["version"], one["running"]) for one in found] == [("1", False), ("2", True)]


def test_a_plan_is_told_as_data_and_as_text_and_nothing_is_begun(served: Served) -> None:
    planned = served.http.post("/jobs/f/switch/plan", json={"package": BAD})
    assert planned.status_code == 200
    assert planned.json()["plan"]["possible"] is False
    assert planned.json()["text"].splitlines()[-1] == "impossible: it is another flow"
    assert served.http.get("/jobs/f").json()["switch"] is None


def test_the_switch_of_a_job_is_shown_with_what_was_planned_last(served: Served) -> None:
    assert served.http.get("/jobs/f/switch").json() == {"switch": None, "planned": None}
    served.http.post("/jobs/f/switch/plan", json={"package": BAD})
    found = served.http.get("/jobs/f/switch").json()
    assert found["switch"] is None
    assert found["planned"]["plan"]["obstacles"][0]["fact"] == "it is another flow"
    assert found["planned"]["at"] == "2026-01-01T12:01:00.000Z"
    served.http.post("/jobs/f/switch", json={"package": PACKAGE})
    found = served.http.get("/jobs/f/switch").json()
    assert found["switch"]["state"] == "asked"
    assert found["planned"]["plan"]["possible"]


def test_what_cannot_be_switched_is_a_conflict(served: Served) -> None:
    def refused(body: dict[str, object]) -> tuple[int, str]:
        answer = served.http.post("/jobs/f/switch", json=body)
        return answer.status_code, answer.json()["error"]

    assert refused({"package": BAD}) == (409, "SwitchImpossible")
    assert refused({"back": True}) == (409, "SwitchRefused")
    assert refused({}) == (409, "SwitchRefused")
    assert refused({"package": PACKAGE, "back": True}) == (409, "SwitchRefused")
    assert refused({"package": PACKAGE, "limit": 0}) == (400, "RequestRefused")
    assert served.http.delete("/jobs/f/switch").status_code == 409
    served.http.post("/jobs/f/switch", json={"package": PACKAGE})
    assert refused({"package": PACKAGE}) == (409, "SwitchRefused")
    given = served.http.delete("/jobs/f/switch")
    assert (given.status_code, given.json()["switch"]["state"]) == (202, "given up")


def test_a_version_in_the_shadow_is_compared_and_the_old_one_stays(served: Served) -> None:
    asked = served.http.post("/jobs/f/switch", json={"package": PACKAGE, "shadow": 60})
    assert (asked.status_code, asked.json()["switch"]["shadow"]["since"]) == (202, None)
    assert served.engine.wanted is not None
    assert (served.engine.wanted.shadow, served.engine.wanted.duration) == (
        True,
        timedelta(seconds=60),
    )
    example = Example("different", {"k": "a", "n": 1}, {"k": "a", "n": 2})
    found = Comparison(
        "2026-01-01T12:00:00Z",
        None,
        (Compared("s", Change.REPLACED, 5, different=1, examples=(example,)),),
    )
    served.engine.reported("f", SwitchProgress("2", "shadowing", shadow=found))
    assert served.http.get("/jobs/f").json()["switch"]["shadow"]["outputs"][0]["equal"] == 5
    served.engine.reported("f", SwitchProgress("2", "running", ended="compared", shadow=found))
    done = served.http.get("/jobs/f").json()
    assert (done["version"], done["switch"]["state"]) == ("1", "compared")
    (told,) = done["switch"]["shadow"]["outputs"][0]["examples"]
    assert told == {"kind": "different", "old": {"k": "a", "n": 1}, "new": {"k": "a", "n": 2}}
    assert (
        served.http.post("/jobs/f/switch", json={"package": PACKAGE, "shadow": 0}).status_code
        == 400
    )


def test_a_share_of_the_keys_is_given_raised_and_taken_back(served: Served) -> None:
    begun = served.http.post("/jobs/f/switch", json={"package": PACKAGE, "share": 0.125}).json()[
        "switch"
    ]
    assert (begun["share"], begun["wanted"]) == (0.0, 0.125)
    served.engine.reported("f", SwitchProgress("2", "sharing", cut_us=1, share=1250, wanted=1250))
    assert served.http.get("/jobs/f").json()["switch"]["share"] == 0.125
    raised = served.http.post("/jobs/f/switch", json={"share": 0.5}).json()["switch"]
    assert (raised["share"], raised["wanted"]) == (0.125, 0.5)
    back = served.http.post("/jobs/f/switch", json={"back": True}).json()["switch"]
    assert back["wanted"] == 0.0
    for bad in ({"back": True, "share": 0.5}, {"package": PACKAGE, "share": 0}, {"share": 1.5}):
        assert served.http.post("/jobs/f/switch", json=bad).status_code in (400, 409)


def test_a_probation_has_limits_of_its_own(served: Served) -> None:
    probation = {"seconds": 60, "back": True, "errors": 2, "dead_letters": 7, "lag_seconds": 9}
    served.http.post("/jobs/f/switch", json={"package": PACKAGE, "probation": probation})
    assert served.engine.wanted is not None
    trial = served.engine.wanted.trial
    assert trial is not None
    assert (trial.seconds, trial.back) == (60.0, True)
    assert (trial.limits.errors, trial.limits.dead_letters, trial.limits.lag_s) == (2, 7, 9.0)


def test_a_switch_needs_the_token_and_a_job(served: Served) -> None:
    for method, path in (("POST", "switch"), ("POST", "switch/plan"), ("DELETE", "switch")):
        answer = served.http.request(
            method, f"/jobs/f/{path}", headers={"Authorization": "Bearer none"}, json={}
        )
        assert answer.status_code == 401
    assert served.http.post("/jobs/x/switch", json={"back": True}).status_code == 404
    assert served.http.get("/jobs/x/versions").status_code == 404


def test_a_switch_says_what_it_waits_for_and_can_end_when_that_is_quiet(served: Served) -> None:
    served.http.post("/jobs/f/switch", json={"package": PACKAGE, "until_quiet": True})
    assert served.engine.wanted is not None
    assert served.engine.wanted.until_quiet
    progress = SwitchProgress("2", "overlapping", needs={"s": 5}, waits='events of source "s"')
    served.engine.reported("f", progress)
    assert served.http.get("/jobs/f").json()["switch"]["waits"] == 'events of source "s"'
    assert served.http.post("/jobs/f/switch", json={"until_quiet": True}).status_code == 202
    assert served.engine.quiet == "f"
    served.engine.reported("f", SwitchProgress("2", "running", ended="done"))
    assert served.http.get("/jobs/f").json()["switch"]["waits"] is None
