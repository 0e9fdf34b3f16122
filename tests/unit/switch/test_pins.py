"""What switches leave on disk, in the store and in answers: an engine of another version reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millstream.engine.http.messages import Switching
from millstream.engine.jobs.switch_record import Switch, SwitchState
from millstream.engine.switch_service import switch_status
from millstream.spark.switching.switch_log import SwitchLog
from millstream.switch.comparison import Comparison
from millstream.switch.cut import WHOLE
from millstream.switch.events import (
    Confirmed,
    Drained,
    Event,
    FirstFound,
    Held,
    Reported,
    Retired,
    ShareRequested,
    SwitchRequested,
)
from millstream.switch.instructions import Write
from millstream.switch.machine import Entry, advance, begun
from millstream.switch.probation import Limits, Trial
from millstream.switch.progress import SwitchStep
from millstream.switch.record import Homes, Phase, Record, decode, encode
from millstream.switch.request import SwitchRequest

HOMES = {"1": Homes(), "2": Homes({"g": "2"}, {"j": "2"}, ("g",))}
FIRST = {"g": {"j": (4, 0)}}
VOTED = (Held(frozenset({"p"})), Reported(1, "p", 7), Confirmed(1, "p"), FirstFound(1, FIRST))
H = '"homes":{"1":{},"2":{"groups":{"g":"2"},"journals":{"j":"2"},"by_time":["g"]}}'
F = '"firsts":{"2":{"g":{"j":[4,0]}}}'


def requested(**more: Any) -> SwitchRequested:
    since_us = more.pop("since_us", None)
    request = SwitchRequest(consent=("s",), **more)
    return SwitchRequested("2", request, ("g",), 10, HOMES, since_us)


def written(*events: Event) -> list[str]:
    """Return the records that a job writes, as JSON."""
    state, found = begun("1"), []
    for event in events:
        step = advance(state, event, 0)
        state = step.state
        records = [one.record for one in step.instructions if isinstance(one, Write)]
        found += [msgspec.json.encode(one).decode() for one in records]
    return found


ASKED = '{"number":1,"phase":"%s","current":"1","owners":{"first":"1","stretches":[%s]},"next":"2","units":["g"],"step_us":10,'
STRETCH = '{"from_us":%d,"first":"1","second":"2","share":%d}'


def test_the_records_of_a_switch() -> None:
    assert written(requested(), *VOTED, Drained("g"), Retired()) == [
        ASKED % ("preparing", "") + H + ',"consent":["s"]}',
        ASKED % ("overlapping", STRETCH % (90, WHOLE))
        + f'"share":10000,"leaving":"1",{F},{H},"consent":["s"]}}',
        ASKED % ("retiring", STRETCH % (90, WHOLE))
        + f'"share":10000,"leaving":"1",{F},{H},"consent":["s"]}}',
        '{"number":1,"phase":"running","current":"2","owners":{"first":"1","stretches":['
        + STRETCH % (90, WHOLE)
        + f"]}},{F},"
        + '"homes":{"2":{"groups":{"g":"2"},"journals":{"j":"2"},"by_time":["g"]}}}',
    ]


def test_the_records_of_shares_of_a_shadow_and_of_a_cut_in_the_past() -> None:
    again = (Reported(2, "p", 20), Confirmed(2, "p"), FirstFound(2, {}))
    shared = written(
        requested(share=1000),
        *VOTED,
        ShareRequested(SwitchRequest(), frozenset({"p"})),
        *again,
    )
    assert shared[1:] == [
        ASKED % ("sharing", STRETCH % (90, 1000)) + f'"share":1000,{F},{H},"consent":["s"]}}',
        ASKED % ("overlapping", STRETCH % (90, 1000) + "," + STRETCH % (220, 0))
        + f'"leaving":"2",{F},{H},"consent":["s"]}}',
    ]
    assert written(requested(shadow=True), VOTED[0])[1] == (
        ASKED % ("shadowing", "") + H + ',"consent":["s"]}'
    )
    past = written(requested(since_us=50), VOTED[0], FirstFound(0, FIRST))
    assert past == [
        ASKED % ("preparing", "") + H + ',"since_us":50,"consent":["s"]}',
        ASKED % ("overlapping", STRETCH % (50, WHOLE))
        + f'"share":10000,"leaving":"1",{F},{H},"since_us":50,"consent":["s"]}}',
        ASKED % ("retiring", STRETCH % (50, WHOLE))
        + f'"share":10000,"leaving":"1",{F},{H},"since_us":50,"consent":["s"]}}',
    ]


def test_a_record_in_its_file() -> None:
    record = Record(1, Phase.RUNNING, "2", begun("1").owners)
    content = (
        b"millstream switch 1 becbd83af02397af\n"
        b'{\n "number": 1,\n "phase": "running",\n "current": "2",\n'
        b' "owners": {\n  "first": "1",\n  "stretches": []\n }\n}'
    )
    assert encode(record) == content
    assert decode(content) == record


def test_a_line_of_the_history(tmp_path: Path) -> None:
    SwitchLog(tmp_path).note(Entry(5, 1, Phase.ASKING, "asked"))
    line = b'{"at_us":5,"number":1,"phase":"asking","text":"asked"}\n'
    assert (tmp_path / "history").read_bytes() == line


SWITCH = Switch(
    version=3,
    previous=2,
    asked_at=1.5,
    back_to=1,
    state=SwitchState.GOING_ON,
    phase="sharing",
    cut_us=2_000_000,
    left_s=4.0,
    steps=(SwitchStep(1.75, "preparing", "it is prepared"),),
    consent=("s",),
    timeout_s=30.0,
    trial=Trial(60.0, Limits(1, 2, 3.0, 4.0), back=True),
    shadow=Comparison(),
    since=datetime(2026, 1, 1, tzinfo=UTC),
    share=1250,
    wanted=5000,
)


def test_a_switch_in_the_store() -> None:
    content = (
        b'{"version":3,"previous":2,"asked_at":1.5,"back_to":1,"state":"going on","phase":"sharing",'
        b'"why":null,"cut_us":2000000,"left_s":4.0,'
        b'"steps":[{"at":1.75,"phase":"preparing","text":"it is prepared"}],"ended_at":null,'
        b'"consent":["s"],"limit_s":30.0,"trial":{"seconds":60.0,"limits":{"errors":1,'
        b'"dead_letters":2,"lag_s":3.0,"growing_s":4.0},"back":true,"ended":null},'
        b'"shadow":{"since":null,"until":null,"outputs":[],"left_out":[],"dead_letters":0,"broken":null},"since":"2026-01-01T00:00:00Z","share":1250,'
        b'"wanted":5000'
    )
    more = b',"until_quiet":false,"needs":{},"waits":null'
    assert msgspec.json.encode(SWITCH) == content + more + b"}"
    # Stores of earlier releases have less.
    assert msgspec.json.decode(content + b"}", type=Switch) == SWITCH


def test_a_switch_as_it_is_answered() -> None:
    assert msgspec.json.encode(switch_status(SWITCH)) == (
        b'{"version":"3","previous":"2","state":"going on","phase":"sharing","why":null,'
        b'"asked_at":"1970-01-01T00:00:01.500Z","ended_at":null,"cut":"1970-01-01T00:00:02.000Z",'
        b'"left_s":4.0,"steps":[{"at":"1970-01-01T00:00:01.750Z","what":"preparing",'
        b'"detail":"it is prepared"}],"probation":null,"shadow":{"since":null,"until":null,"outputs":[],"left_out":[],"dead_letters":0,"broken":null},'
        b'"share":0.125,"wanted":0.5,"waits":null,"until_quiet":false}'
    )


def test_the_states_of_a_switch() -> None:
    assert [*SwitchState] == ["asked", "going on", "done", "given up", "refused", "compared"]


@pytest.mark.parametrize(
    "body",
    [
        {"package": "YWI=", "root": "/r", "consent": ["s"], "limit": 30, "share": 0.125},
        {"package": "YWI=", "since": "2026-01-01T00:00:00Z"},
        {"package": "YWI=", "shadow": 60},
        {"package": "YWI=", "probation": {"seconds": 5, "back": True, "errors": 1}},
        {"package": "YWI=", "probation": {"seconds": 5, "dead_letters": 1, "lag_seconds": 2}},
        {"share": 0.5},
        {"back": True},
    ],
)
def test_a_switch_as_it_is_asked_for(body: dict[str, Any]) -> None:
    msgspec.convert(body, Switching)
