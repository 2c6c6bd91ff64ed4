"""Who keeps the WAL that the slot keeps, and what would free it: the answer for whoever is called at night. Pure.

Invariants:
    a slot that keeps little has no keeper: every slot keeps something
    each keeper comes with what frees it: a command, a statement, or what to wait for
"""

from dataclasses import dataclass

from cdc.limits import SLOT_CALM_BYTES
from cdc.status.slot_cost import SlotLook
from cdc.wording import size_words
from flush_tracker.explanation import Explanation, Hold


@dataclass(frozen=True, slots=True)
class Custody:
    """Who, and what frees it."""

    holder: str
    freed_by: str


def custody_of(look: SlotLook | None, explained: Explanation | None, name: str | None = None) -> Custody | None:
    """Of a look at the slot. `explained` is None where the server's memory is not ours; `name` is the shape's."""
    if look is None or look.slot is None or look.retained_bytes is None:
        return None
    slot, retained = look.slot, look.retained_bytes
    if slot.loss is not None:
        return Custody("nobody: the slot is lost", "`shapelog recover` explains the way out")
    if retained < SLOT_CALM_BYTES:
        return None
    if slot.active_pid is None:
        drop = f"SELECT pg_drop_replication_slot('{slot.name}');"
        return Custody(
            "nobody: no process reads the slot",
            f"`shapelog serve`, once it runs and has caught up; or, if no server will ever read it again, {drop}",
        )
    if (look.unconfirmed_bytes or 0) < retained / 2:
        return _of_server(look)
    if explained is None:
        return Custody(f"process {slot.active_pid}, which reads the slot", "ask it why: `shapelog status --url URL`")
    return _of_stream(look, explained, name)


def _of_server(look: SlotLook) -> Custody:
    """What was confirmed is far above what is kept: not we hold it."""
    if look.oldest is not None:
        return Custody(f"a transaction on the server: {look.oldest}", f"its end, or {look.oldest.mend}")
    return Custody("a transaction on the server that has ended since", "the server's next checkpoint, by itself")


def _of_stream(look: SlotLook, explained: Explanation, name: str | None) -> Custody:
    match explained.hold:
        case Hold.NOTHING:
            behind = size_words(look.unconfirmed_bytes or 0)
            return Custody(f"the stream: {behind} are still to be read", "time: it is read as fast as the server sends")
        case Hold.OPEN_TRANSACTION:
            return Custody("a large transaction that is being received", explained.freed_by)
    removal = "" if name is None else f"; or, without the shape, `shapelog shapes remove {name}`"
    return Custody(f"the shape {name or '(gone)'}", explained.freed_by + removal)
