"""What a token permits: a pure rule, from (token, need, job, now) to a refusal or none.

    a token that may     permits
    look                 reading: status, logs, journals, metrics, waiting for a job
    send                 sending events, and nothing else
    operate              look; and drain, resume, undeploy, abort a switch, stop the engine
    deploy               everything except what is the owner's: it runs code as the engine's user
    (the owner's)        everything, also the audit log

A token for one job permits nothing about other jobs, nor about the engine as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from millstream.clock import iso
from millstream.errors import NotPermitted, TokenRefused

OWNER: Final = "owner"


class May(StrEnum):
    """What a token is created for."""

    LOOK = "look"
    SEND = "send"
    OPERATE = "operate"
    DEPLOY = "deploy"


class Need(StrEnum):
    """What a route needs: nothing, any token, a permission, or the owner's token."""

    NOTHING = "nothing"
    TOKEN = "any token"  # noqa: S105 (it is none)
    LOOK = "look"
    SEND = "send"
    OPERATE = "operate"
    DEPLOY = "deploy"
    OWNER = "owner"


_GRANTED: Final[Mapping[May, frozenset[Need]]] = {
    May.LOOK: frozenset({Need.LOOK}),
    May.SEND: frozenset({Need.SEND}),
    May.OPERATE: frozenset({Need.LOOK, Need.OPERATE}),
    May.DEPLOY: frozenset({Need.LOOK, Need.SEND, Need.OPERATE, Need.DEPLOY}),
}
_HINT: Final = (
    "Authorization: Bearer TOKEN over HTTP, --token-file or MILLSTREAM_TOKEN for commands; "
    "the owner's is in the file \"token\" in the engine's data folder"
)


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its secret. Moments are seconds since 1970; the owner's has no `may`."""

    name: str
    may: tuple[May, ...] = ()
    #: The only job that it is for; None: all of them, and the engine.
    job: str | None = None
    created_at: float = 0.0
    expires_at: float | None = None

    @property
    def owner(self) -> bool:
        return self.name == OWNER

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


def refusal(
    token: Token | None, need: Need, job: str | None, now: float
) -> TokenRefused | NotPermitted | None:
    """Return why a token does not permit what a route needs; None if it does.

    Args:
        token: None if there is none, or one that is not known.
        need: What the route needs.
        job: The name of the job that the request is about; None: it is about the engine.
        now: Seconds since 1970.
    """
    if need is Need.NOTHING:
        return None
    if token is None:
        return TokenRefused("this needs a token that the engine knows", hint=_HINT)
    if token.owner:
        return None
    if token.expired(now):
        msg = f'token "{token.name}" has expired, at {iso(token.expires_at or 0.0)}'
        return TokenRefused(msg, hint=f"create another: millstream token rotate {token.name}")
    if need is Need.TOKEN:
        return None
    if not any(need in _GRANTED[may] for may in token.may):
        return _not_permitted(token, need)
    if token.job is not None and job != token.job:
        return _another_job(token, job)
    return None


def _not_permitted(token: Token, need: Need) -> NotPermitted:
    may = " and ".join(token.may)
    if need is Need.OWNER:
        hint = 'it is in the file "token" in the engine\'s data folder'
        return NotPermitted(f'this needs the owner\'s token, not "{token.name}"', hint=hint)
    msg = f'token "{token.name}" may {may}, and this needs one that may {need}'
    return NotPermitted(msg, hint=f"millstream token create NAME --may {need}")


def _another_job(token: Token, job: str | None) -> NotPermitted:
    about = "the engine" if job is None else f'job "{job}"'
    if job is None:
        hint = "use a token that is not for one job"
    else:
        hint = f'name the job as it is named, "{token.job}", not by its id; or use another token'
    msg = f'token "{token.name}" is for job "{token.job}", and this is about {about}'
    return NotPermitted(msg, hint=hint)
