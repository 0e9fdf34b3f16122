"""What an engine shows of the state of a job's stages over HTTP, read by the job's driver.

State is made of what others have sent: it needs a token even on the engine's own host.
"""

from __future__ import annotations

from millstream.engine.http.api import Api, Asked
from millstream.engine.jobs.state_status import StageStatus, StateRows


def states(api: Api, asked: Asked) -> list[StageStatus]:
    """Return the stages of a job that keep state, with their keys and sizes."""
    return api.engine.states(asked.job)


def state_rows(api: Api, asked: Asked) -> StateRows:
    """Return the state of a stage as of one committed batch, a row for each key.

    Times are ISO 8601; NaN and infinities are texts, binary is base64. What differs in shape from
    key to key is a text of JSON.
    """
    given = asked.values
    return api.engine.state_rows(
        asked.job, given["stage"], key=given["key"], at=given["at"], limit=given["limit"]
    )
