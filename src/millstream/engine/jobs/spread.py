"""Sources that the engines of a job read themselves, each for the partitions that live with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from millstream.flow.sources import SourceSpec

if TYPE_CHECKING:
    from millstream.flow.flow import Flow


class SpreadSource(msgspec.Struct, frozen=True):
    """The partitions of a source that may be spread, and in YAML what it reads."""

    partitions: int
    spec: str


def spread_sources(flow: Flow) -> dict[str, SpreadSource]:
    """Return the sources of a flow that may be spread over engines."""
    from millstream.flow.dump import dump_source
    from millstream.flow.stages import Source

    return {
        name: SpreadSource(stage.partitions, dump_source(stage.origin))
        for name, stage in flow.stages.items()
        if isinstance(stage, Source) and stage.origin.spread and stage.address is None
    }


def spec_of(source: SpreadSource) -> SourceSpec:
    """Return what a source reads."""
    from millstream.flow.yaml import load_source

    return load_source(source.spec)
