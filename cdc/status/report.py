"""The status of a running program, as JSON: G and who holds it, the slot and its cost, births, shapes."""

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Any, Final

from cdc.app import App
from cdc.insurance.insurer import Insurer
from cdc.limits import STATUS_LOGS_MAX
from cdc.source.connections import printable
from cdc.source.limits import HISTORY_SECONDS_MAX
from cdc.source.looking_back import Look
from cdc.source.lsn import format_lsn
from cdc.status.change_rates import ChangeRates
from cdc.status.custody import Custody, custody_of
from cdc.status.shape_facts import awaited_facts, birth_facts, counted, name_of, shape_facts
from cdc.status.slot_cost import SlotLook, WalRate, seconds_left
from cdc.status.slot_watch import SlotWatch
from cdc.status.words import cost_words, hold_words, insurance_words, look_words
from flush_tracker.explanation import Explanation
from shapes.registry import Entry
from shapes.service import ShapeService, State
from storage.log_counts import LogCounts, pending_bytes

_MICROSECONDS: Final = 1_000_000


class StatusDesk:
    """Answers for the program."""

    def __init__(
        self, app: App, service: ShapeService, watch: SlotWatch, rates: ChangeRates, insurer: Insurer | None = None
    ) -> None:
        self.watch = watch
        self.insurer = insurer
        self._rates = rates
        self._app = app
        self._service = service
        self._started = time.time()

    async def status(self) -> dict[str, Any]:
        """All of it, as of now."""
        app, house = self._app, self._app.house
        look = await self.watch.look()
        shapes = await self.shapes()
        explained = self.explain()
        attempt = house.session.attempt
        slot = slot_facts(app.settings.slot, look, self.watch.rate)
        confirmed = slot["confirmed_flush_lsn"]
        if confirmed is None and attempt is not None:
            confirmed = format_lsn(attempt.replies.flushed)
        return {
            "state": (State.WAITING if attempt is None else self._service.state).value,
            "server": printable(app.settings.database_url),
            "data_dir": str(app.settings.data_dir),
            "pid": os.getpid(),
            "started_at": _moment(self._started),
            "connection": {
                "is_up": attempt is not None,
                "made": house.session.attempts_count,
                "fault": None if house.session.fault is None else str(house.session.fault),
                "stuck": None if house.session.standstill.fault is None else str(house.session.standstill.fault),
                "look": look_facts(house.session.look),
            },
            "confirmed_flush_lsn": confirmed,
            "global_flushed_lsn": format_lsn(explained.g.lsn),
            "seen_lsn": format_lsn(explained.seen.lsn),
            "held_by": self._held_by(explained),
            "explanation": hold_words(explained, self._name_of),
            "disk_fault": self._disk_fault(),
            "slot": slot
            | {"explanation": cost_words(slot) if look is not None else self.watch.fault}
            | custody_facts(custody_of(look, explained, self._holder_name(explained))),
            "insurance": None if self.insurer is None else insurance_facts(self.insurer.facts),
            "births": self.births(),
            "shapes": shapes,
        }

    async def shapes(self) -> list[dict[str, Any]]:
        """Every shape that lives; of those beyond STATUS_LOGS_MAX without rows and positions, named ones first."""
        living = self._app.house.registry.living()
        looked = sorted(living, key=lambda entry: entry.shape.name is None)[:STATUS_LOGS_MAX]
        counts = await asyncio.to_thread(
            lambda: {entry.handle: counted(self._app.house.store, entry) for entry in looked}
        )
        return [self._facts(entry, counts.get(entry.handle)) for entry in living]

    def births(self) -> list[dict[str, Any]]:
        """Those under way, and names that wait for the next attempt at a successor."""
        nursery = self._app.nursery
        return [*map(birth_facts, nursery.orders), *map(awaited_facts, nursery.awaited)]

    async def shape(self, entry: Entry) -> dict[str, Any]:
        """One."""
        return self._facts(entry, await asyncio.to_thread(counted, self._app.house.store, entry))

    def explain(self) -> Explanation:
        """Why G is where it is."""
        house = self._app.house
        return house.collector.tracker.explain(house.clocks.monotonic(), self._bytes_pending)

    def _facts(self, entry: Entry, counts: LogCounts | None) -> dict[str, Any]:
        readers = self._app.house.registry.readers_of(entry.handle)
        return shape_facts(entry, counts, readers, self._rates.of(entry.log))

    def _held_by(self, explained: Explanation) -> dict[str, Any] | None:
        holder = explained.holder
        if holder is None:
            return None
        member = self._app.house.collector.members.get(holder.shape)
        first = holder.first
        return {
            "handle": None if member is None else member.handle,
            "name": self._name_of(holder.shape),
            "hold": explained.hold.value,
            "transaction": None if first is None else format_lsn(first.aligned.tx),
            "committed_at": None if first is None else _moment(first.commit_time / _MICROSECONDS),
            "since": _moment(time.time() - holder.seconds),
            "seconds": round(holder.seconds, 3),
            "transactions_pending": holder.transactions_pending,
            "bytes_pending": holder.bytes_pending,
            "freed_by": explained.freed_by,
        }

    def _holder_name(self, explained: Explanation) -> str | None:
        return None if explained.holder is None else self._name_of(explained.holder.shape)

    def _name_of(self, number: int) -> str:
        return name_of(self._app.house, number)

    def _bytes_pending(self, number: int) -> int | None:
        house = self._app.house
        member = house.collector.members.get(number)
        if member is None or member.log is None:
            return None if member is None or member.held is None else member.held.size
        return pending_bytes(house.store, member.log)

    def _disk_fault(self) -> str | None:
        fault = self._app.house.store.fault or self._app.acknowledger.fault
        return None if fault is None else str(fault)


