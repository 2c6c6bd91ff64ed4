"""How the serving process treats memory, and its threads each other: said once, when all is loaded.

Arrow's own allocator keeps what was freed for its next arrays, apart from what Python can use: with ten thousand shapes
that were 80 MB. The system's gives both to both, for the same processor time. Whoever names another in Arrow's own
variable knows better, and gets it. So does whoever tunes the system's by its `MALLOC_` variables.

The system's, left alone, has a heap for each thread, and keeps freed arrays of up to 32 MB between what is in use: with
ten thousand shapes 20 to 40 MB more, of which none has a use.

A thread that wants the interpreter waits five milliseconds for it where nobody says otherwise. The one that reads the
stream wants it for microseconds, and a walsender's socket holds half a millisecond of its work: while a
backlog of thousands of shapes was dealt with, the server stood still.
"""

import ctypes
import gc
import os
import sys
from typing import Final

import pyarrow as pa

from cdc.limits import COLLECTOR_ALLOCATIONS, HEAP_FREE_BYTES_MAX, HEAP_PIECE_BYTES_MAX, THREAD_TURN_SECONDS

_ARROWS_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"

_HEAP_OPTIONS: Final = {
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_MMAP_THRESHOLD_": (-3, HEAP_PIECE_BYTES_MAX),
    "MALLOC_TRIM_THRESHOLD_": (-1, HEAP_FREE_BYTES_MAX),
}
"""By glibc's variables: the numbers in <malloc.h>, and the values."""


def settle_process() -> None:
    """One allocator for all, and short turns; what there is now the collector never looks at again."""
    if _ARROWS_VARIABLE not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    _set_heap()
    sys.setswitchinterval(THREAD_TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_ALLOCATIONS)


def _set_heap() -> None:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, which has other habits
        return
    for variable, (option, value) in _HEAP_OPTIONS.items():
        if variable not in os.environ:
            set_option(option, value)
