"""Finding out what is wrong, and doing what mends it: the shell around `diagnosis`.

The steps of a recovery are in an order in which each may be the last before a crash; run again, it goes on:

    set aside   what cannot be read
    end         the shapes, in the catalog: their successors are born at the next start
    drop        the slot
    forget      the stream: the next start makes a slot
"""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.inspect.folder import opened
from cdc.recover.diagnosis import EVERYTHING, Found, Plan, refuse_unknown
from cdc.source.catalog import read_publication
from cdc.source.connections import connect_once, connect_replication
from cdc.source.errors import SourceError
from cdc.source.handshake import Settings
from cdc.source.identity import Known, ServerState
from cdc.source.lsn import Lsn
from cdc.source.server_state import read_server_state
from cdc.source.slot_commands import drop_slot
from cdc.status.folder_report import FolderFacts, counted
from cdc.status.words import server_fault_words
from shapes.endings import below
from shapes.registry import Registry
from shapes.stream_record import forget_stream
from storage.catalog import Catalog
from storage.catalog_records import Ended
from storage.disk import LocalDisk
from storage.errors import StorageError
from storage.folder_lock import FolderLock
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import ProgressReader

logger = logging.getLogger(__name__)

RESNAPSHOT: Final = "resnapshot"
"""Why a shape ended that a person wanted a new snapshot of; its successor is born at the next start."""

APPLICATION: Final = "shapelog recover"
ASIDE: Final = "set-aside"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the folder and the server are."""

    data_dir: Path
    conninfo: str
    slot: str
    publication: str


async def find(place: Place) -> Found:
    """Look at the folder and at the server; neither is changed."""
    with opened(place.data_dir) as disk:
        facts = FolderFacts(disk)
        damaged = {
            shape.name or shape.handle: str(counts if isinstance(counts, StorageError) else counts.fault)
            for shape, counts in counted(facts)
            if isinstance(counts, StorageError) or counts.fault is not None
        }
    record = facts.record
    identity = None if record is None else record.identity
    slot = place.slot if record is None else record.slot
    server: ServerState | None = None
    fault = None
    try:
        server = await _ask(place, slot, place.publication if identity is None else identity.publication.name)
    except SourceError as refused:
        fault = server_fault_words(place.conninfo, str(refused))
    return Found(
        slot=slot,
        faults={name: str(error) for name, error in facts.faults.items()},
        known=None if identity is None else Known(identity, Lsn(facts.g or 0)),
        is_claimed=record is not None and identity is None,
        system=None if facts.latest is None else str(facts.latest.incarnation.system_identifier),
        damaged=damaged,
        living={shape.handle: shape.name for shape in facts.shapes},
        server=server,
        server_fault=fault,
    )


async def _ask(place: Place, slot: str, publication: str) -> ServerState:
    settings = Settings(conninfo=place.conninfo, slot=slot, publication=publication)
    control = await connect_once(place.conninfo, APPLICATION)
    try:
        replication = await connect_replication(place.conninfo, APPLICATION)
        try:
            state = await read_publication(control, publication)
            return await read_server_state(control, replication, slot, state, settings.plugin_options)
        finally:
            await replication.close()
    finally:
        await control.close()


async def recover(place: Place, found: Found, plan: Plan) -> list[str]:
    """Do it; what was done, a line each. The caller holds the folder's lock."""
    done = []
    if plan.sets_aside:
        done.append(f"what cannot be read is in {_set_aside(place.data_dir, plan.sets_aside)}")
        if plan.sets_aside == EVERYTHING:  # the numbers of logs begin anew
            done.append(
                "a lake that was made from the folder goes on from it with `shapelog materialize --adopt`, once"
            )
    disk = LocalDisk(place.data_dir)
    try:
        ended = end_shapes(disk, plan.ends)
        done.append(f"{len(ended)} shapes ended: {', '.join(ended) or 'there were none'}")
        if plan.drops_slot:
            control = await connect_once(place.conninfo, APPLICATION)
            try:
                await drop_slot(control, found.slot)
            finally:
                await control.close()
            done.append(f"the slot {found.slot!r} is dropped")
        if plan.forgets_stream:
            forget_stream(disk)
            done.append("the next start makes a new slot")
    finally:
        disk.close()
    return done


def locked(data_dir: Path) -> FolderLock:
    """The folder for us alone; raises `FolderInUse` while a server runs on it."""
    return FolderLock(data_dir, started_at=time.time_ns() // 1000)


def end_shapes(disk: LocalDisk, wanted: tuple[str, ...] | None) -> list[str]:
    """End these shapes, or all, in the catalog: those with a name get successors at the next start. Their names."""
    registry = Registry(Catalog(disk), lambda: time.time_ns() // 1000, time.monotonic())
    living = registry.living()
    if wanted is not None:
        refuse_unknown(wanted, {entry.handle: entry.shape.name for entry in living})
        living = [entry for entry in living if {entry.handle, entry.shape.name} & {*wanted}]
    place = _confirmed(disk)
    registry.all_ended(Ended(entry.handle, place, RESNAPSHOT) for entry in living)
    return [entry.shape.name or entry.handle for entry in living]


def _confirmed(disk: LocalDisk) -> LogOffset:
    """What every log was whole up to when the server was told last; to look into each would take long."""
    progress = ProgressReader(disk)
    try:
        progress.refresh()
    except StorageError as fault:
        logger.debug("where the shapes end is not known: %s", fault)
    latest = progress.history.latest
    return SNAPSHOT_END if latest is None else below(latest.lsn)


def _set_aside(data_dir: Path, names: tuple[str, ...]) -> Path:
    aside = data_dir / f"{ASIDE}-{time.time_ns() // 1_000_000_000}"
    aside.mkdir(exist_ok=True)
    for path in sorted(data_dir.iterdir()):
        if path.name.startswith(names) and path != aside:
            path.rename(aside / path.name)
    for name in ("logs", "journal"):
        (data_dir / name).mkdir(exist_ok=True)
    disk = LocalDisk(data_dir)
    disk.sync_folder("")
    disk.close()
    return aside
