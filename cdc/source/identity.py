"""Is this still the stream that our data came from? Asked on every connection, before its first change (A2).

`judge` decides from two sets of facts: what was kept with G, and what the server says now. It is pure; the facts are
read in `server_state.py`. Nothing here trusts START_REPLICATION, which silently skips what a slot no longer has.

Invariants:
    a verdict is one of `Proceed`, with which streaming may begin, or it carries the refusal that must be raised
    Resume or Behind: same system, timeline, database, slot and options, and confirmed <= G <= the server's WAL
    confirmed > G is never Resume or Behind: what lies between will not be sent again
    a changed publication never hides a gap, a lost slot or another server

A disk that is set back to an earlier moment has the same system and timeline, and once it is written past G nothing of
the above differs: only the slot stands below G. It also does after a crash of the server, which writes slots lazily.
What tells the two apart is what the slot sends again (`compare_histories`): the last commit below G must be the one
that we had. Its time tells, to the microsecond.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cdc.source.errors import OtherServer, Refusal, SlotAhead, SlotExists, SlotLost
from cdc.source.lsn import LSN_ZERO, Lsn, format_lsn
from cdc.source.publication import PublicationChange, PublicationState, changes_between
from cdc.source.slot import PLUGIN, SlotState

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Identity:
    """What must stay the same for G to mean anything. Kept with G by the layers above."""

    system: str
    timeline: int
    database: str
    slot: str
    options: Mapping[str, str]
    """Of the output plugin: what it is told to send."""
    publication: PublicationState


@dataclass(frozen=True, slots=True)
class Known:
    """What we have: the identity, and how far all is durable (G)."""

    identity: Identity
    durable: Lsn
    commit_times_at: Callable[[Lsn], tuple[int, ...]] | None = None
    """What the last commit below a place may have been of, microseconds since 1970: one time for a place that we kept a
    G of, two for one between two of these; 0 where none came, nothing below where our stream began. Itself None:
    nobody knows, and histories are not compared."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server says now."""

    identity: Identity
    slot: SlotState | None
    wal_end: Lsn
    switch_points: Mapping[int, Lsn] = field(default_factory=dict)
    """For each earlier timeline of the server's history, where it was left."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing is known and there is no slot, or one to adopt: all begins here."""

    slot: SlotState | None


@dataclass(frozen=True, slots=True)
class Resume:
    """The slot stands where we do."""

    start: Lsn


@dataclass(frozen=True, slots=True)
class Behind:
    """The slot did not hear our last confirmation, or lost it in a crash. It may send again what we have."""

    start: Lsn
    confirmed: Lsn


@dataclass(frozen=True, slots=True)
class PublicationChanged:
    """The stream goes on, but for these tables it may have had a hole: what is followed in them ends here.

    That is compared with what was known when the connection was asked for, which takes a while: see `altered_since`.
    """

    changes: tuple[PublicationChange, ...]
    position: Resume | Behind

    @property
    def start(self) -> Lsn:
        """Where streaming begins: the publication does not move it."""
        return self.position.start


@dataclass(frozen=True, slots=True)
class OtherTimeline:
    """A standby was promoted, or a backup restored. What follows belongs to another history.

    The layers above may go on only if all that they ever received lies at or below the switch point; G starts anew.
    """

    timeline: int
    switch_point: Lsn | None
    """Where our timeline was left; None if the server's history does not have it."""
    confirmed: Lsn

    def continues(self, received: Lsn) -> bool:
        """Whether a process that received nothing above `received` shares all of it with the new timeline."""
        return self.switch_point is not None and received <= self.switch_point and self.confirmed <= received


@dataclass(frozen=True, slots=True)
class OtherHistory:
    """The server was set back to an earlier moment, and written to since: what we have is not what it committed."""

    confirmed: Lsn
    reason: str


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A slot of this name is there, and nothing of ours says that we made it."""

    slot: SlotState


@dataclass(frozen=True, slots=True)
class Lost:
    """The slot is gone, or can bring nothing any more."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AheadGap:
    """Confirmed beyond what we have."""

    confirmed: Lsn
    durable: Lsn


@dataclass(frozen=True, slots=True)
class OtherSystem:
    """Another server, another database, or the same one set back to an earlier state."""

    reason: str


