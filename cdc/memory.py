"""How the serving process treats memory: said once, when all is loaded.

Arrow's own allocator keeps what was freed for its next arrays, apart from what Python can use: with ten thousand shapes
that were 80 MB. The system's gives both to both, for the same processor time. Whoever names another in Arrow's own
variable knows better, and gets it.
"""

import gc
import os
from typing import Final

import pyarrow as pa

from cdc.limits import COLLECTOR_ALLOCATIONS

_ARROWS_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"


def settle_memory() -> None:
    """One allocator for all; what there is now is never looked at by the collector again, and what comes less often."""
    if _ARROWS_VARIABLE not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_ALLOCATIONS)
