"""Print how many seconds of the processor a line of Python takes, the best of five processes.

python scripts/import_time.py "import millstream; millstream.connect"
"""

from __future__ import annotations

import subprocess
import sys


def once(code: str) -> float:
    """Return how long it takes, without the start of the interpreter."""
    timed = f"import time; began = time.process_time()\n{code}\nprint(time.process_time() - began)"
    return float(
        subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True).stdout
    )


print(f"{min(once(sys.argv[1]) for _ in range(5)):.3f}")
