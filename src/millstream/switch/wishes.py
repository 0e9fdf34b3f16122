"""What a user wants to become of states in a switch: other names, and what may be lost.

A state is named STAGE, or STAGE.STATE where a fold declares several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.errors import SwitchRefused

_DROP: Final = "drop:"


@dataclass(frozen=True, slots=True)
class StateWishes:
    """By old names, the new names of states; and what the user agrees to."""

    renames: Mapping[str, str] = field(default_factory=dict)
    consent: Collection[str] = ()

    def __post_init__(self) -> None:
        for old, new in self.renames.items():
            stages = old.partition(".")[0], new.partition(".")[0]
            if "." in old and stages[1] != self.heir(stages[0]):
                msg = f'state "{old}" cannot become "{new}": its stage is not "{stages[1]}"'
                raise SwitchRefused(msg, hint=f"name the stage too: --state {'='.join(stages)}")
            if ("." in old) != ("." in new) or not old or not new:
                msg = f'a state "{old}" cannot become "{new}"'
                raise SwitchRefused(msg, hint="--state STAGE=STAGE, or STAGE.STATE=STAGE.STATE")

    def heir(self, stage: str) -> str:
        """Return the stage that takes the state of one of the old version."""
        return self.renames.get(stage, stage)

    def source(self, stage: str) -> str:
        """Return the stage of the old version whose state one of the new version takes."""
        named = next((old for old, new in self.renames.items() if new == stage), stage)
        return named if self.heir(named) == stage else ""

    def renamed(self, stage: str) -> dict[str, str]:
        """Return the states of a stage of the old version that get other names."""
        inside = f"{stage}."
        return {
            old.removeprefix(inside): new.partition(".")[2]
            for old, new in self.renames.items()
            if old.startswith(inside)
        }

    def dropped(self, stage: str) -> frozenset[str]:
        """Return the states of a stage of the old version that may be lost."""
        inside = f"{_DROP}{stage}."
        return frozenset(one.removeprefix(inside) for one in self.consent if one.startswith(inside))

    def loses(self, stage: str) -> bool:
        """Tell whether all that a stage keeps may be lost."""
        return stage in self.consent or f"{_DROP}{stage}" in self.consent

    @property
    def stages(self) -> Iterator[tuple[str, str]]:
        """The stages of the old version that are renamed, with their heirs."""
        yield from ((old, new) for old, new in self.renames.items() if "." not in old)


def renames_of(texts: Collection[str]) -> dict[str, str]:
    """Return the rename map that texts like "old=new" say.

    Raises:
        SwitchRefused: One does not, or names an old state twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (old and equals and new) or old in found or new in found.values():
            msg = f'"{text}" does not rename one state'
            raise SwitchRefused(msg, hint="--state OLD=NEW, once for each")
        found[old] = new
    return found
