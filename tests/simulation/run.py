"""`make sim`: run simulated worlds by their seeds.

make sim            10,000 seeds, and how many a second; the first that fails is shrunk and told
make sim SEED=7     one seed, and its story, a line for each event
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress

from simulation.links.scenario import drawn
from simulation.links.shrink import shrunk
from simulation.links.world import story, violation


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make sim")
    arguments.add_argument("seed", nargs="?", type=int, help="run this one and tell its story")
    arguments.add_argument("--seeds", type=int, default=10_000, help="how many to run without one")
    given = arguments.parse_args()
    return one(given.seed) if given.seed is not None else many(given.seeds)


def one(seed: int) -> int:
    print("\n".join(story(drawn(seed))))
    return told(seed) if violation(drawn(seed)) is not None else 0


def many(seeds: int) -> int:
    began = time.perf_counter()
    failed = next((seed for seed in _counted(seeds) if violation(drawn(seed)) is not None), None)
    if failed is not None:
        return told(failed)
    seconds = time.perf_counter() - began
    print(f"{seeds:,} seeds keep all promises, {seeds / seconds:,.0f} a second")
    return 0


def _counted(seeds: int) -> Iterator[int]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(range(seeds), description="simulating")


def told(seed: int) -> int:
    """Tell the smallest story of a seed that fails."""
    print(f"\nseed {seed} breaks a promise; the smallest story of it:\n")
    print("\n".join(story(shrunk(drawn(seed)))))
    return 1


if __name__ == "__main__":
    sys.exit(main())