def look_facts(look: Look | None) -> dict[str, Any] | None:
    """What a new connection waits for before its stream begins, as JSON."""
    if look is None:
        return None
    seconds = time.monotonic() - look.started
    facts = {
        "since": _moment(time.time() - seconds),
        "seconds": round(seconds, 3),
        "seconds_max": HISTORY_SECONDS_MAX,
        "from_lsn": format_lsn(look.start),
        "to_lsn": format_lsn(look.end),
        "bytes": look.size,
        "pid": look.pid,
    }
    return facts | {"explanation": look_words(facts)}


def slot_facts(name: str, look: SlotLook | None, rate: WalRate) -> dict[str, Any]:
    """The slot, as JSON; all is None where nobody could look."""
    slot, decoding = (None, None) if look is None else (look.slot, look.decoding)
    per_second = rate.bytes_per_second
    facts: dict[str, Any] = {
        "name": name,
        "exists": slot is not None,
        "wal_end": None if look is None else format_lsn(look.wal_end),
        "retained_bytes": None if look is None else look.retained_bytes,
        "unconfirmed_bytes": None if look is None else look.unconfirmed_bytes,
        "wal_bytes_per_second": None if per_second is None else round(per_second, 1),
    }
    if slot is None:
        return facts | dict.fromkeys(_SLOT_FACTS)
    return facts | {
        "active_pid": slot.active_pid,
        "restart_lsn": _lsn(slot.restart_lsn),
        "confirmed_flush_lsn": _lsn(slot.confirmed_flush_lsn),
        "wal_status": slot.wal_status,
        "loss": slot.loss,
        "safe_wal_bytes": slot.safe_wal_bytes,
        "seconds_left": seconds_left(slot.safe_wal_bytes, per_second),
        "walsender_state": None if decoding is None else decoding.walsender_state,
        "spilled_bytes": None if decoding is None else decoding.spilled_bytes,
    }


def custody_facts(custody: Custody | None) -> dict[str, str | None]:
    """Who keeps the WAL, as JSON."""
    if custody is None:
        return {"holder": None, "freed_by": None}
    return {"holder": custody.holder, "freed_by": custody.freed_by}


def insurance_facts(insurance: dict[str, Any]) -> dict[str, Any]:
    """What slot insurance does, as JSON; in words too, where something bounds the slot."""
    words = None if insurance["used_percent"] is None else insurance_words(insurance)
    return insurance | {"explanation": words}


_SLOT_FACTS: Final = (
    "active_pid",
    "restart_lsn",
    "confirmed_flush_lsn",
    "wal_status",
    "loss",
    "safe_wal_bytes",
    "seconds_left",
    "walsender_state",
    "spilled_bytes",
)


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
