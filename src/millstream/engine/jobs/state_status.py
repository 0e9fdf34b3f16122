"""The state of a job's stages, as an engine shows it."""

from __future__ import annotations

from typing import Any

import msgspec


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A stage with state as of a committed batch; `keys` and `columns` if it is kept by key."""

    group: str
    stage: str
    kind: str
    batch: int
    bytes: int
    keys: int | None = None
    columns: dict[str, str] | None = None


class StateRows(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stage as of a committed batch, a row for each key, as JSON has them."""

    stage: str
    kind: str
    batch: int
    #: How many keys there are; `rows` may have fewer.
    keys: int
    rows: list[dict[str, Any]]
