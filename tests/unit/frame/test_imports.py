"""What a program loads that only sends rows: little more than Arrow and ZeroMQ."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    *("asyncio", "ssl", "sqlite3", "urllib.request", "psutil", "pandas", "rich", "typer"),
    *("pyarrow.compute", "millstream.journal.kinds", "millstream.links.listener", "pyspark"),
}


def test_a_client_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys; import millstream as ms; ms.connect; print(*sys.modules, sep='\\n')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "millstream.links.client" in found.stdout.split()
    assert HEAVY & set(found.stdout.split()) == set()
