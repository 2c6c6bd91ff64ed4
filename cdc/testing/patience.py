"""Waiting for a state, with a bound: what tests do where others would sleep."""

import time
from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 0.02


def until(look: Callable[[], bool], what: str, seconds_max: float) -> None:
    """Return when `look` finds it so. Raises `AssertionError`, with `what`, when it takes too long."""
    end = time.monotonic() + seconds_max
    while not look():
        assert time.monotonic() < end, f"waited {seconds_max:g} s in vain for {what}"
        time.sleep(LOOK_SECONDS)
