"""Lives in a process of their own, which is killed at some point as `kill -9` would.

python -m support.killed FOLDER SEED ROWS FLOW WISH...     switches after these turns, or gives these shares
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.lives import Life, Switches, Wishes
from support.recording import Recording
from support.shared import KEYS, Shares, chained
from support.switched import small

HERE: Final = Path(__file__).parents[1]


def killed(life: Life, wishes: Switches | Shares, fail_at: str) -> bool:
    """Let a flow live until it is killed at a point; tell whether it was, or has come to its end."""
    life.root.mkdir(parents=True, exist_ok=True)
    told = ["small", *wishes.after] if isinstance(wishes, Switches) else ["chained", *wishes.shares]
    command = [
        sys.executable,
        "-m",
        "support.killed",
        life.root,
        life.recording.seed,
        life.rows,
        *told,
    ]
    environment = {**os.environ, "MILLSTREAM_FAIL_AT": fail_at, "PYTHONPATH": _path()}
    with (life.root / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            [str(one) for one in command],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        code = process.wait(1800)
    finally:
        _sweep(process)
    assert code in (0, 137), (life.root / "output.txt").read_text()[-3000:]
    return code == 137


def _path() -> str:
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Kill what a process that died by itself has left: its Java."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def main() -> None:
    from millstream.spark.session.session import session

    root, seed, rows, flow, *told = sys.argv[1:]
    life, wishes = _told(Path(root), int(seed), int(rows), flow, told)
    spark = session("killed", master="local[2]", log=Path(root) / "spark.log")
    life.lived(spark, wishes)
    spark.stop()


def _told(root: Path, seed: int, rows: int, flow: str, told: list[str]) -> tuple[Life, Wishes]:
    if flow == "small":
        return Life(root, small, Recording(seed), rows), Switches(tuple(map(int, told)))
    return Life(root, chained, Recording(seed, KEYS), rows), Shares(tuple(map(float, told)))


if __name__ == "__main__":
    main()
