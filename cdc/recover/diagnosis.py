"""What is wrong with a folder and its stream, what that costs, and which way leads out. Pure.

    what is found                                       way
    the catalog cannot be read                          FOLDER   set aside; the shapes are added again
    G or the stream's record cannot be read             STREAM   a new slot, new snapshots of all shapes
    the slot is lost, ahead of us, or another server's  STREAM
    the publication is gone                             STREAM
    a slot of this name is there, and not known as ours STREAM   and a person must say that it may go
    a log is damaged                                    SHAPES   new snapshots of these shapes
    none of these                                       NOTHING

Invariants:
    the verdict on the stream is that of the session itself (`identity.judge`): what it refuses, this explains
    a slot is dropped only if it is ours, or a person said so
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from cdc.errors import NothingToRecover
from cdc.source.identity import (
    AheadGap,
    Known,
    Lost,
    OtherSystem,
    OtherTimeline,
    PublicationChanged,
    ServerState,
    Unclaimed,
    judge,
    refusal,
)
from cdc.source.lsn import format_lsn


class Way(IntEnum):
    """How things are mended; a greater one mends what a smaller one does."""

    NOTHING = 0
    SHAPES = 1
    STREAM = 2
    FOLDER = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, or that the next start will do by itself (way NOTHING)."""

    code: str
    text: str
    loss: str
    way: Way


@dataclass(frozen=True, slots=True)
class Found:
    """What the folder and the server say."""

    slot: str
    faults: Mapping[str, str] = field(default_factory=dict)
    """Of `catalog`, `progress` and `stream.json`: why they cannot be read."""
    known: Known | None = None
    is_claimed: bool = False
    """The slot was about to be made by us."""
    system: str | None = None
    """The system identifier of the last G, which may be known when the stream's record is not."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Shapes by name or handle: why their logs cannot be trusted."""
    living: Mapping[str, str | None] = field(default_factory=dict)
    """Shapes that have not ended, by handle: their names."""
    server: ServerState | None = None
    server_fault: str | None = None


SNAPSHOTS = "shapes get their tables' rows as they are now; what changed meanwhile is not told change by change"
NEW_READERS = f"{SNAPSHOTS}, and all readers begin anew"


def diagnose(found: Found) -> list[Trouble]:
    """Everything that is wrong, the worst first."""
    troubles = [*_folder_troubles(found), *_stream_troubles(found), *_shape_troubles(found)]
    return sorted(troubles, key=lambda trouble: -trouble.way)


def _folder_troubles(found: Found) -> list[Trouble]:
    ways = {
        "catalog": (Way.FOLDER, "which shapes there were is not known: they have to be added again"),
        "progress": (Way.STREAM, f"how far the slot was confirmed is not known: {NEW_READERS}"),
        "stream.json": (Way.STREAM, f"which stream the data came from is not known: {NEW_READERS}"),
    }
    return [
        Trouble("damaged", f"{name} cannot be read: {fault}", ways[name][1], ways[name][0])
        for name, fault in found.faults.items()
    ]


def _stream_troubles(found: Found) -> list[Trouble]:
    if found.server is None:
        text = found.server_fault or "it was not asked"
        return [Trouble("server_unknown", f"the server says nothing: {text}", "nothing", Way.NOTHING)]
    if {"progress", "stream.json"} & found.faults.keys():
        return []  # there is nothing to compare the server with
    server = found.server
    match judge(found.known, server, adopt=found.is_claimed):
        case Unclaimed() | Lost() | OtherSystem() as verdict:
            error = refusal(verdict)
            return [Trouble(error.code, error.message, NEW_READERS, Way.STREAM)]
        case AheadGap(confirmed, durable) as verdict:
            loss = f"the changes from {format_lsn(durable)} to {format_lsn(confirmed)}; {NEW_READERS}"
            return [Trouble(refusal(verdict).code, refusal(verdict).message, loss, Way.STREAM)]
        case _ if found.known is not None and server.identity.publication.oid is None:
            text = f"the publication {server.identity.publication.name!r} is gone; the slot cannot be read without it"
            return [Trouble("not_published", text, NEW_READERS, Way.STREAM)]
        case PublicationChanged(changes):
            text = "; ".join(change.text for change in changes)
            loss = "nothing to do: the next start takes new snapshots of the shapes of these tables"
            return [Trouble("publication_altered", text, loss, Way.NOTHING)]
        case OtherTimeline(timeline):
            text = f"the server is on timeline {timeline}: a standby was promoted, or a backup restored"
            loss = "nothing to do: the next start takes new snapshots of all shapes"
            return [Trouble("other_timeline", text, loss, Way.NOTHING)]
    return []


