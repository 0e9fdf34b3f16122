"""The stack machine: runs the programs of tests that look at an event and at a run's registers."""

from __future__ import annotations

from typing import Any

from millstream.patterns.kernel import opcodes
from millstream.patterns.kernel.compiled import compiled
from millstream.patterns.kernel.layout import *
from millstream.patterns.kernel.order import compare, greatest, least
from millstream.patterns.kernel.records import Events, Rules, Run, Stack


@compiled
def holds(rules: Rules, test: int, events: Events, event: int, run: Run, stack: Stack) -> bool:
    """Tell whether the history's part of a test holds for an event and a run."""
    top = int64(0)
    for step in range(rules.program_ends[test], rules.program_ends[test + 1]):
        operation = rules.programs[step, OPERATION]
        if operation <= opcodes.LAST_PUSH:
            push(rules, step, events, event, run, stack, top)
            top += 1
        elif operation <= opcodes.LAST_UNARY:
            change(operation, rules.programs[step, IS_REAL], stack, top - 1)
        elif operation == opcodes.SELECT:
            top -= 2
            true = not stack.null[top - 1] and stack.whole[top - 1] != 0
            copy(stack, top if true else top + 1, top - 1)
        else:
            top -= 1
            join(operation, rules.programs[step, IS_REAL], stack, top - 1)
    return not stack.null[0] and stack.whole[0] != 0


@compiled
def push(
    rules: Rules, step: int, events: Events, event: int, run: Run, stack: Stack, top: int
) -> None:
    """Put a number on the stack."""
    operation, real = rules.programs[step, OPERATION], rules.programs[step, IS_REAL] == 1
    argument = rules.programs[step, ARGUMENT]
    stack.null[top] = False
    if operation == opcodes.LITERAL:
        stack.whole[top] = argument
        stack.real[top] = rules.constants[step]
    elif operation == opcodes.NULL:
        stack.null[top] = True
    elif operation == opcodes.VALUE:
        stack.null[top] = events.missing[argument, event]
        if real:
            stack.real[top] = events.real[argument, event]
        else:
            stack.whole[top] = events.whole[argument, event]
    else:
        stack.null[top] = (run.whole[NULLS] >> argument) & 1 == 1
        if operation == opcodes.AVERAGE:
            stack.real[top] = average(rules, argument, run)
        elif real:
            stack.real[top] = run.real[REGISTERS + argument]
        else:
            stack.whole[top] = run.whole[REGISTERS + argument]


@compiled
def average(rules: Rules, register: int, run: Run) -> float:
    """Return the average of what a register has summed up; any number if there was nothing."""
    total = run.real[REGISTERS + register]
    if rules.registers[register, REAL] == 0:
        total = float(run.whole[REGISTERS + register])
    return total / run.whole[REGISTERS + rules.registers[register, BESIDE]]


@compiled
def copy(stack: Stack, source: int, target: int) -> None:
    """Put a number of the stack in the place of another."""
    stack.null[target] = stack.null[source]
    stack.whole[target] = stack.whole[source]
    stack.real[target] = stack.real[source]


@compiled
def change(operation: int, real: int, stack: Stack, at: int) -> None:
    """Apply an operation to one number of the stack."""
    if operation == opcodes.TO_REAL:
        stack.real[at] = float(stack.whole[at])
    elif operation == opcodes.NOT:
        stack.whole[at] = 1 - stack.whole[at]
    elif operation == opcodes.IS_NULL:
        stack.whole[at] = 1 if stack.null[at] else 0
        stack.null[at] = False
    elif real == 1:
        change_sign(operation, stack.real, at)
    else:
        change_sign(operation, stack.whole, at)


@compiled
def change_sign(operation: int, numbers: Any, at: int) -> None:
    """Negate a number, or make it positive."""
    numbers[at] = -numbers[at] if operation == opcodes.NEGATE else abs(numbers[at])


@compiled
def join(operation: int, real: int, stack: Stack, at: int) -> None:
    """Put one number in the place of two, of which either may be missing."""
    other = at + 1
    if operation <= opcodes.LAST_LENIENT:
        if operation <= opcodes.OR:
            decide(operation == opcodes.OR, stack, at, other)
        elif real == 1:
            choose(operation, stack.real, stack, at, other)
        else:
            choose(operation, stack.whole, stack, at, other)
        return
    stack.null[at] = stack.null[at] or stack.null[other]
    if stack.null[at]:
        return
    if operation == opcodes.DIVIDE:
        stack.null[at] = stack.real[other] == 0.0
        stack.real[at] = stack.real[at] / stack.real[other]
    elif real == 1:
        calculate(operation, stack.real, stack, at, other)
    else:
        calculate(operation, stack.whole, stack, at, other)


@compiled
def decide(deciding: bool, stack: Stack, at: int, other: int) -> None:
    """Join two truths: one that is `deciding` (true for or, false for and) decides alone."""
    decided = (not stack.null[at] and (stack.whole[at] != 0) == deciding) or (
        not stack.null[other] and (stack.whole[other] != 0) == deciding
    )
    stack.null[at] = not decided and (stack.null[at] or stack.null[other])
    stack.whole[at] = 1 if decided == deciding else 0


@compiled
def choose(operation: int, numbers: Any, stack: Stack, at: int, other: int) -> None:
    """Keep one of two numbers, or tell whether they are the same; either may be missing."""
    if operation == opcodes.SAME:
        both = not stack.null[at] and not stack.null[other]
        equal = compare(numbers[at], numbers[other]) == 0
        same = (stack.null[at] and stack.null[other]) or (both and equal)
        stack.whole[at] = 1 if same else 0
        stack.null[at] = False
    elif stack.null[at]:
        copy(stack, other, at)
    elif stack.null[other]:
        return
    elif operation == opcodes.LEAST:
        numbers[at] = least(numbers[at], numbers[other])
    elif operation == opcodes.GREATEST:
        numbers[at] = greatest(numbers[at], numbers[other])


@compiled
def calculate(operation: int, numbers: Any, stack: Stack, at: int, other: int) -> None:
    """Calculate with, or compare, two numbers that are there."""
    left, right = numbers[at], numbers[other]
    if operation == opcodes.ADD:
        numbers[at] = left + right
    elif operation == opcodes.SUBTRACT:
        numbers[at] = left - right
    elif operation == opcodes.MULTIPLY:
        numbers[at] = left * right
    elif operation == opcodes.REMAINDER:
        stack.null[at] = right == 0
        if right != 0:
            remainder = abs(left) % abs(right)
            numbers[at] = -remainder if left < 0 else remainder
    elif operation == opcodes.QUOTIENT:
        stack.null[at] = right == 0
        if right != 0:
            quotient = abs(left) // abs(right)
            numbers[at] = quotient if (left < 0) == (right < 0) else -quotient
    else:
        stack.whole[at] = 1 if in_order(operation, compare(left, right)) else 0


@compiled
def in_order(operation: int, order: int) -> bool:
    """Tell whether a comparison holds for numbers of which the left is less (-1), equal or more."""
    if operation == opcodes.EQUAL:
        return order == 0
    if operation == opcodes.NOT_EQUAL:
        return order != 0
    if operation == opcodes.LESS:
        return order < 0
    if operation == opcodes.LESS_EQUAL:
        return order <= 0
    if operation == opcodes.GREATER:
        return order > 0
    return order >= 0
