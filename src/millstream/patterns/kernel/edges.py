"""Edges: which of them an event opens, and whether a run may take them."""

from __future__ import annotations

from millstream.patterns.kernel.compiled import compiled
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.machine import holds
from millstream.patterns.kernel.records import Events, Rules, Run, Stack, Table


@compiled
def is_open(edge: Table, mask: int, age: int) -> bool:
    """Tell whether an edge may be taken, as far as the event alone tells."""
    if edge[NEED] & ~mask != 0 or edge[FORBID] & mask != 0:
        return False
    return edge[BEFORE] < 0 or age < edge[BEFORE]


@compiled
def is_passed_over(rules: Rules, number: int, mask: int) -> bool:
    """Tell whether an event is just passed over by every run in a state."""
    ways = 0
    passed = False
    for at in range(rules.states[number, FIRST_EDGE], rules.states[number, EDGE_END]):
        edge = rules.edges[at]
        if edge[NEED] & ~mask != 0 or edge[FORBID] & mask != 0:
            continue
        ways += 1
        sure = edge[BEFORE] < 0 and edge[ASK] == edge[DENY]
        for ask in range(edge[DENY], edge[ASK_END]):
            sure = sure and rules.asks[ask, BIT] & mask == 0
        passed = sure and edge[TAKE] < 0 and edge[TARGET] == number and edge[COMPLETES] == 0
    return ways == 1 and passed


@compiled
def may_begin(rules: Rules, mask: int) -> bool:
    """Tell whether an event may begin a run."""
    start = rules.states[rules.states.shape[0] - 1]
    for at in range(start[FIRST_EDGE], start[EDGE_END]):
        if is_open(rules.edges[at], mask, 0):
            return True
    return False


@compiled
def agrees(rules: Rules, edge: Table, events: Events, event: int, run: Run, stack: Stack) -> bool:
    """Tell whether the history of a run lets it take an edge.

    The last answer is kept in `stack`, since several edges of a state ask the same test.
    """
    for ask in range(edge[ASK], edge[ASK_END]):
        if rules.asks[ask, BIT] & events.masks[event] == 0:
            continue
        test = rules.asks[ask, TEST]
        if stack.answer[0] != test:
            stack.answer[0] = test
            stack.answer[1] = holds(rules, test, events, event, run, stack)
        if (stack.answer[1] == 1) != (ask < edge[DENY]):
            return False
    return True


@compiled
def forget_answers(stack: Stack) -> None:
    """Make the next test be asked again."""
    stack.answer[0] = -1