def _shape_troubles(found: Found) -> list[Trouble]:
    return [
        Trouble("damaged", f"the log of {name}: {fault}", SNAPSHOTS, Way.SHAPES)
        for name, fault in found.damaged.items()
    ]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for."""

    shapes: tuple[str, ...] = ()
    """By name or handle; none is all."""
    new_stream: bool = False
    """Also if nothing is found wrong with it: it brings something that cannot be taken."""
    drop_slot: bool = False
    """Also a slot that is not known as ours."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in this order."""

    sets_aside: tuple[str, ...]
    """Beginnings of the names of files and folders that are moved out of the way."""
    ends: tuple[str, ...] | None
    """These shapes; None is all."""
    drops_slot: bool
    forgets_stream: bool


EVERYTHING = ("catalog", "progress", "stream.json", "logs", "journal")


def plan(found: Found, wish: Wish) -> Plan:
    """The way out; raises `NothingToRecover` for what is no way."""
    way = max((trouble.way for trouble in diagnose(found)), default=Way.NOTHING)
    if wish.new_stream:
        way = max(way, Way.STREAM)
    if way <= Way.SHAPES:
        refuse_unknown(wish.shapes, found.living)
        return Plan((), wish.shapes or None, drops_slot=False, forgets_stream=False)
    if wish.shapes:
        raise NothingToRecover(
            "the stream itself cannot go on, so a new snapshot of some shapes is not enough",
            hint="Leave out the names: all shapes get new ones.",
        )
    if found.server is None:
        raise NothingToRecover(
            f"the stream begins anew, and the server does not say what is to become of the slot: {found.server_fault}",
            hint="Say with --database where it is.",
        )
    slot = found.server.slot
    if slot is not None and slot.active_pid is not None:
        raise NothingToRecover(
            f"the slot {slot.name!r} is being read, by process {slot.active_pid} of the server",
            hint="Stop that reader first.",
        )
    if slot is not None and not (wish.drop_slot or is_ours(found)):
        raise NothingToRecover(
            f"the slot {slot.name!r} is in the way, and nothing here says that it is ours",
            hint="Say --drop-slot if nobody else needs it, or start with another --slot and another folder.",
        )
    sets_aside = EVERYTHING if way is Way.FOLDER else tuple(name for name in found.faults if name == "progress")
    return Plan(sets_aside, None, drops_slot=slot is not None, forgets_stream=True)


def refuse_unknown(wanted: Iterable[str], living: Mapping[str, str | None]) -> None:
    """Raise `NothingToRecover` for names and handles that no living shape has."""
    names = {name for name in living.values() if name is not None}
    if unknown := [one for one in wanted if one not in names and one not in living]:
        raise NothingToRecover(
            f"no living shape has the name or handle {', '.join(unknown)}",
            hint=f"Those with a name are: {', '.join(sorted(names)) or 'none'}.",
        )


def is_ours(found: Found) -> bool:
    """Whether the slot on the server is the one that the folder's data came from."""
    server = found.server
    if server is None or server.slot is None or server.slot.database != server.identity.database:
        return False
    if found.is_claimed:
        return True
    if found.known is not None:
        then = found.known.identity
        return (then.system, then.database, then.slot) == (
            server.identity.system,
            server.identity.database,
            server.slot.name,
        )
    return bool(found.faults) and found.system == server.identity.system
