"""What is said once to a process; tried in processes of their own, since there is no way back."""

import os
import subprocess
import sys

from cdc.limits import THREAD_TURN_SECONDS

ARRAYS_MB = 120

PROGRAM = f"""
import sys
import numpy as np
from cdc.settle import settle_process
from tests.bench.process_memory import held_bytes

if "settled" in sys.argv:
    settle_process()
np.ones(2 * 1024 * 1024, np.uint8)  # freed: left alone, the heap takes what is as large from now on
size = 2 * 1024 * 1024 - 65536
arrays = [np.ones(size, np.uint8) for _ in range({ARRAYS_MB} * 1024 * 1024 // size)]
last = np.ones(100_000, np.uint8)  # behind them in the heap, so that they are not its end
before = held_bytes()
del arrays
print(before - held_bytes())
"""


def given_back(*arguments: str, **variables: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, env=environment | variables, stdout=subprocess.PIPE, check=True).stdout)


def test_large_arrays_go_back_to_the_system() -> None:
    most = ARRAYS_MB * 1024 * 1024 * 9 // 10
    assert given_back("settled") > most
    assert given_back() < most, "the system's own way would do"


def test_who_tunes_the_heap_is_obeyed() -> None:
    assert given_back("settled", MALLOC_MMAP_THRESHOLD_=str(32 * 1024 * 1024)) < ARRAYS_MB * 1024 * 1024 * 9 // 10


def test_threads_take_short_turns() -> None:
    program = "import sys; from cdc.settle import settle_process; settle_process(); print(sys.getswitchinterval())"
    told = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout
    assert float(told) == THREAD_TURN_SECONDS
