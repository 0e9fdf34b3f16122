"""What an engine shows of the state of a job's stages over HTTP, read by the job's driver.

State is made of what others have sent: it needs a token even on the engine's own host.
"""

from __future__ import annotations

from millstream.engine.http.api import Api, Asked
from millstream.engine.jobs.checkpoint_status import CheckpointStatus, VerifiedCheckpoint
from millstream.engine.jobs.pattern_status import PatternRuns
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


def patterns(api: Api, asked: Asked) -> list[PatternRuns]:
    """Return the patterns of a job: their automata, and where their live runs are.

    It is read for all who ask: at most every five seconds, less often if it takes long.
    """
    return api.shared.get(("patterns", asked.job), lambda: api.engine.patterns(asked.job))


def checkpoints(api: Api, asked: Asked) -> list[CheckpointStatus]:
    """Return the checkpoints of a job's groups, and what has changed since the batch before."""
    return api.shared.get(("checkpoints", asked.job), lambda: api.engine.checkpoints(asked.job))


def verify_checkpoint(api: Api, asked: Asked) -> VerifiedCheckpoint:
    """Compare a group's checkpoint with all that it names: journals, outputs, files of state."""
    return api.engine.verify_checkpoint(asked.job, asked.values["group"])
