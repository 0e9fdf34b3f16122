"""`ms.show`: the graph of a flow, and of a job of an engine with its numbers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

import millstream as ms
from millstream.engine.jobs.pulse import Series
from millstream.errors import InvalidOption, NoSuchJob
from support.engine import MOMENT
from support.served import serving


def test_a_flow_is_shown_as_its_plan_is_drawn(tmp_path: Path) -> None:
    flow = ms.Flow("beats")
    ticks = flow.source("ticks", ms.rate(5), time="at")
    ticks.sink("seen", ms.jsonl("seen"))
    found = ms.show(flow)
    assert "ticks" in found.svg
    assert found._repr_html_().startswith("<div")
    assert found.save(tmp_path / "flow.svg").read_text() == found.svg


def test_a_job_is_shown_with_its_numbers(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.deploy()
        while not served.http.get("/jobs/f/series").json()["at"]:
            served.http.get("/live?once=true")
        found = ms.show("f", engine=served.server.url, token=served.server.token)
        texts = [one.text for one in ElementTree.fromstring(found.svg).iter() if one.text]
        assert "lag in rows, at most 7.0" in texts
        assert any("rows behind" in text for text in texts)
        job = served.engine.status("f")
        assert ms.show(job, engine=served.server.url, token=served.server.token).title == "f"
        with pytest.raises(NoSuchJob):
            ms.show("g", engine=served.server.url, token=served.server.token)


def test_plots_of_a_job_have_times_a_legend_and_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = datetime.fromisoformat(MOMENT).timestamp()
    at = [noon - 60 + 5 * n for n in range(25)]
    series = Series(at, {"a<b": {"rows_in": [1.0] * 25, "lag_rows": [2] * 25}, "all": {}})
    with serving(tmp_path) as served:
        served.deploy()
        monkeypatch.setattr(served.server.api.live, "series", lambda job: series)
        found = ms.show("f", engine=served.server.url, token=served.server.token)
    drawn = list(ElementTree.fromstring(found.svg).iter())
    texts = [one.text for one in drawn]
    assert texts.count("12:00") == 3  # below each plot
    assert {"a<b", "all", "what happened to the job; times are UTC"} <= set(texts)
    marks = [one for one in drawn if one.get("class") == "mark" and len(one)]
    assert [one[0].text for one in marks] == ["deployed"] * 3


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(InvalidOption, match="a int cannot be shown"):
        ms.show(3)  # type: ignore[arg-type]