Proceed = Fresh | Resume | Behind | PublicationChanged | OtherTimeline | OtherHistory
Refused = Unclaimed | Lost | AheadGap | OtherSystem
Verdict = Proceed | Refused


def judge(known: Known | None, now: ServerState, *, adopt: bool = False) -> Verdict:
    """Compare what we kept with what the server says."""
    if known is None:
        return _judge_unknown(now, adopt=adopt)
    then = known.identity
    if (then.system, then.database) != (now.identity.system, now.identity.database):
        return OtherSystem(_difference(then, now.identity))
    slot = now.slot
    if slot is None:
        return Lost(then.slot, "there is no such slot on the server")
    if loss := _useless(slot, then.database):
        return Lost(slot.name, loss)
    confirmed = slot.confirmed_flush_lsn or LSN_ZERO
    if then.timeline != now.identity.timeline:
        return OtherTimeline(now.identity.timeline, now.switch_points.get(then.timeline), confirmed)
    if confirmed > known.durable:
        return AheadGap(confirmed, known.durable)
    if now.wal_end < known.durable:
        return OtherSystem(
            f"its WAL ends at {format_lsn(now.wal_end)}, and we have all up to {format_lsn(known.durable)}: "
            "it was set back to an earlier state"
        )
    position = Resume(confirmed) if confirmed == known.durable else Behind(known.durable, confirmed)
    changes = altered_since(then, now.identity)
    return PublicationChanged(changes, position) if changes else position


def altered_since(then: Identity, now: Identity) -> tuple[PublicationChange, ...]:
    """In what the stream of the same history brings."""
    changes = changes_between(then.publication, now.publication)
    if then.options != now.options:
        changes = (PublicationChange(None, "the options of the stream changed"), *changes)
    return changes


def compare_histories(known: Known, confirmed: Lsn, again: int | None) -> OtherHistory | None:
    """Whether what the slot sends again below G is what we had.

    `again` is the time of its last commit; None where there is none: then ours must lie below `confirmed` too. That is
    mostly one of the Gs that we had, but a connection confirms no more than it brought, and ends at any moment.
    """
    if known.commit_times_at is None:
        return None
    (ours,), before = known.commit_times_at(known.durable), known.commit_times_at(confirmed)
    if not ours and not before:
        return (
            None  # nothing came yet, and the slot forgot even where our stream began: all it shows may lie below that
        )
    if ours in (before if again is None else (again,)):
        return None
    what = "has no commit" if again is None else f"ends with another commit, of {_moment(again)}"
    had = f"ours was of {_moment(ours)}" if ours else "we had none"
    return OtherHistory(
        confirmed,
        f"its WAL from {format_lsn(confirmed)} to {format_lsn(known.durable)} {what}, and {had}: "
        "the server was set back to an earlier moment, and written to since",
    )


def refusal(verdict: Refused) -> Refusal:
    """The error that says to a person what the verdict means."""
    match verdict:
        case Unclaimed(slot):
            return SlotExists(f"the slot {slot.name!r} exists already", plugin=slot.plugin, database=slot.database)
        case Lost(name, reason):
            return SlotLost(f"the slot {name!r} is lost: {reason}")
        case AheadGap(confirmed, durable):
            return SlotAhead(
                f"the changes from {format_lsn(durable)} to {format_lsn(confirmed)} are missing here, "
                "and the slot will not send them again",
                bytes=confirmed - durable,
            )
        case OtherSystem(reason):
            return OtherServer(f"this is not where our data came from: {reason}")


def _judge_unknown(now: ServerState, *, adopt: bool) -> Verdict:
    if now.slot is None:
        return Fresh(None)
    if not adopt:
        return Unclaimed(now.slot)
    if loss := _useless(now.slot, now.identity.database):
        return Lost(now.slot.name, loss)
    return Fresh(now.slot)


def _useless(slot: SlotState, database: str) -> str | None:
    if slot.plugin != PLUGIN:
        return f"it is for {slot.plugin or 'physical replication'}, not for {PLUGIN}"
    if slot.database != database:
        return f"it belongs to the database {slot.database!r}"
    return slot.loss


def _moment(microseconds: int) -> str:
    return str(_EPOCH + timedelta(microseconds=microseconds))


def _difference(then: Identity, now: Identity) -> str:
    if then.system != now.system:
        return f"its system identifier is {now.system}, ours came from {then.system}"
    return f"it is the database {now.database!r}, ours came from {then.database!r}"
