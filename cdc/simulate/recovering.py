"""What a person does whose slot is lost: `shapelog recover --resnapshot`, its own parts over the simulated disk."""

from pathlib import Path
from typing import Any

from cdc.recover.diagnosis import Found, Wish, plan
from cdc.recover.recovery import Place, recover
from cdc.simulate.session import server_state
from cdc.simulate.surroundings import Surroundings
from cdc.source.identity import Known
from cdc.source.lsn import Lsn
from shapes.stream_record import read_stream_record
from storage.catalog import Catalog
from storage.faulty_disk import FaultyDisk
from storage.progress import ProgressLog


class OpenDisk:
    """The disk as a command opens it, which closes it when it ends; the disk stays."""

    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the disk has
        return getattr(self._disk, name)

    def close(self) -> None:
        """It ends with the process."""


async def recover_lost_slot(around: Surroundings) -> None:
    """Look, and do what mends it; may be done again if something fails on the way."""
    record = read_stream_record(around.disk)
    identity = None if record is None else record.identity
    last = None if record is None or identity is None else ProgressLog(around.disk).history.last_of(record.incarnation)
    found = Found(
        slot="shapelog",
        known=None if identity is None else Known(identity, Lsn(0 if last is None else last.lsn)),
        is_claimed=record is not None and identity is None,
        living={shape.handle: shape.name for shape in Catalog(around.disk).state.living()},
        server=server_state(around),
    )
    await recover(Place(Path(), "", "shapelog", "shapelog"), found, plan(found, Wish()))
