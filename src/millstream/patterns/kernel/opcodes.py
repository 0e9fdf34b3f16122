"""The operations of the kernel's stack machine.

A step of a program is an operation, whether its operands are real numbers (else whole ones), an
argument and a constant. Truth is 1 or 0, as a whole number.
"""

from __future__ import annotations

from typing import Final

# Push a number: the step's constant or argument, a missing one, the event's value or the run's
# register that the argument names, or the average that a register keeps.
LITERAL, NULL, VALUE, REGISTER, AVERAGE = range(5)
LAST_PUSH: Final = AVERAGE

# Change the uppermost number.
TO_REAL, NEGATE, ABSOLUTE, NOT, IS_NULL = range(5, 10)
LAST_UNARY: Final = IS_NULL

# Put one of three numbers in their place: the second if the first is true, else the third.
SELECT: Final = 10

# Put one number in the place of the two uppermost, of which either may be missing.
AND, OR, COALESCE, SAME, LEAST, GREATEST = range(11, 17)
LAST_LENIENT: Final = GREATEST

# The same, where a missing number makes the result missing.
ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, QUOTIENT = range(17, 23)
EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(23, 29)

#: The highest stack that a program may need.
DEPTH: Final = 32
