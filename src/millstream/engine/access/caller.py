"""Who sends a request."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.engine.access.audit import NOBODY
from millstream.engine.access.permissions import Token
from millstream.errors import NotPermitted


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a request comes from, and its token, if it has one that is known."""

    address: str
    token: Token | None = None

    @property
    def name(self) -> str:
        return NOBODY if self.token is None else self.token.name

    @property
    def job(self) -> str | None:
        """The only job that the caller may ask about; None: all of them."""
        return None if self.token is None else self.token.job

    def check_deploys(self, name: str | None) -> None:
        """Check the name that a new job gets.

        Raises:
            NotPermitted: The token is for another job.
        """
        if self.job is not None and name != self.job:
            given = "has no name" if name is None else f'is named "{name}"'
            msg = f'token "{self.name}" is for job "{self.job}", and this one {given}'
            raise NotPermitted(msg, hint=f"millstream deploy FLOW --name {self.job}")
