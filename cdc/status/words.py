"""What a status says in words: why G is where it is, and how long the slot lasts. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from cdc.source.lsn import format_lsn
from cdc.wording import size_words, span_words
from flush_tracker.explanation import Explanation, Hold


def server_fault_words(database_url: str, fault: str) -> str:
    """Why the server says nothing; where nobody said which, what would have said it."""
    fault = " ".join(fault.split())  # libpq's have lines
    if database_url:
        return fault
    return (
        f"{fault.removesuffix('.')}. Nobody said where Postgres is, so libpq's own defaults were tried: "
        "give --database-url, or set SHAPELOG_DATABASE_URL or DATABASE_URL"
    )


def hold_words(explained: Explanation, name_of: Callable[[int], str]) -> str:
    """Why G is where it is: who holds it, by which transaction, since when, and what would free it."""
    g = format_lsn(explained.g.lsn)
    match explained.hold:
        case Hold.NOTHING:
            return f"nothing holds G: everything up to {g} is on disk, and that is all that the server has sent"
        case Hold.OPEN_TRANSACTION:
            at = format_lsn(explained.open_tx or 0)
            return f"G is {g}: the transaction that commits at {at} is being received; freed by {explained.freed_by}"
    holder = explained.holder
    assert holder is not None, "a hold by a shape has a holder"
    name = name_of(holder.shape)
    if holder.first is None or explained.hold is Hold.JOINING:
        return f"G is {g}: shape {name} is being born, for {span_words(holder.seconds)}; freed by {explained.freed_by}"
    size = "" if holder.bytes_pending is None else f", {size_words(holder.bytes_pending)}"
    others = explained.shapes_pending - 1
    more = f"; {others:,} other shapes have something pending too" if others > 0 else ""
    return (
        f"G is {g}: shape {name} has rows of the transaction at {format_lsn(holder.first.aligned.tx)} "
        f"that are not on disk, for {span_words(holder.seconds)} ({holder.transactions_pending:,} transactions{size} "
        f"pending); freed by {explained.freed_by}{more}"
    )


def look_words(look: Mapping[str, Any]) -> str:
    """What keeps a new connection from beginning its stream; of the `look` of a status."""
    where = f"from {look['from_lsn']} to {look['to_lsn']}, {size_words(look['bytes'])}"
    return (
        f"the slot is behind what was confirmed, and the server looks up what it would send again: its process "
        f"{look['pid']} decodes the WAL {where}, since {look['since']}, for {span_words(look['seconds'])}; "
        f"after {span_words(look['seconds_max'])} it is asked anew"
    )


def cost_words(slot: Mapping[str, Any]) -> str:
    """What the slot costs; of the `slot` of a status."""
    if not slot["exists"]:
        return "there is no such slot; `shapelog recover` says whether there should be"
    if slot["loss"]:
        return f"lost: {slot['loss']}; `shapelog recover` explains the way out"
    retained = size_words(slot["retained_bytes"] or 0)
    if slot["safe_wal_bytes"] is None:
        return f"keeps {retained} of WAL; the server sets no limit, so it can fill its disk{_pace(slot)}"
    room = size_words(max(slot["safe_wal_bytes"], 0))
    if slot["seconds_left"] is None:
        return f"keeps {retained} of WAL; lost after {room} more"
    rate = size_words(round(slot["wal_bytes_per_second"]))
    return f"keeps {retained} of WAL; lost after {room} more, in {span_words(slot['seconds_left'])} at {rate}/s"


def _pace(slot: Mapping[str, Any]) -> str:
    """How fast that may happen."""
    rate = slot.get("wal_bytes_per_second")
    return f": WAL grows by {size_words(round(rate * 3600))} an hour" if rate else ""


def insurance_words(insurance: Mapping[str, Any]) -> str:
    """What slot insurance does; of the `insurance` of a status."""
    used, budget = insurance["used_percent"], size_words(insurance["budget_bytes"] or 0)
    whose = "--wal-budget" if insurance["budget_is_own"] else "max_slot_wal_keep_size"
    why = insurance["ends_nobody_because"]
    more = f"; no shape ends now: {why}" if why else ""
    return f"{used:g} % of the WAL budget of {budget} ({whose}) is used: {insurance['does']}{more}"
