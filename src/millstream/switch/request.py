"""What is asked of a switch: one shape from the command line to the machine, checked when made.

On its way some of it is used up: an engine unpacks the package, and the driver gets a flow beside
the request. Shares are counted in parts of `WHOLE`; they are fractions only in HTTP, and percent
only on the command line.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from millstream.clock import MICROSECOND
from millstream.errors import SwitchRefused
from millstream.switch.cut import WHOLE, percent
from millstream.switch.probation import Trial
from millstream.switch.wishes import StateWishes

Mode = Literal["switch", "shadow", "share"]
#: How long a switch may take until its cut, if nothing else is asked for.
TIMEOUT: Final = timedelta(minutes=5)


class SwitchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A switch to a package, another share of the keys or, with neither, the way back.

    Attributes:
        package: The new version.
        root: The folder that it comes from.
        share: How many parts of the keys the new version is to have; None is all of them, or none
            on the way back.
        consent: The stages whose state may be dropped, and the outputs whose results may be
            repeated.
        states: The new names of states that the running version has under others.
        since: Process again what starts there or later, in event time.
        shadow: Run the new version in the shadow of the current one, instead of replacing it.
        duration: How long it runs in the shadow; None: until it is ended.
        timeout: How long it may take until the cut.
        trial: How the new version is watched afterwards.
        until_quiet: Let sources that are idle pass their time on, so that the overlap ends without
            events.

    Raises:
        SwitchRefused: It makes no sense.
    """

    package: bytes | None = None
    root: str | None = None
    share: int | None = None
    consent: tuple[str, ...] = ()
    states: dict[str, str] = {}
    since: datetime | None = None
    shadow: bool = False
    duration: timedelta | None = None
    timeout: timedelta = TIMEOUT
    trial: Trial | None = None
    until_quiet: bool = False

    def __post_init__(self) -> None:
        StateWishes(self.states, self.consent)
        if self.share is None:
            return
        if not 0 < self.share <= WHOLE:
            msg = f"a new version cannot have {percent(self.share)} of the keys"
            raise SwitchRefused(msg, hint="give it from 0.01% to 100%")
        if self.shadow:
            hint = "ask for a share or for a shadow"
            raise SwitchRefused("a version in the shadow has no share of the keys", hint=hint)
        if self.since is not None:
            msg = "a share of the keys begins at the next cut, not in the past"
            raise SwitchRefused(msg, hint="process all keys again, or none")

    @property
    def mode(self) -> Mode:
        """What the new version is to do."""
        if self.shadow:
            return "shadow"
        return "switch" if self.share in (None, WHOLE) else "share"

    @property
    def wanted(self) -> int:
        """How many parts of the keys the new version is to have once it is cut."""
        return WHOLE if self.share is None else self.share

    @property
    def timeout_us(self) -> int:
        return self.timeout // MICROSECOND
