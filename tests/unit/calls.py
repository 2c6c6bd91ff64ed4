"""Counting calls: what something costs, whatever else the machine does meanwhile."""

import gc
import sys
from collections.abc import Callable
from types import FrameType


def calls_of(action: Callable[[], object]) -> int:
    """How many functions are called, those written in C included."""
    count = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # a collection calls whatever finalizers are due, of anybody's objects
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
