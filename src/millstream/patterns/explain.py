"""An automaton for people, as text and as a picture.

Each state has its edges: the block that takes an event, where that leads, and what must hold. An
event that is passed over leads back to the same state, or to one that waits for less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.patterns import picture
from millstream.patterns.automaton import END, Automaton, Edge
from millstream.patterns.merging import merged
from millstream.patterns.picture import span
from millstream.patterns.sharing import why_apart


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a pattern does: print it, or show it in a notebook."""

    automaton: Automaton

    @property
    def text(self) -> str:
        return "\n".join(_lines(self.automaton))

    @property
    def svg(self) -> str:
        return picture.svg(self.automaton, headline(self.automaton))

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


# Words


def headline(automaton: Automaton) -> str:
    facts = [] if automaton.within is None else [f"within {span(automaton.within)}"]
    facts += ["one run at a time"] if automaton.singleton else []
    facts += [f"skip {automaton.skip}"] if automaton.skip.kind != "none" else []
    facts += [f"by {', '.join(automaton.keys)}"] if automaton.keys else []
    return ", ".join(facts) or "no limit in time"


def _when(automaton: Automaton, edge: Edge) -> str:
    """Return what must hold for an edge, in the user's own words."""
    words = [automaton.tests[number].label for number in edge.need]
    words += [f"not ({automaton.tests[number].label})" for number in edge.forbid]
    words += [f"less than {span(edge.before)} later"] if edge.before is not None else []
    return " and ".join(words) or "any event"


def _leads(edge: Edge) -> str:
    goes = [] if edge.target == END else [f"{edge.target + 1}"]
    return " and ".join([*goes, *(["match"] if edge.completes else [])])


def _lines(automaton: Automaton) -> Iterator[str]:
    yield f"{automaton.name}   {headline(automaton)}"
    yield from _state_lines(automaton, "begin", automaton.start)
    for number, state in enumerate(automaton.states):
        if state.name:
            title = f"{number + 1}   waits for {state.name}"
        else:
            title = f"{number + 1}   waits for the time to pass"
        notes = ["matches when its time is up"] if state.pending else []
        notes += [f"for {span(state.patience)} at most"] if state.patience is not None else []
        yield from _state_lines(automaton, ", ".join([title, *notes]), state.edges)
    if not automaton.prefers:
        why = why_apart(merged(automaton))
        yield (
            "an event moves all runs in a state at once"
            if why is None
            else f"an event is tried on each run that waits for it: {why}"
        )
    yield from (f"warning: {warning}" for warning in automaton.warnings)


def _state_lines(automaton: Automaton, title: str, edges: tuple[Edge, ...]) -> Iterator[str]:
    yield f"├─ {title}"
    for place, edge in enumerate(edges):
        branch = "└─" if place == len(edges) - 1 else "├─"
        name = "(pass over)" if edge.take is None else automaton.blocks[edge.take]
        yield f"│  {branch} {name} ──▶ {_leads(edge)}   if {_when(automaton, edge)}"
