"""What many logs have in the journal, as arrays.

Invariants:
    log after log; each log's shares stand in the order of their last rows, then of what they claim
    all that the logs have in young files is there, or a cut left the whole log out
"""

from typing import NamedTuple

import numpy as np

from storage.rows import Integers, Unsigned
from storage.scan import BlockRef


class Scattered(NamedTuple):
    """The shares that some logs have in young files."""

    columns: dict[str, Unsigned]
    """As in a directory."""
    codes: Unsigned
    block: Integers
    """Of each share, which of `refs` it is in."""
    refs: list[BlockRef]
    oldest: int
    """The number of the oldest file."""

    def up_to(self, bytes_max: int) -> "Scattered":
        """So many of the logs as have about so many bytes; at least one."""
        row_bytes = np.array([ref.header.payload_size // max(1, ref.header.rows) for ref in self.refs], np.int64)
        size = np.cumsum(self.columns["rows"].astype(np.int64) * row_bytes[self.block])
        fits = max(1, int(np.searchsorted(size, bytes_max, side="right")))
        if fits == len(size):
            return self
        logs = self.columns["log"]
        kept = max(int(np.searchsorted(logs, logs[fits])), int(np.searchsorted(logs, logs[0], side="right")))
        columns = {name: values[:kept] for name, values in self.columns.items()}
        return Scattered(columns, self.codes[:kept], self.block[:kept], self.refs, self.oldest)
