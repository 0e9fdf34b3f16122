"""Which options a deployment may have, checked before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.engine.deployment import Deployments, _check
from millstream.errors import InvalidOption


@pytest.mark.parametrize(
    "options",
    [{}, {"rows_per_batch": 5, "state": None}, {"journals": "kafka://b:9092", "most_unread": 3}],
)
def test_options_of_a_job(options: dict[str, Any]) -> None:
    _check(options)


@pytest.mark.parametrize("options", [{"journals": 3}, {"state": "disk"}, {"rows": 1}])
def test_what_is_no_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="a job cannot have the option"):
        _check(options)


def test_a_job_on_several_engines_keeps_its_sources_in_files() -> None:
    engine = Deployments.__new__(Deployments)  # it is refused before anything of it is used
    with pytest.raises(InvalidOption, match="on several engines"):
        engine.prepare(b"", None, None, {"journals": "kafka://b:9092"}, None)
