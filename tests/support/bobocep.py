"""Patterns run by the PyPI package bobocep, one event at a time."""

from __future__ import annotations

from bobocep.cep.engine.decider.decider import BoboDecider
from bobocep.cep.engine.decider.pubsub import BoboDeciderSubscriber
from bobocep.cep.event import BoboEventSimple
from bobocep.cep.gen.event_id import BoboGenEventID
from bobocep.cep.phenom.pattern.builder import BoboPatternBuilder
from bobocep.cep.phenom.pattern.pattern import BoboPattern
from bobocep.cep.phenom.phenom import BoboPhenomenon

from millstream.patterns.pattern import Pattern


class _Numbers(BoboGenEventID):
    def __init__(self) -> None:
        self.last = 0

    def generate(self) -> str:
        self.last += 1
        return str(self.last)


class _Heard(BoboDeciderSubscriber):
    def __init__(self) -> None:
        self.completed: list[tuple[tuple[str, int], ...]] = []

    def on_decider_update(self, completed, halted, updated, local) -> None:
        for run in completed:
            taken = [
                (group, int(one.event_id))
                for group, some in run.history.events.items()
                for one in some
            ]
            self.completed.append(tuple(sorted(taken, key=lambda pair: pair[1])))


def builder(pattern: Pattern, meets) -> BoboPattern:
    """Return a pattern of ours as one of BoboCEP's."""
    made = BoboPatternBuilder("pattern", singleton=pattern.one_at_a_time)

    def call(text):
        return lambda event, history: meets(text, event.data, {})

    for block in pattern.blocks:
        tests = [call(text) for text in block.conditions]
        options = {} if block.negated else {"times": block.most or 1, "loop": block.most is None}
        if block.optional and block.most is not None:
            options["optional"] = True
        if block.contiguity == "strict":
            method = made.not_next if block.negated else made.next
            method(tests[0], group=block.name, **options)
        else:
            method = made.not_followed_by_any if block.negated else made.followed_by_any
            method(tests, group=block.name, **options)
    for text in pattern.required:
        made.precondition(call(text))
    for text in pattern.halting:
        made.haltcondition(call(text))
    return made.generate()


def decider(pattern: BoboPattern) -> tuple[BoboDecider, _Heard]:
    found = BoboDecider([BoboPhenomenon("phenomenon", [pattern])], _Numbers(), _Numbers())
    heard = _Heard()
    found.subscribe(heard)
    return found, heard


def completed(pattern: BoboPattern, events: list[object]) -> list[tuple[tuple[str, int], ...]]:
    """Return the (group, place of the event) pairs of each complex event."""
    engine, heard = decider(pattern)
    for number, data in enumerate(events):
        engine.on_receiver_update(BoboEventSimple(str(number), number, data))
        engine.update()
    return heard.completed
