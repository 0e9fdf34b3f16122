"""Message ids, which are 32 bits wide, as serials, which never wrap.

    serial   1, 2, ... 2^32-1, 2^32+1, ...     the low 32 bits are the id, which is never 0
    id       1, 2, ... 2^32-1,      1, ...

So 0 is never the id of a message, and order is that of plain numbers. An id that comes back from
outside becomes the serial that is nearest to one we know: less than 2^31 messages are ever on their
way.
"""

from __future__ import annotations

from typing import Final

_WIDTH: Final = 1 << 32
_HALF: Final = 1 << 31
NONE: Final = 0
"""The serial before the first."""


def after(serial: int) -> int:
    """Return the next serial.

    Example:
        >>> [id_of(after(s)) for s in (0, 2**32 - 2, 2**32 - 1)]
        [1, 4294967295, 1]
    """
    return serial + 1 if (serial + 1) % _WIDTH else serial + 2


def before(serial: int) -> int:
    """Return the serial before one."""
    return serial - 1 if (serial - 1) % _WIDTH or serial == 1 else serial - 2


def id_of(serial: int) -> int:
    """Return the id that stands for a serial on the wire."""
    return serial % _WIDTH


def nearest(id_: int, known: int) -> int:
    """Return the serial with this id that is nearest to `known`, never below 0.

    Example:
        >>> nearest(1, 2**32 - 1) == 2**32 + 1, nearest(2**32 - 1, 2**32 + 1) == 2**32 - 1
        (True, True)
    """
    distance = (id_ - known) % _WIDTH
    serial = known + distance - (_WIDTH if distance >= _HALF else 0)
    return serial if serial >= 0 else serial + _WIDTH
