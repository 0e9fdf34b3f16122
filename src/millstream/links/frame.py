"""What all headers of an envelope are made of."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MOST_BYTES: Final = 64 << 20
"""The largest message."""
MOST_NAME: Final = 512
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Number = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_NAME)]
Checksum = Annotated[int, msgspec.Meta(ge=0)]


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A header; answers carry the number of their request."""

    request: Count
