"""What the benchmarks share: their options, what a disk can do at best, cold files, and a line of progress."""

import argparse
import contextlib
import gc
import mmap
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent.parent.parent / "build" / "bench"
"""Where results go, and the data while it is measured."""

MB = 1_000_000

LIMIT_ATTEMPTS = 3
"""In each round; the limit of the round is the best of them."""


def options_parser(name: str, description: str, scale_max: float = 1.0) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; a benchmark adds its own."""

    def share(text: str) -> float:
        value = float(text)
        if not 0 < value <= scale_max:
            raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {scale_max:g}")
        return value

    parser = argparse.ArgumentParser(
        prog=f"python -m tests.bench {name}", description=description, allow_abbrev=False, add_help=True
    )
    parser.add_argument("--scale", type=share, default=1.0, help="share of the full amount; 0.1 for a quick look")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median is shown (3)")
    parser.add_argument(
        "--folder", type=Path, default=OUT, help="where the data is written: the file system that is measured"
    )
    return parser


def scaled(count: int, scale: float, step: int = 1) -> int:
    """A share of a full count, in whole steps; at least one."""
    return max(1, round(count * scale / step)) * step


def progress(text: str) -> None:
    """Say on stderr what is measured now; on a terminal each line takes the place of the one before."""
    start, end = ("\r\x1b[2K", "") if sys.stderr.isatty() else ("", "\n")
    if text or not end:
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder for data, removed afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="data-") as path:
        yield Path(path)


@contextlib.contextmanager
def prepared_data() -> Iterator[None]:
    """The collector does not look at what was prepared: no product would hold a million rows in small batches."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def settle() -> None:
    """Wait until the disk has nothing of earlier runs to do, removals included: a sync pays for what is around it."""
    os.sync()


def best(measure: Callable[[], float]) -> float:
    """The least of some attempts. A limit is what a disk can do; a stall of the system is no limit.

    Seen: one attempt in four waited for memory of the page cache and took five times as long as the others, most often
    right after a run of ours, which then seemed to be faster than the disk.
    """
    return min(measure() for _ in range(LIMIT_ATTEMPTS))


def plain_write_seconds(folder: Path, size: int, syncs: int) -> float:
    """The limit of a log: so many bytes in so many plain writes, each followed by an fdatasync, to one file."""
    data = np.random.default_rng(1).bytes(-(-size // syncs))
    return best(lambda: _plain_write_seconds(folder, data, syncs))


def _plain_write_seconds(folder: Path, data: bytes, syncs: int) -> float:
    path = folder / "limit"
    settle()
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        start = time.perf_counter()
        for _ in range(syncs):
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            os.fdatasync(descriptor)
        return time.perf_counter() - start
    finally:
        os.close(descriptor)
        path.unlink()


def drop_from_cache(path: Path) -> None:
    """The next read of the file comes from the disk. Only clean pages can be dropped, so it is synced before."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def scan(path: Path) -> int:
    """The limit of a checked read: map the file and compute the CRC of every byte; its size is returned."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        zlib.crc32(mapped)
        return len(mapped)
