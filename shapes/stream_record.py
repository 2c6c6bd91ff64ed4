"""The file that says which stream the data of a folder came from: kept beside G, compared on every connection (A2).

    claimed   the slot's name is written down before the slot is made: if a crash comes between, it is still ours
    known     the slot's identity, and the incarnation that G's records carry

Invariant: a folder with a G record has a known stream; the file is synced before that record.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from cdc.source.identity import Identity
from cdc.source.publication import Member, PublicationState
from shapes.errors import StreamRecordDamaged
from storage import small_file
from storage.disk import Disk
from storage.errors import StorageError, named_faults
from storage.progress import Incarnation

PATH: Final = "stream.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What is known of the stream."""

    slot: str
    identity: Identity | None = None
    epoch: int = 0
    """When the slot's life began for us: microseconds since 1970, later than that of any life before."""
    start: int = 0
    """Where it began: G before the first record of G."""

    @property
    def incarnation(self) -> Incarnation:
        assert self.identity is not None, "a slot that was only claimed has no incarnation"
        return Incarnation(int(self.identity.system), self.identity.timeline, self.epoch)

    def encoded(self) -> dict[str, Any]:
        identity = None if self.identity is None else asdict(self.identity)
        if identity is not None:
            for members in ("tables", "schemas"):
                by_oid = identity["publication"][members]
                identity["publication"][members] = [{"member": oid, **facts} for oid, facts in by_oid.items()]
        return {"format": _FORMAT, "slot": self.slot, "epoch": self.epoch, "start": self.start, "identity": identity}

    @classmethod
    def decoded(cls, facts: dict[str, Any]) -> Self:
        if facts.get("format") != _FORMAT:
            raise StreamRecordDamaged(f"{PATH} has format {facts.get('format')}, this program reads {_FORMAT}")
        try:
            identity = facts["identity"]
            if identity is not None:
                state = identity["publication"]
                state |= {name: tuple(state[name]) for name in ("actions",)}
                state |= {name: _members(state[name]) for name in ("tables", "schemas")}
                identity = Identity(**(identity | {"publication": PublicationState(**state)}))
            return cls(facts["slot"], identity, facts["epoch"], facts["start"])
        except (KeyError, TypeError, ValueError) as error:
            raise StreamRecordDamaged(f"{PATH} is incomplete: {error!r}") from None


def _members(listed: list[dict[str, Any]]) -> dict[int, Member]:
    members = {}
    for facts in listed:
        columns = facts["columns"]
        oid = facts.pop("member")
        members[oid] = Member(**(facts | {"columns": None if columns is None else tuple(columns)}))
    return members


def read_stream_record(disk: Disk) -> StreamRecord | None:
    """What the folder says; None for a new one."""
    with named_faults(PATH, shared=True):
        try:
            data = small_file.content(disk, PATH)
        except FileNotFoundError:
            return None
    try:
        return StreamRecord.decoded(small_file.decode(data, PATH))
    except StorageError as error:
        raise StreamRecordDamaged(error.message) from None


def write_stream_record(disk: Disk, record: StreamRecord) -> None:
    """Keep it; on disk when this returns."""
    with named_faults(PATH, shared=True):
        small_file.write(disk, PATH, record.encoded())


def forget_stream(disk: Disk) -> None:
    """The folder's next start begins with a new slot."""
    with named_faults(PATH, shared=True):
        if disk.exists(PATH):
            disk.remove(PATH)
            disk.sync_folder("")
