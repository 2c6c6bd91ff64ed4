"""What this process holds, and what it held at most.

From `/proc`, not from `getrusage`: the peak that the latter tells is handed down by the process that started this one,
so a small reader started by a large benchmark would be as large as the benchmark.
"""

import re
from pathlib import Path


def held_bytes() -> int:
    """Now."""
    return _status_bytes("VmRSS")


def peak_bytes() -> int:
    """At most, since the program began."""
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
    assert found is not None, f"the system does not tell {name}"
    return int(found[1]) * 1024
