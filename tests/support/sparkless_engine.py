"""`millstream engine`, whose drivers run no Spark."""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.cli import main
from millstream.engine.driver import process as drivers

if __name__ == "__main__":
    drivers.PROGRAM = (str(Path(__file__).parent / "sparkless_driver.py"),)
    sys.exit(main())
