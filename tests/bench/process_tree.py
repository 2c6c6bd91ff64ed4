"""What a process and all that it started use together: memory at most, and time of processors."""

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

SAMPLE_SECONDS = 0.05
"""Between two looks: a peak that is shorter may be missed."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """Looks at this process and its descendants while the block runs."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        """Resident, of all together; pages that two share are counted in both."""
        self.peak_below_bytes: dict[str, int] = {}
        """By name: the largest single process of those that were started."""
        self._end = threading.Event()
        self._cpu_before: dict[int, float] = {}
        self._cpu: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._cpu_before = {pid: cpu for pid, (_, _, cpu) in _family().items()}
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._look()
        self._end.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Of processes that ended, up to the last look at them."""
        return sum(cpu - self._cpu_before.get(pid, 0.0) for pid, cpu in self._cpu.items())

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        family = _family()
        self._cpu |= {pid: cpu for pid, (_, _, cpu) in family.items()}
        self.peak_bytes = max(self.peak_bytes, sum(held for _, held, _ in family.values()))
        for pid, (name, held, _) in family.items():
            if pid != os.getpid():
                self.peak_below_bytes[name] = max(self.peak_below_bytes.get(name, 0), held)


def _family() -> dict[int, tuple[str, int, float]]:
    """Name, resident bytes and seconds of processors of each process, by its number."""
    found: dict[int, tuple[int, str, int, float]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            start, _, rest = (path / "stat").read_text("utf-8", "replace").rpartition(")")
            fields = rest.split()
            name = start.partition("(")[2]
            seconds = (int(fields[11]) + int(fields[12])) / _TICKS
            found[int(path.name)] = (int(fields[1]), name, int(fields[21]) * _PAGE, seconds)
    family, waiting = {}, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            family[pid] = found[pid][1:]
        waiting += [child for child, (parent, *_) in found.items() if parent == pid and child not in family]
    return family
