"""What an engine hands to the driver of a job that it has claimed."""

from __future__ import annotations

import msgspec


class Lease(msgspec.Struct, frozen=True):
    """A claim that a driver may follow with its own: if it is not the last one, the job is lost."""

    #: Where the logs of jobs are.
    storage: str
    engine: str
    #: The number of the engine's claim.
    generation: int
    renew_every: float
