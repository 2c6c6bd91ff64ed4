"""A slot that is behind us shows what it would send again; that may take the server long, and shows while it does.

After a crash of the server that is all WAL since the last checkpoint or two: minutes, in which nothing else moves.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from cdc.source.connections import Connection
from cdc.source.errors import ConnectionFault, SlotBusy, SourceError
from cdc.source.limits import HISTORY_SECONDS_MAX
from cdc.source.lsn import Lsn, format_lsn
from cdc.source.refusals import history_refusal
from cdc.source.slot_commands import last_commit_below


@dataclass(frozen=True, slots=True)
class Look:
    """What the server has been asked to look up."""

    start: Lsn
    """From here on it reads its WAL."""
    end: Lsn
    pid: int
    """Its process that does so."""
    started: float
    """By the monotonic clock."""

    @property
    def size(self) -> int:
        """Bytes of WAL to be read."""
        return self.end - self.start

    def __str__(self) -> str:
        where = f"from {format_lsn(self.start)} to {format_lsn(self.end)}"
        return f"process {self.pid} decodes the WAL {where}, {self.size:,} bytes"


async def look_back(control: Connection, slot: str, options: Mapping[str, str], end: Lsn) -> int | None:
    """As `last_commit_below`, for as long as the server may take, and with our names for what goes wrong."""
    try:
        async with asyncio.timeout(HISTORY_SECONDS_MAX):
            return await last_commit_below(control, slot, options, end)
    except TimeoutError:
        raise ConnectionFault(f"the server did not look up what it forgot within {HISTORY_SECONDS_MAX:g} s") from None
    except SlotBusy:
        raise  # by whom, is for others to find out
    except SourceError as failed:
        raise history_refusal(failed, control.info.user) from None
