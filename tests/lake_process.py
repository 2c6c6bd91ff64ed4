"""A materializer as a process of its own, for tests that kill it: `python -m tests.lake_process DATA LAKE [POINT N]`.

It follows until it is killed; at the n-th time that it comes by a point it kills itself, as kill -9 does. With
`pauses SEED` in the place of `POINT N` it stays at every third point for a while, by chance, so that a twin overtakes.
"""

import os
import random
import signal
import sys
import threading
from pathlib import Path

from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here

PAUSE_SECONDS = 0.05
STAY_SECONDS = 0.4
"""The mean of a stay: longer than most steps."""


def main() -> None:
    data, lake, *rest = sys.argv[1:]
    point, times = (rest[0], int(rest[1])) if rest else ("", 0)
    seen = 0
    chance = random.Random(times)

    def at(where: str) -> None:
        nonlocal seen
        if point == "pauses":
            if chance.random() < 1 / 3:
                threading.Event().wait(chance.expovariate(1 / STAY_SECONDS))
            return
        seen += where == point
        if seen == times and where == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(told: Told) -> None:
        sys.stdout.write(f"{told.step.version.number if told.step.version else 0}\n")
        sys.stdout.flush()

    materialize(Order(Path(data), Path(lake), every_seconds=PAUSE_SECONDS), run_here, tell, at)


if __name__ == "__main__":
    main()
